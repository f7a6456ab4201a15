// Runs one case on one backend and holds the result against the float64 oracle.
#pragma once
#include <string>
#include <vector>

#include "ops/extend/reference.h"
#include "ops/extend/tests/case_data.h"
#include "ops/extend/tests/cases.h"
#include "testing/backend.h"

namespace hyla::extend {

// What a result may differ from float64 by. Rounding the output to its type alone costs a relative L2 error of about 0.0016 (bf16) or 0.0002 (fp16);
// rounding the weights to the same type before the second product about as much again.
struct Tolerance {
  double rel_l2 = 0;   // of the whole output
  double element = 0;  // of one value, relative to the largest of its row
  double step = 0;     // the output type's smallest number: rounding below its normal range costs this much whatever the value
  double lse = 1e-5;   // absolute below 1, relative above
};
Tolerance tolerance_of(DType dtype, DType out);

struct Errors {
  double rel_l2 = 0, max_abs = 0, element = 0, lse = 0;
};
// Of downloaded outputs against the oracle. `problem` names the first value that is not finite where it should be, or should be untouched and is not.
Errors compare(const Args& host, const std::vector<uint8_t>& out, const std::vector<uint8_t>& lse, const ReferenceResult& reference, std::string& problem);

struct CaseResult {
  bool supported = true;  // false: nothing, or not the variant asked for, takes this case; `message` says why
  bool pass = false;
  std::string variant, plan;  // what ran
  Errors errors;
  Tolerance tolerance;
  std::string message;       // what is wrong, in a sentence
  std::string line() const;  // one line for people
};

struct RunOptions {
  std::string variant;  // empty: the planner's choice
  int splits = 0;       // 0: the planner's choice
};

// Outputs of one run on poisoned memory, as doubles.
struct Outputs {
  Status status;
  std::string variant;
  std::vector<uint8_t> out_bytes, lse_bytes;
  std::vector<double> out, lse;  // [n, Hq, Lv], [n, Hq]
};
Outputs compute(const CaseData& data, const RunOptions& options, testing::Backend& backend);

// Poisons outputs and workspace, runs twice (the second time over the dirty workspace), asks for equal bits, compares with the oracle, and checks
// that nothing else was written.
CaseResult run_case(const Case& c, const RunOptions& options, testing::Backend& backend);
CaseResult run_case(const Case& c, const std::string& variant, testing::Backend& backend);

}  // namespace hyla::extend
