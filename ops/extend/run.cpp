// run(): nothing is enqueued or written unless plan, arguments and workspace agree.
#include <fmt/format.h>

#include "core/arguments.h"
#include "core/choose.h"
#include "hyla/extend.h"
#include "ops/extend/problem.h"
#include "ops/extend/variants.h"

namespace hyla::extend {

Status run(const Plan& plan, const Args& args, Workspace workspace, Stream stream) {
  const Result<Problem> problem = make_problem(args);
  if (!problem.ok()) return problem.status();
  if (const auto difference = first_difference(plan.problem, problem.value()))
    return {Code::kPlanMismatch, difference->field, fmt::format("{} (the plan's)", difference->planned), difference->got};
  const Variant* variant = find_variant(all_variants(), plan.variant);
  if (variant == nullptr) return {Code::kPlanMismatch, "variant", "a variant of this library", plan.variant.empty() ? "an empty plan" : plan.variant};
  if (plan.caps.kind != plan.problem.device.kind) return {Code::kPlanMismatch, "caps.kind", "a plan for the tensors' kind of device", plan.caps.name};
  HYLA_RETURN_IF_ERROR(check_workspace(
      plan.workspace_bytes, plan.problem.device, workspace,
      {{"out", args.out}, {"lse", args.lse}, {"q", args.q}, {"k", args.k}, {"v", args.v}, {"k_buffer", args.k_buffer}, {"v_buffer", args.v_buffer}}));
  if (problem->n == 0 || problem->batch == 0) return {};
  return variant->run(plan, args, workspace, stream);
}

}  // namespace hyla::extend
