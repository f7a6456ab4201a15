// Float64 oracle: the recurrence token by token, straight from the contract. Slow, simple, and sharing no code with any backend.
#pragma once
#include <vector>

#include "hyla/kda.h"

namespace hyla::kda {

// Row-major in the shapes of the arguments. NaN stands for what the contract leaves untouched (rows past the last sequence, slots that nobody listed,
// checkpoint rows without a checkpoint).
struct ReferenceResult {
  std::vector<double> out;          // [B, T, HV, V]
  std::vector<double> final_state;  // like args.final_state, or empty
  std::vector<double> checkpoints;  // like args.checkpoints, or empty
};

// Arguments must be readable by the CPU and satisfy check_contents. Outputs of the arguments are not touched.
ReferenceResult reference(const Args& args);

}  // namespace hyla::kda
