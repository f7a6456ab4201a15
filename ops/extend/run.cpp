// run(): nothing is enqueued or written unless plan, arguments and workspace agree.
#include <fmt/format.h>

#include <string_view>

#include "hyla/extend.h"
#include "hyla/workspace.h"
#include "core/overlap.h"
#include "ops/extend/problem.h"
#include "ops/extend/variants.h"

namespace hyla::extend {
namespace {

const Variant* find_variant(std::string_view name) {
  for (const Variant& v : all_variants())
    if (v.name == name) return &v;
  return nullptr;
}

Status check_workspace(const Plan& plan, const Args& args, Workspace workspace) {
  const auto error = [](const char* field, std::string expected, std::string got) {
    return Status(Code::kWorkspace, field, std::move(expected), std::move(got));
  };
  if (plan.workspace_bytes == 0) return {};
  if (workspace.data == nullptr) return error("workspace.data", fmt::format("{} bytes", plan.workspace_bytes), "null");
  if (workspace.bytes < plan.workspace_bytes)
    return error("workspace.bytes", fmt::format("at least {}", plan.workspace_bytes), std::to_string(workspace.bytes));
  if (reinterpret_cast<uintptr_t>(workspace.data) % WorkspaceLayout::kAlignment != 0)
    return error("workspace.data", fmt::format("alignment to {} bytes", WorkspaceLayout::kAlignment), "a misaligned pointer");
  const TensorView scratch = contiguous(workspace.data, DType::kU8, {static_cast<int64_t>(plan.workspace_bytes)}, plan.problem.device);
  const struct {
    const char* name;
    const TensorView& view;
  } tensors[] = {{"out", args.out}, {"lse", args.lse}, {"q", args.q}, {"k", args.k}, {"v", args.v}, {"k_buffer", args.k_buffer}, {"v_buffer", args.v_buffer}};
  for (const auto& t : tensors)
    if (overlap(scratch, t.view)) return error("workspace.data", "memory apart from every tensor", fmt::format("an overlap with {}", t.name));
  return {};
}

}  // namespace

Status run(const Plan& plan, const Args& args, Workspace workspace, Stream stream) {
  const Result<Problem> problem = make_problem(args);
  if (!problem.ok()) return problem.status();
  if (const auto difference = first_difference(plan.problem, problem.value()))
    return {Code::kPlanMismatch, difference->field, fmt::format("{} (the plan's)", difference->planned), difference->got};
  const Variant* variant = find_variant(plan.variant);
  if (variant == nullptr) return {Code::kPlanMismatch, "variant", "a variant of this library", plan.variant.empty() ? "an empty plan" : plan.variant};
  if (plan.caps.kind != plan.problem.device.kind) return {Code::kPlanMismatch, "caps.kind", "a plan for the tensors' kind of device", plan.caps.name};
  HYLA_RETURN_IF_ERROR(check_workspace(plan, args, workspace));
  if (problem->n == 0 || problem->batch == 0) return {};
  return variant->run(plan, args, workspace, stream);
}

}  // namespace hyla::extend
