#include <algorithm>
#include <cstring>

#include "benchlib/check.h"
#include "benchlib/errors.h"
#include "core/numeric.h"
#include "ops/extend/reference.h"

namespace hyla::bench {
namespace {

std::vector<Measured> measured(const extend::Args& a, const ErrorSum& out, const ErrorSum& lse) {
  std::vector<Measured> list{{"output", out.rel_l2(), out.max_abs, extend_tolerance(a.q.dtype, a.out.dtype)}};
  if (a.lse.defined()) {
    list.push_back({"lse", lse.rel_l2(), lse.max_abs, kLseTolerance, true, lse.max_scaled});
    if (lse.not_finite > 0) list.back().max_scaled = list.back().max_abs = INFINITY;
  }
  return list;
}

int64_t at(const TensorView& t, int64_t i) { return load_index(t.data, t.dtype, i * t.stride[0]); }

// Copies a row of `bytes` to the end of a growing buffer.
void append(std::vector<char>& to, const TensorView& t, int64_t row, int64_t head) {
  int64_t offset = t.rank == 4 ? row / t.shape[1] * t.stride[0] + row % t.shape[1] * t.stride[1] + head * t.stride[2] : row * t.stride[0] + head * t.stride[1];
  const char* from = t.as<char>() + offset * size_of(t.dtype);
  to.insert(to.end(), from, from + t.shape[t.rank - 1] * size_of(t.dtype));
}

}  // namespace

std::vector<Measured> check_all(const extend::Args& a) {
  const extend::ReferenceResult want = extend::reference(a);
  ErrorSum out, lse;
  const std::vector<double> got = as_doubles(a.out), got_lse = a.lse.defined() ? as_doubles(a.lse) : std::vector<double>();
  const size_t Lv = static_cast<size_t>(a.v.shape[2]);
  for (size_t row = 0; row < want.lse.size(); ++row) {
    if (std::isnan(want.lse[row])) continue;  // a row of no request
    for (size_t c = 0; c < Lv; ++c) out.add(got[row * Lv + c], want.out[row * Lv + c]);
    if (!got_lse.empty()) lse.add(got_lse[row], want.lse[row]);
  }
  return measured(a, out, lse);
}

// A sampled query becomes a request of one new token whose prefix is everything before it, gathered into a pool of its own: the same positions, keys
// and window, at the cost of one row.
std::vector<Measured> check_sample(const extend::Args& a, int64_t budget) {
  const int64_t batch = a.qo_indptr.shape[0] - 1, Hq = a.q.shape[1], group = Hq / a.k.shape[1], Lq = a.q.shape[2], Lv = a.v.shape[2];
  ErrorSum out, lse;
  std::vector<int64_t> heads{0};
  if (Hq > 1) heads.push_back(Hq - 1);
  std::vector<int64_t> requests{0};
  if (batch > 2) requests.push_back(batch / 2);
  if (batch > 1) requests.push_back(batch - 1);
  for (const int64_t request : requests)
    for (const int64_t head : heads) {
      const int64_t first = at(a.qo_indptr, request), n = at(a.qo_indptr, request + 1) - first;
      const int64_t listed = at(a.kv_indptr, request), prefix = at(a.kv_indptr, request + 1) - listed, kv = head / group;
      if (n == 0) continue;
      std::vector<char> keys, values, q, k, v;
      for (int64_t i = 0; i < prefix; ++i)
        append(keys, a.k_buffer, at(a.kv_indices, listed + i), kv), append(values, a.v_buffer, at(a.kv_indices, listed + i), kv);
      for (int64_t i = 0; i < n; ++i) append(keys, a.k, first + i, kv), append(values, a.v, first + i, kv);
      const int64_t most = std::max<int64_t>(1, budget / static_cast<int64_t>(heads.size() * requests.size()) / (prefix + n));
      const int64_t count = std::clamp<int64_t>(most, std::min<int64_t>(n, 4), n);
      std::vector<int64_t> rows, qo{0}, kvp{0}, indices;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = count == 1 ? n - 1 : i * (n - 1) / (count - 1);
        rows.push_back(row);
        append(q, a.q, first + row, head), append(k, a.k, first + row, kv), append(v, a.v, first + row, kv);
        for (int64_t key = 0; key < prefix + row; ++key) indices.push_back(key);
        qo.push_back(i + 1), kvp.push_back(static_cast<int64_t>(indices.size()));
      }
      extend::Args s = a;
      s.q = contiguous(q.data(), a.q.dtype, {count, 1, Lq}), s.k = contiguous(k.data(), a.k.dtype, {count, 1, Lq}),
      s.v = contiguous(v.data(), a.v.dtype, {count, 1, Lv});
      s.k_buffer = contiguous(keys.data(), a.k.dtype, {prefix + n, 1, Lq}), s.v_buffer = contiguous(values.data(), a.v.dtype, {prefix + n, 1, Lv});
      s.qo_indptr = contiguous(qo.data(), DType::kI64, {count + 1}), s.kv_indptr = contiguous(kvp.data(), DType::kI64, {count + 1});
      s.kv_indices = contiguous(indices.data(), DType::kI64, {static_cast<int64_t>(indices.size())});
      if (a.sinks.defined()) {
        s.sinks.data = a.sinks.as<char>() + head * a.sinks.stride[0] * size_of(a.sinks.dtype);
        s.sinks.shape[0] = 1;
      }
      s.max_extend = s.max_prefix = 0;
      const extend::ReferenceResult want = extend::reference(s);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = first + rows[static_cast<size_t>(i)];
        for (int64_t c = 0; c < Lv; ++c)
          out.add(load_float(a.out.data, a.out.dtype, row * a.out.stride[0] + head * a.out.stride[1] + c), want.out[static_cast<size_t>(i * Lv + c)]);
        if (a.lse.defined()) lse.add(load_float(a.lse.data, DType::kFp32, row * a.lse.stride[0] + head * a.lse.stride[1]), want.lse[static_cast<size_t>(i)]);
      }
    }
  return measured(a, out, lse);
}

}  // namespace hyla::bench
