#include "ops/kda/sm80_recurrent/variant.h"

#include <algorithm>
#include <limits>

#include "config.h"
#include "launch.h"
#if HYLA_WITH_CUDA
#include "cuda/host/launch.h"
#endif

namespace hyla::kda::sm80_recurrent {
namespace {

static_assert(kGateBounded == static_cast<int8_t>(Gate::kBounded) && kGateUnbounded == static_cast<int8_t>(Gate::kUnbounded) &&
              kGateGiven == static_cast<int8_t>(Gate::kGiven));

constexpr const char* kName = "sm80_recurrent";

// Microseconds, fitted to an h200 (NOTES.md has the runs). "crowded": with every multiprocessor holding all the blocks it can.
struct Cost {
  double start, token;  // of a block that has its multiprocessor to itself
  double crowded_start, crowded_token;
  int blocks_per_sm;
};
constexpr double kLaunchUs = 2.0;
constexpr double kStateRate = 0.88;  // of the copy rate, when states stream
constexpr Cost cost_of(Kind kind) {
  switch (kind) {
    case Kind::kLatency:
      return {2.6, 0.185, 2.6, 0.185, 1};
    case Kind::kThroughput:
      return {3.5, 0.40, 5.5, 0.52, 2};
    default:
      return {0.5, 0.83, 3.25, 1.93, 6};
  }
}

bool element_of(DType type, Element& element) {
  switch (type) {
    case DType::kBf16:
      element = Element::kBf16;
      return true;
    case DType::kFp16:
      element = Element::kFp16;
      return true;
    case DType::kFp32:
      element = Element::kFp32;
      return true;
    default:
      return false;
  }
}

Status can_run_here(const Problem& problem, const DeviceCaps& caps) {
  if (caps.kind != DeviceKind::kCuda) return Status::unsupported("device", "a CUDA device", caps.name);
  if (caps.compute_capability != 90)
    return Status::unsupported("device.compute_capability", "90 (the kernels are compiled for sm_90a)", std::to_string(caps.compute_capability));
  if (problem.K != problem.V || (problem.K != 64 && problem.K != 128))
    return Status::unsupported("K, V", "K = V = 64 or 128", std::to_string(problem.K) + ", " + std::to_string(problem.V));
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const struct {
    const char* name;
    int64_t extent;
  } extents[] = {{"T", problem.T},
                 {"N", problem.N},
                 {"N * HV * 8", problem.N * problem.HV * splits_of(Kind::kLatency, 128)},
                 {"slots", problem.slots},
                 {"checkpoint_rows", problem.checkpoint_rows}};
  for (const auto& e : extents)
    if (e.extent > kMost) return Status::unsupported(e.name, "at most 2147483647", std::to_string(e.extent));
  Element element;
  const struct {
    const char* name;
    DType type;
  } types[] = {{"q.dtype", problem.qkv}, {"g.dtype", problem.g}, {"beta.dtype", problem.beta}, {"out.dtype", problem.out}};
  for (const auto& t : types)
    if (!element_of(t.type, element)) return Status::unsupported(t.name, "bf16, fp16 or fp32", to_string(t.type));
  return {};
}

// Tokens of the longest sequence as far as the host knows.
double longest_of(const Problem& problem) { return static_cast<double>(problem.varlen ? std::min(problem.max_seqlen, problem.T) : problem.T); }

double modelled_us(const Problem& problem, const DeviceCaps& caps, Kind kind, double longest) {
  const int splits = splits_of(kind, static_cast<int>(problem.K));
  const Cost cost = cost_of(kind);
  const double sequences = static_cast<double>(std::max<int64_t>(problem.N, 1));
  const double tokens = static_cast<double>(problem.varlen ? problem.T : problem.B * problem.T);
  const double blocks = sequences * problem.HV * splits, slots = static_cast<double>(caps.sm_count) * cost.blocks_per_sm;
  const double serial = cost.start + cost.token * longest;
  const double work = blocks / slots * (cost.crowded_start + cost.crowded_token * tokens / sequences);
  // State in and out, q, k, g per block (they are shared through L2: once), v and o once.
  const double state_bytes =
      sequences * problem.HV * problem.K * problem.V *
      ((problem.has_initial_state ? size_of(problem.initial_state_dtype) : 0) + (problem.has_final_state ? size_of(problem.final_state_dtype) : 0));
  const double token_bytes = tokens * (2.0 * problem.H * problem.K * size_of(problem.qkv) +
                                       problem.HV * (problem.K * size_of(problem.g) + problem.V * (size_of(problem.qkv) + size_of(problem.out))));
  const double memory = (state_bytes + token_bytes) / (kStateRate * caps.copy_tbs * 1e6);
  return kLaunchUs + std::max({serial, work, memory});
}

// tuning: {kind}.
Plan propose_here(const Problem& problem, const DeviceCaps& caps, const PlanOptions&, std::string& config) {
  Plan plan;
  plan.problem = problem;
  plan.caps = caps;
  plan.variant = kName;
  // Without a bound, sequences of about equal length are the likely case for the choice of a kernel; the time is still that of the bound.
  double longest = longest_of(problem);
  if (problem.varlen && problem.max_seqlen >= problem.T)
    longest = std::min(longest, 2.0 * static_cast<double>(problem.T) / static_cast<double>(std::max<int64_t>(problem.N, 1)));
  Kind best = Kind::kLatency;
  for (int k = 1; k < kKinds; ++k) {
    const Kind kind = static_cast<Kind>(k);
    if (modelled_us(problem, caps, kind, longest) < modelled_us(problem, caps, best, longest)) best = kind;
  }
  plan.modelled_us = modelled_us(problem, caps, best, longest_of(problem));
  plan.v_split = splits_of(best, static_cast<int>(problem.K));
  plan.stages = best == Kind::kStep ? 0 : config_of(best, static_cast<int>(problem.K)).stages;
  plan.tuning = {static_cast<int64_t>(best)};
  plan.workspace_bytes = 0;
  constexpr const char* kNames[kKinds] = {"latency", "throughput", "step"};
  config = std::string(kNames[static_cast<int>(best)]) + " v_split=" + std::to_string(plan.v_split);
  plan.why = "token by token, one launch, the state passes once";
  return plan;
}

#if HYLA_WITH_CUDA
Rows rows_of(const TensorView& t) { return {t.data, t.stride[0], t.stride[1], t.stride[2]}; }

Indices indices_of(const TensorView& t) {
  if (!t.defined()) return {nullptr, 0, false};
  return {t.data, t.stride[t.rank - 1], t.dtype == DType::kI64};
}

States states_of(const TensorView& t) {
  if (!t.defined()) return {nullptr, 0, 0, 0, 0, false, false};
  const int64_t per16 = 16 / size_of(t.dtype);
  const bool vec = reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.stride[0] % per16 == 0 && t.stride[1] % per16 == 0 && t.stride[2] == t.shape[3];
  return {t.data, t.shape[0], t.stride[0], t.stride[1], t.stride[2], t.dtype == DType::kBf16, vec};
}

Params params_of(const Plan& plan, const Args& args) {
  const Problem& problem = plan.problem;
  Params p{};
  p.q = rows_of(args.q), p.k = rows_of(args.k), p.v = rows_of(args.v), p.g = rows_of(args.g), p.beta = rows_of(args.beta), p.out = rows_of(args.out);
  if (args.A_log.defined()) p.A_log = args.A_log.as<const float>(), p.A_log_stride = args.A_log.stride[0];
  if (args.dt_bias.defined()) p.dt_bias = args.dt_bias.as<const float>(), p.bias_head = args.dt_bias.rank == 2 ? args.dt_bias.stride[0] : problem.K;
  p.cu_seqlens = indices_of(args.cu_seqlens);
  p.state_indices = indices_of(args.state_indices);
  p.checkpoint_offsets = indices_of(args.checkpoint_offsets);
  p.checkpoint_indices = indices_of(args.checkpoint_indices);
  if (args.has_initial_state.defined()) p.flags = args.has_initial_state.as<const uint8_t>(), p.flags_stride = args.has_initial_state.stride[0];
  p.initial = states_of(args.initial_state), p.final = states_of(args.final_state), p.checkpoints = states_of(args.checkpoints);
  if (args.checkpoint_offsets.defined()) p.offsets_per_sequence = args.checkpoint_offsets.shape[1], p.offsets_stride = args.checkpoint_offsets.stride[0];
  p.checkpoint_rows = args.checkpoint_indices.defined() ? args.checkpoint_indices.shape[0] : args.checkpoints.defined() ? args.checkpoints.shape[0] : 0;
  p.lowest_slot = args.lowest_valid_slot;
  p.B = problem.B, p.T = problem.T, p.N = problem.N;
  p.H = static_cast<int>(problem.H), p.HV = static_cast<int>(problem.HV);
  p.lower_bound = problem.lower_bound, p.scale = problem.scale;
  element_of(problem.qkv, p.qkv), element_of(problem.g, p.gate_type), element_of(problem.beta, p.beta_type), element_of(problem.out, p.out_type);
  p.gate = static_cast<int8_t>(problem.gate);
  p.v_first = problem.state_layout == StateLayout::kVFirst;
  p.qk_l2norm = problem.qk_l2norm, p.beta_is_logits = problem.beta_is_logits, p.beta_doubled = problem.beta_doubled;
  return p;
}

Status run_here(const Plan& plan, const Args& args, Workspace, Stream stream) {
  const Kind kind = static_cast<Kind>(plan.tuning[0]);
  const int dim = static_cast<int>(plan.problem.K);
  const Params params = params_of(plan, args);
  const int64_t blocks = plan.problem.N * plan.problem.HV * splits_of(kind, dim);  // along x, which can_run keeps within 2^31 - 1
  if (blocks == 0) return {};
  const bool packed = params.qkv == Element::kBf16 && params.gate_type != Element::kFp16 && params.beta_type != Element::kFp16 && plan.problem.aligned16;
  cuda::DeviceGuard guard(plan.problem.device);
  HYLA_RETURN_IF_ERROR(guard.status());
  return launch_recurrent(kind, dim, packed, params, blocks, stream);
}
#else
Status run_here(const Plan&, const Args&, Workspace, Stream) { return Status::unsupported("variant", "a build of hyla with its CUDA kernels", kName); }
#endif

}  // namespace

const Variant& variant() {
  static const Variant v{kName, can_run_here, propose_here, run_here};
  return v;
}

}  // namespace hyla::kda::sm80_recurrent
