// The tensors of a case in host memory, poisoned wherever no result may depend on them, and their copies on a backend.
#pragma once
#include <memory>
#include <vector>

#include "ops/extend/tests/cases.h"
#include "testing/guarded.h"

namespace hyla::extend {

// Owns the memory that `args` points to. NaN fills out and lse, rows of no request, pool slots nobody lists, gaps between strided rows, and every
// listed key that no query may see.
struct CaseData {
  Args args;
  std::vector<std::vector<uint8_t>> buffers;
  size_t out_buffer = 0, lse_buffer = 0;  // lse_buffer is meaningful with an lse
};
CaseData make_data(const Case& c);

// The same tensors on a backend, between canaries.
class PlacedCase {
 public:
  PlacedCase(const CaseData& data, testing::Backend& backend, size_t shift);
  bool ok() const;
  const Args& args() const { return args_; }
  // Uploads the buffers of another case of the same sizes in place of these, as an engine does between replays of a graph.
  Status replace_contents(const CaseData& other);
  // Outputs back to NaN.
  Status poison_outputs();
  // Downloads out and lse into `bytes`.
  Status outputs(std::vector<uint8_t>& out, std::vector<uint8_t>& lse) const;
  // Empty, or what was written that must not be: an input, a canary, a row of no request.
  std::string damage() const;

 private:
  const CaseData& data_;
  Args args_;
  std::vector<std::unique_ptr<testing::Guarded>> buffers_;
};

// (query, key) pairs that the masks allow, of one head.
int64_t count_pairs(const Args& args);

}  // namespace hyla::extend
