// Float64 oracle: a dense softmax per row, straight from the contract. Slow, simple, and sharing no code with any backend.
#pragma once
#include <cstdint>
#include <vector>

#include "hyla/extend.h"

namespace hyla::extend {

struct ReferenceResult {
  std::vector<double> out;         // [n, Hq, Lv]; rows that belong to no request hold NaN
  std::vector<double> lse;         // [n, Hq]; the same
  std::vector<double> score_size;  // [n, Hq]: largest |q| |k| over the keys seen, scaled like the scores: what a rounding error of 1 in their terms amounts to
};

// Arguments must be readable by the CPU and satisfy check_contents, but for slots outside the pool, whose keys count as masked. `out` and `lse` of the
// arguments are not touched.
ReferenceResult reference(const Args& args);

// Whether query `query` of request `request` may see the key at position `key` (prefix first, then new tokens), by the contract's rules.
bool key_allowed(const Args& args, int64_t request, int64_t query, int64_t key);

}  // namespace hyla::extend
