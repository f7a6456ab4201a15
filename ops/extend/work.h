// How much there is to do, as far as the host knows: lengths live on the device, so this is an estimate from capacities and bounds.
#pragma once
#include "hyla/extend.h"

namespace hyla::extend {

// (query, key) pairs of one head that the masks allow, for requests of even lengths.
double estimated_pairs(const Problem& problem);
// Multiply-add work of these pairs in FLOP: 2 * pairs * Hq * (Lq + Lv).
double estimated_flop(const Problem& problem);
// Bytes that must move at least once: q, out, and the keys and values that some query sees.
double estimated_bytes(const Problem& problem);

}  // namespace hyla::extend
