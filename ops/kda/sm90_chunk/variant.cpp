#include "ops/kda/sm90_chunk/variant.h"

#include <algorithm>
#include <limits>

#include "launch.h"
#include "model.h"
#include "scan_size.h"
#if HYLA_WITH_CUDA
#include "cuda/host/launch.h"
#endif

namespace hyla::kda::sm90_chunk {
namespace {

constexpr const char* kName = "sm90_chunk";

Status can_run_here(const Problem& p, const DeviceCaps& caps) {
  if (caps.kind != DeviceKind::kCuda) return Status::unsupported("device", "a CUDA device", caps.name);
  if (caps.compute_capability != 90) return Status::unsupported("device.compute_capability", "90 (wgmma of sm_90a)", std::to_string(caps.compute_capability));
  if (caps.smem_per_block < kScanSmemBytes)
    return Status::unsupported("device.smem_per_block", std::to_string(kScanSmemBytes), std::to_string(caps.smem_per_block));
  if (p.K != kDim || p.V != kDim) return Status::unsupported("K, V", "K = V = 128", std::to_string(p.K) + ", " + std::to_string(p.V));
  if (p.qkv != DType::kBf16) return Status::unsupported("q.dtype", "bf16", to_string(p.qkv));
  if (p.out != DType::kBf16) return Status::unsupported("out.dtype", "bf16", to_string(p.out));
  if (p.g != DType::kBf16 && p.g != DType::kFp32) return Status::unsupported("g.dtype", "bf16 or fp32", to_string(p.g));
  if (p.beta != DType::kBf16 && p.beta != DType::kFp32) return Status::unsupported("beta.dtype", "bf16 or fp32", to_string(p.beta));
  if (!p.aligned16) return Status::unsupported("alignment", "q, k, v, g, out: base and row strides multiples of 16 bytes", "not aligned");
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (record_slots(p) > kMost / std::max<int64_t>(1, p.HV) || p.N > kMost / 64 / std::max<int64_t>(1, p.HV) || p.HV > kMost / 4)
    return Status::unsupported("N * HV", "at most 2^25 sequences x heads", std::to_string(p.N) + " * " + std::to_string(p.HV));
  return {};
}

// tuning: {chunks a segment (0: not cut), multiprocessors of prepare when the scan runs beside it (0: one after the other), waves}.
Plan propose_here(const Problem& problem, const DeviceCaps& caps, const PlanOptions& options, std::string& config) {
  const Choice c = choose(problem, caps, options.splits);
  Plan plan;
  plan.problem = problem;
  plan.caps = caps;
  plan.variant = kName;
  plan.segments = c.segments;
  plan.v_split = c.v_split;
  plan.stages = scan_stages(true, c.v_split == 2 ? 1 : 2);
  plan.tuning = {c.segment_chunks, c.prepare_blocks, c.waves};
  WorkspaceLayout layout;
  place(problem, c, layout);
  plan.workspace_bytes = layout.bytes();
  plan.modelled_us = c.us;
  config = "segments=" + std::to_string(c.segments) + " v_split=" + std::to_string(c.v_split) + " stages=" + std::to_string(plan.stages);
  if (c.waves > 1) config += " waves=" + std::to_string(c.waves);
  plan.why = c.segments > 1         ? "sequences cut into segments of " + std::to_string(c.segment_chunks) + " chunks to fill the chip"
             : c.prepare_blocks > 0 ? "the scan runs beside prepare, which takes " + std::to_string(c.prepare_blocks) + " multiprocessors"
                                    : "chunks of 64, prepare and scan in turn";
  if (c.waves > 1) plan.why += ", in " + std::to_string(c.waves) + " ranges of heads that share the workspace";
  return plan;
}

#if HYLA_WITH_CUDA
Choice choice_of(const Plan& plan) {
  Choice c;
  c.segment_chunks = int(plan.tuning[0]);
  c.prepare_blocks = int(plan.tuning[1]);
  c.waves = int(plan.tuning[2]);
  c.segments = plan.segments;
  c.v_split = plan.v_split;
  return c;
}

Strided strided(const TensorView& t) { return {t.data, t.stride[0], t.stride[1], t.stride[2]}; }

Indices indices(const TensorView& t) {
  if (!t.defined()) return {};
  return {t.data, t.dtype == DType::kI64, t.stride[t.rank - 1], t.rank > 1 ? t.stride[0] : 0};
}

States states(const TensorView& t) {
  if (!t.defined()) return {};
  return {t.data, t.stride[0], t.stride[1], t.stride[2], t.dtype == DType::kBf16};
}

KernelParams params_of(const Plan& plan, const Args& args, Workspace workspace) {
  const Problem& problem = plan.problem;
  KernelParams p;
  p.q = strided(args.q), p.k = strided(args.k), p.v = strided(args.v), p.g = strided(args.g), p.beta = strided(args.beta), p.out = strided(args.out);
  if (args.A_log.defined()) p.a_log = args.A_log.as<const float>(), p.a_log_stride = args.A_log.stride[0];
  if (args.dt_bias.defined()) p.dt_bias = args.dt_bias.as<const float>(), p.dt_bias_head = args.dt_bias.rank == 2 ? args.dt_bias.stride[0] : kDim;
  p.cu_seqlens = indices(args.cu_seqlens);
  p.tokens = problem.T;
  p.sequences = int(problem.N), p.heads = int(problem.HV), p.group = int(problem.HV / problem.H), p.slots = int(record_slots(problem));
  p.gate = int(problem.gate);
  p.g_fp32 = problem.g == DType::kFp32, p.beta_fp32 = problem.beta == DType::kFp32;
  p.l2norm = problem.qk_l2norm, p.beta_logits = problem.beta_is_logits, p.beta_doubled = problem.beta_doubled;
  p.lower_bound = problem.lower_bound, p.scale = problem.scale;
  p.initial = states(args.initial_state), p.final_ = states(args.final_state), p.checkpoints = states(args.checkpoints);
  p.v_first = problem.state_layout == StateLayout::kVFirst;
  p.state_indices = indices(args.state_indices);
  if (args.has_initial_state.defined()) p.has_initial = args.has_initial_state.as<const uint8_t>(), p.has_initial_stride = args.has_initial_state.stride[0];
  p.pool_slots = problem.slots, p.lowest_slot = args.lowest_valid_slot;
  p.checkpoint_rows = args.checkpoints.defined() ? args.checkpoints.shape[0] : 0;
  p.checkpoint_offsets = indices(args.checkpoint_offsets);
  p.checkpoint_slots = args.checkpoint_offsets.defined() ? int(args.checkpoint_offsets.shape[1]) : 0;
  p.checkpoint_indices = indices(args.checkpoint_indices);
  p.checkpoint_index_count = args.checkpoint_indices.defined() ? args.checkpoint_indices.shape[0] : 0;
  const Choice c = choice_of(plan);
  p.segment_chunks = c.segment_chunks, p.segments = c.segments, p.prepare_blocks = c.prepare_blocks;
  WorkspaceLayout layout(workspace.data);
  const Buffers b = place(problem, c, layout);
  p.records = b.records, p.summary_state = b.summary_state, p.summary_transition = b.summary_transition, p.summary_decay = b.summary_decay;
  p.saved_initial = b.saved_initial;
  p.ready = c.prepare_blocks > 0 ? b.ready : nullptr;
  return p;
}

// The same for heads [first, first + heads): every pointer but q's and k's moves there.
KernelParams wave_of(KernelParams p, int64_t first, int64_t heads) {
  const auto move = [&](Strided& s, int64_t element) { s.data = static_cast<const char*>(s.data) + first * s.h * element; };
  move(p.v, 2), move(p.g, p.g_fp32 ? 4 : 2), move(p.beta, p.beta_fp32 ? 4 : 2), move(p.out, 2);
  for (States* s : {&p.initial, &p.final_, &p.checkpoints})
    if (s->data != nullptr) s->data = static_cast<char*>(s->data) + first * s->head * (s->bf16 ? 2 : 4);
  if (p.a_log != nullptr) p.a_log += first * p.a_log_stride;
  if (p.dt_bias != nullptr) p.dt_bias += first * p.dt_bias_head;
  p.first_head = int(first), p.heads = int(heads);
  return p;
}

Status run_here(const Plan& plan, const Args& args, Workspace workspace, Stream stream) {
  const Problem& problem = plan.problem;
  if (problem.N == 0 || problem.HV == 0) return {};
  const KernelParams all = params_of(plan, args, workspace);
  cuda::DeviceGuard guard(problem.device);
  HYLA_RETURN_IF_ERROR(guard.status());
  const int64_t heads = wave_heads(problem, choice_of(plan));
  for (int64_t first = 0; first < problem.HV; first += heads) {
    const KernelParams p = wave_of(all, first, std::min(heads, problem.HV - first));
    HYLA_RETURN_IF_ERROR(launch_prepare(p, plan.caps.sm_count, stream));
    if (p.segments > 1) HYLA_RETURN_IF_ERROR(launch_summary(p, stream));
    HYLA_RETURN_IF_ERROR(launch_scan(p, plan.v_split, stream));
  }
  return {};
}
#else
Status run_here(const Plan&, const Args&, Workspace, Stream) { return Status::unsupported("variant", "a build of hyla with its CUDA kernels", kName); }
#endif

}  // namespace

const Variant& variant() {
  static const Variant v{kName, can_run_here, propose_here, run_here};
  return v;
}

}  // namespace hyla::kda::sm90_chunk
