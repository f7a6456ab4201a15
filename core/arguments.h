// Checks of single arguments that every operation makes. Each names the argument, what was expected and what came.
#pragma once
#include <initializer_list>
#include <optional>
#include <string>

#include "hyla/status.h"
#include "hyla/tensor.h"

namespace hyla {

Status check_rank(const char* name, const TensorView& t, int rank, const char* shape);
Status check_extent(const char* name, const TensorView& t, int dim, int64_t want, const char* source);
Status check_inner(const char* name, const TensorView& t);                // contiguous innermost dimension
Status check_device(const char* name, const TensorView& t, Device want);  // that of q

inline bool is_index(DType t) { return t == DType::kI32 || t == DType::kI64; }

struct NamedView {
  const char* name;
  const TensorView& view;
};
// Large enough, aligned, and apart from the tensors of the call; `bytes` is the plan's demand.
Status check_workspace(size_t bytes, Device device, Workspace workspace, std::initializer_list<NamedView> tensors);

// A field in which a plan's problem and the arguments' differ.
struct FieldDifference {
  std::string field, planned, got;
};

}  // namespace hyla
