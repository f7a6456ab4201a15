// What the planners of all operations do alike: ask every variant, compare modelled times, say why. Templates over an operation's Problem, Plan and
// Variant (ops/<op>/variants.h).
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hyla/device.h"
#include "hyla/plan.h"
#include "hyla/status.h"

namespace hyla {

// The text of a Status without its code: "field: expected ..., got ...".
std::string reason_of(const Status& status);

template <class Variant>
const Variant* find_variant(std::span<const Variant> variants, std::string_view name) {
  for (const Variant& v : variants)
    if (v.name == name) return &v;
  return nullptr;
}

template <class Variant>
std::vector<std::string> names_of(std::span<const Variant> variants) {
  std::vector<std::string> names;
  for (const Variant& v : variants) names.emplace_back(v.name);
  return names;
}

// The legal variant with the least modelled time; on a tie the earlier one. `splits` is the plan's field that options.splits forces, and `unit` its name.
template <class Plan, class Problem, class Variant>
Result<Plan> choose_plan(const Problem& problem, const DeviceCaps& caps, const PlanOptions& options, std::span<const Variant> variants, int Plan::*splits,
                         const char* unit) {
  if (problem.device.kind != caps.kind)
    return Status::invalid(
        "device", caps.kind == DeviceKind::kCpu ? "tensors on the CPU, where this plan runs" : fmt::format("CUDA tensors, for a plan on {}", caps.name),
        to_string(problem.device));
  if (!options.variant.empty() && find_variant(variants, options.variant) == nullptr)
    return Status::invalid("options.variant", fmt::format("one of {}", fmt::join(names_of(variants), ", ")), options.variant);
  if (options.splits < 0)
    return Status::invalid("options.splits", fmt::format("a number of {} >= 0 (0: the planner's choice)", unit), std::to_string(options.splits));

  std::vector<Candidate> candidates;
  std::optional<Plan> best;
  size_t chosen = 0;
  for (const Variant& variant : variants) {
    Candidate& candidate = candidates.emplace_back();
    candidate.variant = variant.name;
    if (const Status status = variant.can_run(problem, caps); !status.ok()) {
      candidate.reason = reason_of(status);
      continue;
    }
    Plan plan = variant.propose(problem, caps, options, candidate.config);
    if (options.splits > 0 && plan.*splits != options.splits) {
      candidate.reason = fmt::format("options.splits: expected {}, got {}", plan.*splits, options.splits);
      continue;
    }
    plan.problem = problem, plan.caps = caps, plan.variant = variant.name;
    candidate.legal = true, candidate.modelled_us = plan.modelled_us;
    const bool wanted = options.variant.empty() || options.variant == variant.name;
    if (wanted && (!best || plan.modelled_us < best->modelled_us)) best = std::move(plan), chosen = candidates.size() - 1;
  }
  if (!best) {
    std::string reasons;
    for (const Candidate& c : candidates)
      if (options.variant.empty() || c.variant == options.variant) reasons += (reasons.empty() ? "" : "; ") + c.variant + ": " + c.reason;
    return Status::unsupported("problem", fmt::format("what {} takes on {} ({})", options.variant.empty() ? "a variant" : options.variant, caps.name, reasons),
                               problem.str());
  }

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

}  // namespace hyla
