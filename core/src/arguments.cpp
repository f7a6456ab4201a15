#include "core/arguments.h"

#include <fmt/format.h>

#include "core/overlap.h"
#include "hyla/workspace.h"

namespace hyla {

Status check_rank(const char* name, const TensorView& t, int rank, const char* shape) {
  HYLA_RETURN_IF_ERROR(check_view(name, t));
  if (t.rank == rank) return {};
  return Status::invalid(name, fmt::format("rank {} {}", rank, shape), describe(t));
}

Status check_extent(const char* name, const TensorView& t, int dim, int64_t want, const char* source) {
  if (t.shape[dim] == want) return {};
  return Status::invalid(fmt::format("{}.shape[{}]", name, dim), fmt::format("{} (= {})", want, source), std::to_string(t.shape[dim]));
}

Status check_inner(const char* name, const TensorView& t) {
  const int last = t.rank - 1;
  if (t.shape[last] <= 1 || t.stride[last] == 1) return {};
  return Status::invalid(fmt::format("{}.stride[{}]", name, last), "1 (contiguous innermost dimension)", std::to_string(t.stride[last]));
}

Status check_device(const char* name, const TensorView& t, Device want) {
  if (t.device == want) return {};
  return Status::invalid(fmt::format("{}.device", name), fmt::format("{} (= q.device)", to_string(want)), to_string(t.device));
}

Status check_workspace(size_t bytes, Device device, Workspace workspace, std::initializer_list<NamedView> tensors) {
  const auto error = [](const char* field, std::string expected, std::string got) {
    return Status(Code::kWorkspace, field, std::move(expected), std::move(got));
  };
  if (bytes == 0) return {};
  if (workspace.data == nullptr) return error("workspace.data", fmt::format("{} bytes", bytes), "null");
  if (workspace.bytes < bytes) return error("workspace.bytes", fmt::format("at least {}", bytes), std::to_string(workspace.bytes));
  if (reinterpret_cast<uintptr_t>(workspace.data) % WorkspaceLayout::kAlignment != 0)
    return error("workspace.data", fmt::format("alignment to {} bytes", WorkspaceLayout::kAlignment), "a misaligned pointer");
  const TensorView scratch = contiguous(workspace.data, DType::kU8, {static_cast<int64_t>(bytes)}, device);
  for (const NamedView& t : tensors)
    if (overlap(scratch, t.view)) return error("workspace.data", "memory apart from every tensor", fmt::format("an overlap with {}", t.name));
  return {};
}

}  // namespace hyla
