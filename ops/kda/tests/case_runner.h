// Runs one case on one backend and holds the result against the float64 oracle.
#pragma once
#include <string>

#include "ops/kda/reference.h"
#include "ops/kda/tests/case_data.h"
#include "testing/backend.h"

namespace hyla::kda {

// What a result may differ from float64 by (design A of the numerics in ops/kda/README.md: 16-bit products, fp32 sums and state).
struct Tolerance {
  double out = 6e-3, state = 5e-3;  // relative L2
};
Tolerance tolerance_of(const Case& c);

struct RunOptions {
  std::string variant;  // empty: the planner's choice
  int splits = 0;       // 0: the planner's choice
};

// A run on poisoned memory, everything back on the host.
struct Outputs {
  Status status;
  std::string variant, plan;
  CaseData host;
  bool intact = false;
};
Outputs compute(const CaseData& data, const RunOptions& options, testing::Backend& backend);

struct CaseResult {
  bool supported = true;  // false: nothing, or not the variant asked for, takes this case; `message` says why
  bool pass = false;
  std::string variant, plan, message;
  double out = 0, state = 0, checkpoints = 0;  // relative L2
  Tolerance tolerance;
  std::string line() const;
};

// Runs twice (the second time over the dirty workspace), asks for equal bits, compares with the oracle, and checks that nothing else was written.
CaseResult run_case(const Case& c, const RunOptions& options, testing::Backend& backend);

// Values of a tensor in row-major order.
std::vector<double> values_of(const TensorView& t);

}  // namespace hyla::kda
