#include "benchlib/inputs.h"
#include "benchlib/values.h"

namespace hyla::bench {
namespace {

// Builds the arguments; `add(dtype, shape)` supplies each tensor.
template <class Add>
kda::Args arguments(const KdaShape& s, Add&& add) {
  const int64_t N = s.seqlens.empty() ? s.B : static_cast<int64_t>(s.seqlens.size());
  const DType state = s.bf16_state ? DType::kBf16 : DType::kFp32;
  kda::Args a;
  a.q = add(DType::kBf16, {s.B, s.T, s.H, s.D});
  a.k = add(DType::kBf16, {s.B, s.T, s.H, s.D});
  a.v = add(DType::kBf16, {s.B, s.T, s.HV, s.D});
  a.g = add(s.gate == kda::Gate::kGiven ? DType::kFp32 : DType::kBf16, {s.B, s.T, s.HV, s.D});
  a.beta = add(DType::kBf16, {s.B, s.T, s.HV});
  if (s.gate != kda::Gate::kGiven) {
    a.A_log = add(DType::kFp32, {s.HV});
    a.dt_bias = add(DType::kFp32, {s.HV, s.D});
  }
  if (!s.seqlens.empty()) a.cu_seqlens = add(DType::kI64, {N + 1});
  a.initial_state = add(state, {N, s.HV, s.D, s.D});
  a.final_state = add(state, {N, s.HV, s.D, s.D});
  a.out = add(DType::kBf16, {s.B, s.T, s.HV, s.D});
  if (s.checkpoints) {
    int64_t rows = s.seqlens.empty() ? s.B * (s.T / 64) : 0;
    for (const int64_t length : s.seqlens) rows += length / 64, a.max_seqlen = std::max(a.max_seqlen, length);
    a.checkpoints = add(state, {rows, s.HV, s.D, s.D});
  }
  for (const int64_t length : s.seqlens) a.max_seqlen = std::max(a.max_seqlen, length);
  a.gate = s.gate;
  a.beta_is_logits = true;
  return a;
}

}  // namespace

KdaCase make_inputs(const KdaShape& s) {
  KdaCase c;
  c.args = arguments(s, [&](DType dtype, std::initializer_list<int64_t> shape) { return c.add(dtype, shape, 0xFF); });
  const kda::Args& a = c.args;
  uint64_t seed = 1;
  for (const TensorView* t : {&a.q, &a.k, &a.v, &a.g, &a.beta}) fill_normal(t->data, t->dtype, t->numel(), seed++);
  fill_normal(a.initial_state.data, a.initial_state.dtype, a.initial_state.numel(), seed++, 0.1f);
  if (a.A_log.defined()) fill_normal(a.A_log.data, DType::kFp32, a.A_log.numel(), seed++, 0.5f);
  if (a.dt_bias.defined()) fill_normal(a.dt_bias.data, DType::kFp32, a.dt_bias.numel(), seed++);
  if (s.gate == kda::Gate::kGiven)
    for (int64_t i = 0; i < a.g.numel(); ++i) a.g.as<float>()[i] = -std::abs(a.g.as<float>()[i]);
  if (a.cu_seqlens.defined()) {
    int64_t* ends = a.cu_seqlens.as<int64_t>();
    ends[0] = 0;
    for (size_t i = 0; i < s.seqlens.size(); ++i) ends[i + 1] = ends[i] + s.seqlens[i];
  }
  return c;
}

kda::Args bare_args(const KdaShape& s, Device device) {
  uintptr_t next = uintptr_t{1} << 20;  // addresses that look like allocations of the tensors' sizes
  return arguments(s, [&](DType dtype, std::initializer_list<int64_t> shape) {
    const TensorView t = contiguous(reinterpret_cast<void*>(next), dtype, shape, device);
    next += (static_cast<uintptr_t>(t.numel() * size_of(dtype)) / 256 + 1) * 256;
    return t;
  });
}

}  // namespace hyla::bench
