#include "ops/extend/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/extend/problem.h"
#include "ops/extend/variants.h"

namespace hyla::extend {
namespace {

Status check_kind(const Problem& problem, const DeviceCaps& caps) {
  if (problem.device.kind == caps.kind) return {};
  return Status::invalid("device",
                         caps.kind == DeviceKind::kCpu ? "tensors on the CPU, where this plan runs" : fmt::format("CUDA tensors, for a plan on {}", caps.name),
                         to_string(problem.device));
}

Status check_name(const std::string& variant) {
  if (variant.empty()) return {};
  const std::vector<std::string> names = variants();
  if (std::find(names.begin(), names.end(), variant) != names.end()) return {};
  return Status::invalid("options.variant", fmt::format("one of {}", fmt::join(names, ", ")), variant);
}

// What one variant makes of the problem: a plan, or why not. `candidate` is filled either way.
std::optional<Plan> consider(const Variant& variant, const Problem& problem, const DeviceCaps& caps, const PlanOptions& options, Candidate& candidate) {
  candidate.variant = variant.name;
  if (const Status status = variant.can_run(problem, caps); !status.ok()) {
    candidate.reason = reason_of(status);
    return {};
  }
  Plan plan = variant.propose(problem, caps, options, candidate.config);
  if (options.splits > 0 && plan.splits != options.splits) {
    candidate.reason = fmt::format("options.splits: expected {}, got {}", plan.splits, options.splits);
    return {};
  }
  plan.problem = problem, plan.caps = caps, plan.variant = variant.name;
  candidate.legal = true, candidate.modelled_us = plan.modelled_us;
  return plan;
}

// No variant was legal: what each of them said.
Status nothing_runs(const std::vector<Candidate>& candidates, const Problem& problem, const DeviceCaps& caps, const PlanOptions& options) {
  std::string reasons;
  for (const Candidate& c : candidates)
    if (options.variant.empty() || c.variant == options.variant) reasons += (reasons.empty() ? "" : "; ") + c.variant + ": " + c.reason;
  return Status::unsupported("problem", fmt::format("what {} takes on {} ({})", options.variant.empty() ? "a variant" : options.variant, caps.name, reasons),
                             problem.str());
}

}  // namespace

std::string reason_of(const Status& status) {
  std::string text = status.argument();
  if (!status.expected().empty()) text += fmt::format(": expected {}", status.expected());
  if (!status.got().empty()) text += fmt::format(", got {}", status.got());
  return text;
}

Result<Plan> plan(const Problem& problem, const DeviceCaps& caps, const PlanOptions& options) {
  HYLA_RETURN_IF_ERROR(check_problem(problem));
  HYLA_RETURN_IF_ERROR(check_kind(problem, caps));
  HYLA_RETURN_IF_ERROR(check_name(options.variant));
  if (options.splits < 0) return Status::invalid("options.splits", "a number of parts >= 0 (0: the planner's choice)", std::to_string(options.splits));

  std::vector<Candidate> candidates;
  std::optional<Plan> best;
  size_t chosen = 0;
  for (const Variant& variant : all_variants()) {
    Candidate candidate;
    std::optional<Plan> proposed = consider(variant, problem, caps, options, candidate);
    const bool wanted = options.variant.empty() || options.variant == variant.name;
    // On a tie the earlier variant stays: the list is in order of preference.
    if (proposed && wanted && (!best || proposed->modelled_us < best->modelled_us)) best = std::move(proposed), chosen = candidates.size();
    candidates.push_back(std::move(candidate));
  }
  if (!best) return nothing_runs(candidates, problem, caps, options);

  for (size_t i = 0; i < candidates.size(); ++i) {
    Candidate& c = candidates[i];
    if (!c.legal) continue;
    if (i == chosen) c.reason = options.variant.empty() ? "chosen: least modelled time" : "chosen: asked for by name";
    else if (!options.variant.empty()) c.reason = fmt::format("passed over: {} was asked for", options.variant);
    else c.reason = fmt::format("passed over: {:.2f} times the modelled time of {}", c.modelled_us / std::max(best->modelled_us, 1e-9), best->variant);
  }
  if (best->why.empty()) best->why = candidates[chosen].reason;
  best->candidates = std::move(candidates);
  return *std::move(best);
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
