// The variants of KDA: every way this library can compute it, in order of preference.
#pragma once
#include <span>
#include <string>

#include "hyla/kda.h"

namespace hyla::kda {

// One way to compute the operation. The functions are pure host code but for `run`.
struct Variant {
  const char* name;
  // OK, or why this problem is not taken on this chip (kUnsupported, naming the field).
  Status (*can_run)(const Problem& problem, const DeviceCaps& caps);
  // Fills the variant's part of a plan (segments, stages, tuning, workspace_bytes, modelled_us, why); called only when can_run is OK.
  // `config` receives the parameters in one phrase.
  Plan (*propose)(const Problem& problem, const DeviceCaps& caps, const PlanOptions& options, std::string& config);
  // Enqueues. Arguments, plan and workspace were checked against each other before.
  Status (*run)(const Plan& plan, const Args& args, Workspace workspace, Stream stream);
};

std::span<const Variant> all_variants();

}  // namespace hyla::kda
