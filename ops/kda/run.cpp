// run(): nothing is enqueued or written unless plan, arguments and workspace agree.
#include <fmt/format.h>

#include "core/arguments.h"
#include "core/choose.h"
#include "hyla/kda.h"
#include "ops/kda/problem.h"
#include "ops/kda/variants.h"

namespace hyla::kda {

Status run(const Plan& plan, const Args& args, Workspace workspace, Stream stream) {
  const Result<Problem> problem = make_problem(args);
  if (!problem.ok()) return problem.status();
  if (const auto difference = first_difference(plan.problem, problem.value()))
    return {Code::kPlanMismatch, difference->field, fmt::format("{} (the plan's)", difference->planned), difference->got};
  const Variant* variant = find_variant(all_variants(), plan.variant);
  if (variant == nullptr) return {Code::kPlanMismatch, "variant", "a variant of this library", plan.variant.empty() ? "an empty plan" : plan.variant};
  if (plan.caps.kind != plan.problem.device.kind) return {Code::kPlanMismatch, "caps.kind", "a plan for the tensors' kind of device", plan.caps.name};
  HYLA_RETURN_IF_ERROR(check_workspace(plan.workspace_bytes, plan.problem.device, workspace,
                                       {{"out", args.out},
                                        {"final_state", args.final_state},
                                        {"checkpoints", args.checkpoints},
                                        {"initial_state", args.initial_state},
                                        {"q", args.q},
                                        {"k", args.k},
                                        {"v", args.v},
                                        {"g", args.g},
                                        {"beta", args.beta}}));
  if (problem->N == 0) return {};
  return variant->run(plan, args, workspace, stream);
}

}  // namespace hyla::kda
