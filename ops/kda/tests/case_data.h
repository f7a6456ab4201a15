// The tensors of a case in host memory, poisoned wherever no result may depend on them, and their copies on a backend.
#pragma once
#include <memory>
#include <vector>

#include "ops/kda/tests/cases.h"
#include "testing/guarded.h"

namespace hyla::kda {

// Owns the memory that `args` points to. NaN fills out, final states and checkpoints, pool slots that nobody uses, states that a flag declares void,
// rows past the last sequence and gaps between strided rows.
struct CaseData {
  Args args;
  std::vector<std::vector<uint8_t>> buffers;  // vectors do not move once built
};
CaseData make_data(const Case& c);

// The same tensors on a backend, between canaries.
class PlacedCase {
 public:
  PlacedCase(const CaseData& data, testing::Backend& backend);
  bool ok() const;
  const Args& args() const { return args_; }
  // Contents of another case of the same sizes, as an engine replaces them between replays of a graph.
  Status upload(const CaseData& data);
  // Everything back on the host, as arguments over new memory.
  CaseData download() const;
  bool intact() const;  // no canary changed

 private:
  Args args_;
  std::vector<std::unique_ptr<testing::Guarded>> buffers_;
};

}  // namespace hyla::kda
