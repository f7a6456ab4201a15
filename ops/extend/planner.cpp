// Problem x chip -> Plan. Pure host functions: plans for any chip are made on any machine.
#include <fmt/format.h>

#include "core/choose.h"
#include "ops/extend/problem.h"
#include "ops/extend/variants.h"

namespace hyla::extend {

Result<Plan> plan(const Problem& problem, const DeviceCaps& caps, const PlanOptions& options) {
  HYLA_RETURN_IF_ERROR(check_problem(problem));
  return choose_plan<Plan>(problem, caps, options, all_variants(), &Plan::splits, "parts");
}

Result<Plan> plan(const Args& args, const DeviceCaps& caps, const PlanOptions& options) {
  Result<Problem> problem = make_problem(args);
  if (!problem.ok()) return problem.status();
  if (options.debug_checks) HYLA_RETURN_IF_ERROR(check_contents(args));
  return plan(problem.value(), caps, options);
}

Status can_run(const Args& args, const DeviceCaps& caps, const PlanOptions& options) { return plan(args, caps, options).status(); }

std::string Plan::str() const {
  std::string s = fmt::format("{} on {}: tile {}x{}", variant, caps.name, tile_m, tile_n);
  if (stages > 0) s += fmt::format(" stages={}", stages);
  if (splits > 1) s += fmt::format(" splits={}", splits);
  if (threads > 0) s += fmt::format(" threads={}", threads);
  if (smem_bytes > 0) s += fmt::format(" smem={}", smem_bytes);
  s += fmt::format(" workspace={} modelled={:.1f}us", workspace_bytes, modelled_us);
  return why.empty() ? s : s + fmt::format(" ({})", why);
}

}  // namespace hyla::extend
