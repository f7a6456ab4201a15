// Joins the parts of rows whose keys were cut: weights by LSE, in the order of the parts; adds the sink.
#pragma once
#include "kernel.cuh"

namespace hyla::extend::sm80_mma {

constexpr int kMergeThreads = 128;

// One block a row (token and query head).
template <class T>
__global__ void __launch_bounds__(kMergeThreads) merge(const __grid_constant__ Params p, int m, int n) {
  const int64_t heads = int64_t(p.Hkv) * p.group, token = blockIdx.x / heads, head = blockIdx.x % heads;
  // The request of this token: the last whose first row is not behind it.
  int lo = 0, hi = p.batch;
  while (hi - lo > 1) {
    const int mid = (lo + hi) / 2;
    if (read(p.qo_indptr, mid) <= token) lo = mid;
    else hi = mid;
  }
  Item it;
  it.request = lo, it.head = static_cast<int>(head / p.group);
  it.token0 = clamp(read(p.qo_indptr, lo), 0, p.rows);
  it.tokens = clamp(read(p.qo_indptr, lo + 1), it.token0, p.rows) - it.token0;
  if (token < it.token0 || token >= it.token0 + it.tokens) return;  // a row past the last request
  it.prefix0 = clamp(read(p.kv_indptr, lo), 0, p.prefix_capacity);
  it.prefix = clamp(read(p.kv_indptr, lo + 1), it.prefix0, p.prefix_capacity) - it.prefix0;
  it.rows = it.tokens * p.group;
  it.row0 = ((token - it.token0) * p.group + head % p.group) / m * m;
  find_keys(p, m, n, it);
  const int parts = parts_of(it.tiles, p.splits);
  if (parts == 1) return;  // the row was finished by its block

  const int64_t row_id = token * heads + head;
  const float* lse = p.partial_lse + row_id * p.splits;
  float top = -INFINITY;
  for (int i = 0; i < parts; ++i) top = fmaxf(top, lse[i]);
  float sink = -INFINITY;
  if (p.sinks != nullptr)
    sink = kLog2e * (p.sinks_bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(p.sinks)[head]) : static_cast<const float*>(p.sinks)[head]);
  const float base = fmaxf(top, sink) == -INFINITY ? 0.0f : fmaxf(top, sink);
  float sum = exp2f(sink - base);
  for (int i = 0; i < parts; ++i) sum += exp2f(lse[i] - base);
  const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
  for (int column = threadIdx.x; column < p.Lv; column += kMergeThreads) {
    float x = 0.0f;
    for (int i = 0; i < parts; ++i)
      if (lse[i] != -INFINITY) x += exp2f(lse[i] - base) * p.partial_out[(row_id * p.splits + i) * p.Lv + column];
    static_cast<T*>(p.out)[token * p.out_token + head * p.out_head + column] = T(x * inverse);
  }
  if (threadIdx.x == 0 && p.lse != nullptr) p.lse[token * p.lse_token + head * p.lse_head] = sum > 0.0f ? (base + log2f(sum)) * kLn2 : -INFINITY;
}

}  // namespace hyla::extend::sm80_mma
