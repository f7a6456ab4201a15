// Whether views share memory.
#pragma once
#include <string>

#include "hyla/tensor.h"

namespace hyla {

// True when two elements of the view may share an address.
bool overlaps_itself(const TensorView& t);
// True when the views may share a byte. Exact for interleaved slices of one row-major buffer, otherwise by address range.
bool overlap(const TensorView& a, const TensorView& b);
std::string describe_strides(const TensorView& t);  // "[512, 128, 1]"

}  // namespace hyla
