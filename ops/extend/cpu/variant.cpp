#include "ops/extend/cpu/variant.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/extend/cpu/attend.h"
#include "ops/extend/cpu/config.h"
#include "ops/extend/work.h"

namespace hyla::extend::cpu {
namespace {

constexpr double kPeakShare = 0.5;  // of the cores' fp32 peak that the tiles reach

Status can_run(const Problem&, const DeviceCaps& caps) {
  if (caps.kind == DeviceKind::kCpu) return {};
  return Status::unsupported("device", "a CPU", caps.name);
}

Plan propose(const Problem& problem, const DeviceCaps& caps, const PlanOptions&, std::string& config) {
  const Tile tile = tile_of(problem.Lq, problem.Lv);
  Plan plan;
  plan.tile_m = static_cast<int>(tile.m), plan.tile_n = static_cast<int>(tile.n);
  plan.threads = cpu_threads();
  plan.workspace_bytes = place_buffers(nullptr, problem, plan.threads).bytes;
  const double flop_per_us = std::max(1, caps.sm_count) * caps.tensor_flop_per_clock * caps.clock_ghz * 1e3 * kPeakShare;
  const double bytes_per_us = caps.copy_tbs * 1e6;
  plan.modelled_us = 5 + estimated_flop(problem) / std::max(flop_per_us, 1.0) + estimated_bytes(problem) / std::max(bytes_per_us, 1.0);
  config = fmt::format("tile={}x{} threads={}", tile.m, tile.n, plan.threads);
  return plan;
}

Status run(const Plan& plan, const Args& args, Workspace workspace, Stream) {
  if (plan.threads < cpu_threads())
    return {Code::kPlanMismatch, "threads", fmt::format("a plan for the {} threads of this process", cpu_threads()), std::to_string(plan.threads)};
  const Buffers buffers = place_buffers(workspace.data, plan.problem, plan.threads);
  if (buffers.bytes > workspace.bytes) return {Code::kWorkspace, "workspace.bytes", fmt::format("at least {}", buffers.bytes), std::to_string(workspace.bytes)};
  attend(plan.problem, args, buffers);
  return {};
}

}  // namespace

Variant variant() { return {"cpu", can_run, propose, run}; }

}  // namespace hyla::extend::cpu
