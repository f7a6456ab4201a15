// The case table of KDA, shared by tests, command line and benchmarks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "hyla/kda.h"

namespace hyla::kda {

// What the inputs look like: how fast states fade and how alike keys are (ops/kda/README.md, "Numerics").
enum class Profile : uint8_t {
  kStandard,  // randn inputs, gates near half the bound: memory of a token or two
  kMixed,     // channels from no decay to the bound
  kWeak,      // log decays of -1e-5 to -1e-2
  kStrong,    // every gate at its limit: -5 a token, unbounded -40 to -2600
  kSpikes,    // weak decay with resets of hundreds of nats on 2% of the values
  kRepeated,  // the same key over and over, no decay, beta near 1
  kZeroKeys,  // keys of zeros in between
};

enum class Layout : uint8_t {
  kPlain,    // contiguous tensors
  kFused,    // q, k, v, g are slices of one projection
  kShifted,  // every tensor two bytes (four for fp32) off its alignment
};

enum class State : uint8_t { kNone, kRows, kPool, kPoolInPlace };
enum class Checkpoints : uint8_t { kNone, kEvery64, kOffsets, kScattered };

struct Case {
  std::string name;
  std::vector<int64_t> lengths;  // packed sequences; with `dense` all are equal and B is their number
  bool dense = false;
  int64_t H = 1, HV = 1, D = 128;
  DType dtype = DType::kBf16, g = DType::kBf16, beta = DType::kBf16, out = DType::kBf16;
  Gate gate = Gate::kBounded;
  Profile profile = Profile::kStandard;
  bool A_log = true, dt_bias = true, flat_bias = false;
  bool norm = true, logits = true, doubled = false;
  State state = State::kRows;
  DType state_dtype = DType::kFp32;
  bool final_state = true, v_first = false;
  bool flags = false;    // every second sequence starts from zeros; its state holds NaN
  bool skipped = false;  // with a pool: every third sequence has an invalid index
  int64_t lowest = 0;
  Checkpoints checkpoints = Checkpoints::kNone;
  DType checkpoint_dtype = DType::kFp32;
  DType index = DType::kI64;
  int64_t trailing = 0;  // rows past the last sequence
  Layout layout = Layout::kPlain;
  float value_scale = 1;  // of v
  float scale = 0;
  uint64_t seed = 1;
};

const std::vector<Case>& all_cases();
// Null when there is none of that name.
const Case* find_case(const std::string& name);

}  // namespace hyla::kda
