#include <algorithm>

#include "benchlib/check.h"
#include "benchlib/errors.h"
#include "core/numeric.h"
#include "ops/kda/reference.h"

namespace hyla::bench {
namespace {

struct Sums {
  ErrorSum out, state, checkpoints;
};
std::vector<Measured> measured(const kda::Args& a, const Sums& sums) {
  const double tolerance = kda_tolerance();
  std::vector<Measured> list{{"output", sums.out.rel_l2(), sums.out.max_abs, tolerance}};
  if (a.final_state.defined()) list.push_back({"state", sums.state.rel_l2(), sums.state.max_abs, tolerance});
  if (a.checkpoints.defined()) list.push_back({"checkpoints", sums.checkpoints.rel_l2(), sums.checkpoints.max_abs, tolerance});
  return list;
}

// `count` extents from `begin` along dimension `dim`.
TensorView part(TensorView t, int dim, int64_t begin, int64_t count) {
  if (!t.defined()) return t;
  t.data = t.as<char>() + begin * t.stride[dim] * size_of(t.dtype);
  t.shape[dim] = count;
  return t;
}

void add(ErrorSum& sum, const TensorView& got, const std::vector<double>& want) {
  const std::vector<double> values = as_doubles(got);
  for (size_t i = 0; i < values.size(); ++i)
    if (i < want.size() && !std::isnan(want[i])) sum.add(values[i], want[i]);  // NaN: what the contract leaves untouched
}

}  // namespace

std::vector<Measured> check_all(const kda::Args& a) {
  const kda::ReferenceResult want = kda::reference(a);
  Sums sums;
  add(sums.out, a.out, want.out);
  if (a.final_state.defined()) add(sums.state, a.final_state, want.final_state);
  if (a.checkpoints.defined()) add(sums.checkpoints, a.checkpoints, want.checkpoints);
  return measured(a, sums);
}

std::vector<Measured> check_sample(const kda::Args& a, int64_t budget) {
  const int64_t N = a.cu_seqlens.defined() ? a.cu_seqlens.shape[0] - 1 : a.q.shape[0], HV = a.v.shape[2], group = HV / a.q.shape[2];
  const auto end_of = [&](int64_t n) { return load_index(a.cu_seqlens.data, a.cu_seqlens.dtype, n * a.cu_seqlens.stride[0]); };
  std::vector<int64_t> sequences{N - 1, 0}, heads{HV - 1, 0};
  if (N == 1) sequences.pop_back();
  if (HV == 1) heads.pop_back();
  Sums sums;
  int64_t spent = 0;
  for (const int64_t n : sequences)
    for (const int64_t h : heads) {
      const int64_t begin = a.cu_seqlens.defined() ? end_of(n) : 0, length = a.cu_seqlens.defined() ? end_of(n + 1) - begin : a.q.shape[1];
      if (spent > 0 && spent + length > budget) continue;
      spent += length;
      const int64_t batch = a.cu_seqlens.defined() ? 0 : n;
      const auto slice = [&](const TensorView& t, int64_t head) { return part(part(part(t, 0, batch, 1), 1, begin, length), 2, head, 1); };
      int64_t first_checkpoint = 0;
      for (int64_t m = 0; m < n; ++m) first_checkpoint += (a.cu_seqlens.defined() ? end_of(m + 1) - end_of(m) : length) / 64;
      kda::Args s = a;
      s.q = slice(a.q, h / group), s.k = slice(a.k, h / group), s.v = slice(a.v, h), s.g = slice(a.g, h), s.beta = slice(a.beta, h), s.out = slice(a.out, h);
      s.cu_seqlens = {}, s.max_seqlen = 0;
      s.A_log = part(a.A_log, 0, h, 1);
      s.dt_bias = a.dt_bias.rank == 2 ? part(a.dt_bias, 0, h, 1) : part(a.dt_bias, 0, h * a.q.shape[3], a.q.shape[3]);
      const auto state_of = [&](const TensorView& t) { return part(part(t, 0, n, 1), 1, h, 1); };
      s.initial_state = state_of(a.initial_state), s.final_state = state_of(a.final_state);
      s.checkpoints = part(part(a.checkpoints, 0, first_checkpoint, length / 64), 1, h, 1);
      const kda::ReferenceResult want = kda::reference(s);
      add(sums.out, s.out, want.out);
      if (a.final_state.defined()) add(sums.state, s.final_state, want.final_state);
      if (a.checkpoints.defined()) add(sums.checkpoints, s.checkpoints, want.checkpoints);
    }
  return measured(a, sums);
}

}  // namespace hyla::bench
