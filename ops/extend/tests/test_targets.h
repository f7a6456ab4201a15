// What property tests run on: every backend of this machine with each of its variants, and helpers over their outputs.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/numeric.h"
#include "ops/extend/tests/case_runner.h"
#include "testing/backends.h"

namespace hyla::extend {

struct Target {
  std::string backend, variant;  // an empty variant: the planner's choice
};
inline void PrintTo(const Target& t, std::ostream* os) { *os << t.backend << " " << t.variant; }

inline std::vector<Target> all_targets() {
  std::vector<Target> targets;
  for (const testing::Backend* backend : testing::present_backends()) {
    targets.push_back({backend->name(), ""});
    for (const std::string& variant : variants())
      if ((variant == "cpu") == (backend->name() == "cpu")) targets.push_back({backend->name(), variant});
  }
  return targets;
}

class OnTargets : public ::testing::TestWithParam<Target> {
 protected:
  // Skips what the variant does not take; a planner's own choice on the CPU must take everything.
  Outputs compute_or_skip(const CaseData& data, bool& skip) {
    Outputs o = compute(data, {GetParam().variant, 0}, *testing::backend_named(GetParam().backend));
    skip = !o.status.ok() && (o.status.code() == Code::kUnsupported || (on_gpu() && o.status.argument() == "out.dtype"));
    EXPECT_TRUE(o.status.ok() || (skip && on_gpu())) << o.status.message();
    return o;
  }
  bool on_gpu() const { return GetParam().backend != "cpu"; }
};
#define HYLA_COMPUTE(name, data)                           \
  bool name##_skip = false;                                \
  const Outputs name = compute_or_skip(data, name##_skip); \
  if (name##_skip) GTEST_SKIP() << name.status.message()

#define HYLA_INSTANTIATE(suite)                                               \
  INSTANTIATE_TEST_SUITE_P(Extend, suite, ::testing::ValuesIn(all_targets()), \
                           [](const auto& info) { return info.param.backend + "_" + (info.param.variant.empty() ? "auto" : info.param.variant); })

inline double rel_l2(const std::vector<double>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) error += (got[i] - want[i]) * (got[i] - want[i]), size += want[i] * want[i];
  return size > 0 ? std::sqrt(error / size) : std::sqrt(error);
}
inline double max_lse_error(const std::vector<double>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != want[i]) worst = std::max(worst, std::abs(got[i] - want[i]) / std::max(1.0, std::abs(want[i])));
  return worst;
}

// Further tensors whose memory belongs to `data`.
inline TensorView add_tensor(CaseData& data, DType dtype, std::initializer_list<int64_t> shape, uint8_t fill = 0xFF) {
  TensorView t = contiguous(nullptr, dtype, shape);
  data.buffers.emplace_back(static_cast<size_t>(std::max<int64_t>(t.numel() * size_of(dtype), 1)), fill);
  t.data = data.buffers.back().data();
  return t;
}
inline TensorView add_integers(CaseData& data, DType dtype, const std::vector<int64_t>& values) {
  TensorView t = add_tensor(data, dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kI64) t.as<int64_t>()[i] = values[i];
    else t.as<int32_t>()[i] = static_cast<int32_t>(values[i]);
  }
  return t;
}
inline std::vector<int64_t> integers_of(const TensorView& t) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < t.shape[0]; ++i) values.push_back(load_index(t.data, t.dtype, i));
  return values;
}
// Fresh outputs for data whose number of rows changed.
inline void renew_outputs(CaseData& data) {
  const Args a = data.args;
  data.out_buffer = data.buffers.size();
  data.args.out = add_tensor(data, a.out.dtype, {a.q.shape[0], a.q.shape[1], a.v.shape[2]});
  if (!a.lse.defined()) return;
  data.lse_buffer = data.buffers.size();
  data.args.lse = add_tensor(data, DType::kFp32, {a.q.shape[0], a.q.shape[1]});
}
// Row `from` of a token tensor to row `to` of another; contiguous rows on both sides.
inline void copy_row(const TensorView& from, int64_t from_row, const TensorView& to, int64_t to_row) {
  const int64_t size = size_of(from.dtype);
  for (int64_t h = 0; h < from.shape[from.rank - 2]; ++h)
    std::memcpy(to.as<uint8_t>() + (to_row * to.stride[0] + h * to.stride[to.rank - 2]) * size,
                from.as<uint8_t>() + (from_row * from.stride[0] + h * from.stride[from.rank - 2]) * size,
                static_cast<size_t>(from.shape[from.rank - 1] * size));
}
// The requests `order` of `data` (no masks), packed in that order.
inline CaseData select_requests(const CaseData& data, const std::vector<int64_t>& order) {
  CaseData result;
  result.buffers = data.buffers;  // the pool stays where it is
  const Args& a = data.args;
  const std::vector<int64_t> qo = integers_of(a.qo_indptr), kv = integers_of(a.kv_indptr), indices = integers_of(a.kv_indices);
  const auto moved = [&](TensorView t) {
    for (size_t b = 0; b < data.buffers.size(); ++b)
      if (t.as<uint8_t>() >= data.buffers[b].data() && t.as<uint8_t>() < data.buffers[b].data() + data.buffers[b].size())
        t.data = result.buffers[b].data() + (t.as<uint8_t>() - data.buffers[b].data());
    return t;
  };
  Args& r = result.args;
  r = a;
  r.k_buffer = moved(a.k_buffer), r.v_buffer = moved(a.v_buffer);
  if (a.sinks.defined()) r.sinks = moved(a.sinks);
  std::vector<int64_t> new_qo{0}, new_kv{0}, new_indices;
  for (const int64_t i : order) {
    new_qo.push_back(new_qo.back() + qo[i + 1] - qo[i]), new_kv.push_back(new_kv.back() + kv[i + 1] - kv[i]);
    new_indices.insert(new_indices.end(), indices.begin() + kv[i], indices.begin() + kv[i + 1]);
  }
  const int64_t rows = new_qo.back();
  r.q = add_tensor(result, a.q.dtype, {rows, a.q.shape[1], a.q.shape[2]});
  r.k = add_tensor(result, a.k.dtype, {rows, a.k.shape[1], a.k.shape[2]});
  const bool view = a.v.data == a.k.data;
  r.v = view ? r.k : add_tensor(result, a.v.dtype, {rows, a.v.shape[1], a.v.shape[2]});
  if (view) r.v.shape[2] = a.v.shape[2];
  int64_t row = 0;
  for (const int64_t i : order)
    for (int64_t q = qo[i]; q < qo[i + 1]; ++q, ++row) {
      copy_row(a.q, q, r.q, row), copy_row(a.k, q, r.k, row);
      if (!view) copy_row(a.v, q, r.v, row);
    }
  r.qo_indptr = add_integers(result, a.qo_indptr.dtype, new_qo), r.kv_indptr = add_integers(result, a.kv_indptr.dtype, new_kv);
  r.kv_indices = add_integers(result, a.kv_indices.dtype, new_indices);
  renew_outputs(result);
  return result;
}

}  // namespace hyla::extend
