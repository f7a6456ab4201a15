#include <numeric>

#include "benchlib/inputs.h"
#include "benchlib/values.h"

namespace hyla::bench {
namespace {

int64_t pool_pages(const ExtendShape& s) { return s.batch * ((s.prefix + s.page_size - 1) / s.page_size) + 4; }  // some belong to nobody

template <class Add>
extend::Args arguments(const ExtendShape& s, Add&& add) {
  const int64_t rows = s.batch * s.n, pages = pool_pages(s);
  const auto pool = [&](int64_t columns) {
    return s.page_size == 1 ? add(s.dtype, {pages, s.Hkv, columns}) : add(s.dtype, {pages, s.page_size, s.Hkv, columns});
  };
  const auto first_columns = [&](TensorView t) {
    t.shape[t.rank - 1] = s.Lv;
    return t;
  };
  extend::Args a;
  a.q = add(s.dtype, {rows, s.Hq, s.Lq});
  a.k = add(s.dtype, {rows, s.Hkv, s.Lq});
  a.v = s.latent ? first_columns(a.k) : add(s.dtype, {rows, s.Hkv, s.Lv});
  a.k_buffer = pool(s.Lq);
  a.v_buffer = s.latent ? first_columns(a.k_buffer) : pool(s.Lv);
  a.qo_indptr = add(DType::kI32, {s.batch + 1});
  a.kv_indptr = add(DType::kI32, {s.batch + 1});
  a.kv_indices = add(DType::kI64, {s.batch * s.prefix});
  if (s.sinks) a.sinks = add(DType::kFp32, {s.Hq});
  a.out = add(s.dtype, {rows, s.Hq, s.Lv});
  a.lse = add(DType::kFp32, {rows, s.Hq});
  a.max_extend = s.n, a.max_prefix = s.prefix;
  a.sliding_window = s.window;
  a.logit_cap = static_cast<float>(s.cap);
  return a;
}

}  // namespace

ExtendCase make_inputs(const ExtendShape& s) {
  ExtendCase c;
  c.args = arguments(s, [&](DType dtype, std::initializer_list<int64_t> shape) { return c.add(dtype, shape, 0xFF); });
  const extend::Args& a = c.args;
  uint64_t seed = 11;
  for (const TensorView* t : {&a.q, &a.k, &a.k_buffer}) fill_normal(t->data, t->dtype, t->numel(), seed++);
  if (!s.latent) fill_normal(a.v.data, a.v.dtype, a.v.numel(), seed++), fill_normal(a.v_buffer.data, a.v_buffer.dtype, a.v_buffer.numel(), seed++);
  if (s.sinks) fill_normal(a.sinks.data, DType::kFp32, a.sinks.numel(), seed++);
  std::vector<int64_t> pages(static_cast<size_t>(pool_pages(s)));
  std::iota(pages.begin(), pages.end(), int64_t{0});
  for (size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[mixed(i) % i]);
  size_t page = 0;
  for (int64_t request = 0; request <= s.batch; ++request) {
    a.qo_indptr.as<int32_t>()[request] = static_cast<int32_t>(request * s.n);
    a.kv_indptr.as<int32_t>()[request] = static_cast<int32_t>(request * s.prefix);
    if (request == s.batch) break;
    for (int64_t token = 0; token < s.prefix; ++token) {
      a.kv_indices.as<int64_t>()[request * s.prefix + token] = pages[page] * s.page_size + token % s.page_size;
      if (token % s.page_size == s.page_size - 1 || token == s.prefix - 1) ++page;
    }
  }
  return c;
}

extend::Args bare_args(const ExtendShape& s, Device device) {
  uintptr_t next = uintptr_t{1} << 20;
  return arguments(s, [&](DType dtype, std::initializer_list<int64_t> shape) {
    const TensorView t = contiguous(reinterpret_cast<void*>(next), dtype, shape, device);
    next += (static_cast<uintptr_t>(t.numel() * size_of(dtype)) / 256 + 1) * 256;
    return t;
  });
}

}  // namespace hyla::bench
