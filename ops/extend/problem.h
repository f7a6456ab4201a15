// From arguments to a checked Problem. Every message about a wrong argument is made here.
#pragma once
#include <optional>

#include "core/arguments.h"
#include "hyla/extend.h"

namespace hyla::extend {

// Where token slot s of a pool lies: element offset (s / page_size) * page + (s % page_size) * token, plus head * `head`.
struct PoolLayout {
  int64_t slots = 0, page_size = 1;
  int64_t page = 0, token = 0, head = 0;  // strides in elements
};
// Of a checked 3-D or 4-D pool. A 3-D pool has pages of one token: page == token == the slot stride.
PoolLayout pool_layout(const TensorView& pool);

// What must hold of a Problem that came without tensors.
Status check_problem(const Problem& problem);

// The first field in which two problems differ.
std::optional<FieldDifference> first_difference(const Problem& planned, const Problem& got);

}  // namespace hyla::extend
