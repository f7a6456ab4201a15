// Any arguments: make_problem refuses them with a named argument, or they are consistent and can be planned for every chip.
#include "testing/fuzz/bytes.h"
#include "hyla/kda.h"

namespace {

using namespace hyla;
using fuzz::require;

kda::Args draw(fuzz::Bytes& in) {
  kda::Args a;
  const int64_t B = 1 + in.byte() % 3, T = in.byte() % 70, H = 1 + in.byte() % 3, HV = H * (1 + in.byte() % 3), K = in.flag() ? 128 : 64;
  const bool varlen = in.flag(), pool = in.flag();
  const int64_t N = varlen ? in.byte() % 5 : B, C = in.byte() % 9;
  size_t count = 0;
  const auto make = [&](DType dtype, std::initializer_list<int64_t> shape) { return in.change(contiguous(fuzz::place(count++), dtype, shape)); };
  a.q = make(DType::kBf16, {varlen ? 1 : B, T, H, K});
  a.k = make(DType::kBf16, {varlen ? 1 : B, T, H, K});
  a.v = make(DType::kBf16, {varlen ? 1 : B, T, HV, K});
  a.g = make(in.flag() ? DType::kBf16 : DType::kFp32, {varlen ? 1 : B, T, HV, K});
  a.beta = make(DType::kBf16, {varlen ? 1 : B, T, HV});
  a.out = make(DType::kBf16, {varlen ? 1 : B, T, HV, K});
  a.gate = static_cast<kda::Gate>(in.byte() % 3);
  if (in.flag()) a.A_log = make(DType::kFp32, {HV});
  if (in.flag()) a.dt_bias = in.flag() ? make(DType::kFp32, {HV, K}) : make(DType::kFp32, {HV * K});
  if (varlen) a.cu_seqlens = make(in.flag() ? DType::kI32 : DType::kI64, {N + 1});
  const int64_t slots = pool ? in.byte() : N;
  if (in.flag()) a.initial_state = make(DType::kFp32, {slots, HV, K, K});
  if (pool) a.state_indices = make(DType::kI32, {N});
  if (in.flag()) a.has_initial_state = make(DType::kBool, {N});
  if (in.flag()) a.final_state = in.flag() ? a.initial_state : make(DType::kBf16, {slots, HV, K, K});
  if (in.flag()) {
    a.checkpoints = make(DType::kFp32, {C, HV, K, K});
    if (in.flag()) a.checkpoint_offsets = make(DType::kI64, {N, 3});
    if (in.flag()) a.checkpoint_indices = make(DType::kI32, {C});
  }
  if (in.flag()) a.max_seqlen = in.number();
  if (in.flag()) a.lowest_valid_slot = in.number();
  if (in.flag()) a.lower_bound = in.real();
  if (in.flag()) a.scale = in.real();
  a.qk_l2norm = in.flag(), a.beta_is_logits = in.flag(), a.beta_doubled = in.flag();
  a.state_layout = in.flag() ? kda::StateLayout::kKFirst : kda::StateLayout::kVFirst;
  return a;
}

void check_consistent(const kda::Args& a, const kda::Problem& p) {
  require(a.q.rank == 4 && a.k.rank == 4 && a.v.rank == 4 && a.g.rank == 4 && a.beta.rank == 3 && a.out.rank == 4);
  for (const TensorView* t : {&a.q, &a.k}) require(t->shape[0] == p.B && t->shape[1] == p.T && t->shape[2] == p.H && t->shape[3] == p.K);
  for (const TensorView* t : {&a.v, &a.out}) require(t->shape[0] == p.B && t->shape[1] == p.T && t->shape[2] == p.HV && t->shape[3] == p.V);
  require(a.g.shape[1] == p.T && a.g.shape[2] == p.HV && a.g.shape[3] == p.K && a.beta.shape[1] == p.T && a.beta.shape[2] == p.HV);
  require(p.H > 0 && p.HV % p.H == 0 && p.K == p.V && (p.K == 64 || p.K == 128));
  require(p.N == (a.cu_seqlens.defined() ? a.cu_seqlens.shape[0] - 1 : p.B) && p.N >= 0);
  require(p.scale == p.scale && p.scale != 0 && p.max_seqlen >= 0 && p.max_seqlen <= p.T);
  if (p.gate == kda::Gate::kBounded) require(p.lower_bound >= -5.0f && p.lower_bound < 0.0f);
  if (p.gate == kda::Gate::kUnbounded) require(p.has_A_log);
  if (p.gate == kda::Gate::kGiven) require(!p.has_A_log && !p.has_dt_bias);
  for (const TensorView* t : {&a.q, &a.k, &a.v, &a.g, &a.beta, &a.out, &a.initial_state, &a.final_state, &a.checkpoints}) fuzz::require_sound(*t, p.device);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Bytes in(data, size);
  const kda::Args args = draw(in);
  const auto problem = kda::make_problem(args);
  if (!problem.ok()) {
    require(!problem.status().argument().empty() && !problem.status().expected().empty());
    return 0;
  }
  check_consistent(args, problem.value());
  for (const DeviceCaps& caps : known_devices()) {
    const auto plan = kda::plan(problem.value(), caps);
    if (plan.ok()) require(plan->problem == problem.value() && !plan->variant.empty() && !plan->str().empty());
  }
  return 0;
}
