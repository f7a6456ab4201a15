// Holds results against float64 before any time is reported: whole small problems, sampled heads and rows of large ones.
#pragma once
#include <string>
#include <vector>

#include "benchlib/host_case.h"

namespace hyla::bench {

struct Measured {
  std::string what;  // "output", "state", "checkpoints", "lse"
  double rel_l2 = 0, max_abs = 0, tolerance = 0;
  bool absolute = false;  // the tolerance bounds |error| / max(1, |value|), not the L2 norm
  double max_scaled = 0;
  bool pass() const { return (absolute ? max_scaled : rel_l2) <= tolerance; }
};
inline bool all_pass(const std::vector<Measured>& list) {
  for (const Measured& m : list)
    if (!m.pass()) return false;
  return !list.empty();
}

// Everything the arguments' outputs hold, against the oracle.
std::vector<Measured> check_all(const kda::Args& args);
std::vector<Measured> check_all(const extend::Args& args);

// KDA: the first and the last head of as many sequences as about `budget` oracle tokens allow, from first to last token. Plain inputs only: no pools.
std::vector<Measured> check_sample(const kda::Args& args, int64_t budget = 16384);
// Extend attention: rows of every request spread over first to last, for the first and the last query head. Causal, without masks and skips.
std::vector<Measured> check_sample(const extend::Args& args, int64_t budget = 1 << 19);

}  // namespace hyla::bench
