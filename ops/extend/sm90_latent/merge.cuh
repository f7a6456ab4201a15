// Merges the parts of row tiles whose keys were cut (see worklist.h).
#pragma once
#include "item.cuh"
#include "store.cuh"
#include "worklist.h"

namespace hyla::extend::sm90_latent {

constexpr int kMergeColumnThreads = kLv / 4;
constexpr int kMergeGroups = 4;  // of threads, which take parts in turn
constexpr int kMergeThreads = kMergeColumnThreads * kMergeGroups;
constexpr int kMergeWeights = 512;  // parts in one pass

// O = sum_i 2^(lse_i - lse) O_i in a fixed order; parts that saw no key are not read. A block takes a row at a time.
template <class Elem>
__global__ void __launch_bounds__(kMergeThreads) merge_parts(const __grid_constant__ KernelParams p, const MergeItem* merges, const int* merge_count) {
  __shared__ float weight[kMergeWeights];
  __shared__ float4 partial[kMergeGroups][kMergeColumnThreads];
  const int t = threadIdx.x, column = t % kMergeColumnThreads, group = t / kMergeColumnThreads;
  const int rows = *merge_count * kTileM;
  for (int i = blockIdx.x; i < rows; i += gridDim.x) {
    const MergeItem merge = merges[i / kTileM];
    const Lengths len = request_lengths(p, merge.request);
    const int r = i % kTileM, row = merge.m_tile * kTileM + r;
    if (row >= len.n * p.group) continue;  // the whole block
    const int64_t first = int64_t(merge.first_part) * kTileM + r;
    float m = -INFINITY;
    for (int k = 0; k < merge.parts; ++k) m = fmaxf(m, __ldg(p.part_lse + first + int64_t(k) * kTileM));
    float l = 0.0f;
    float4 o = {};
    for (int base = 0; base < merge.parts; base += kMergeWeights) {
      const int count = min(kMergeWeights, merge.parts - base);
      __syncthreads();
      if (t < count) {
        const float lse = p.part_lse[first + int64_t(base + t) * kTileM];
        weight[t] = lse == -INFINITY ? 0.0f : dev::exp2_approx(lse - m);
      }
      __syncthreads();
      for (int k = 0; k < count; ++k) l += weight[k];
#pragma unroll 4
      for (int k = group; k < count; k += kMergeGroups) {
        const float w = weight[k];
        if (w == 0.0f) continue;
        const float4 x = __ldcs(reinterpret_cast<const float4*>(p.part_out + (first + int64_t(base + k) * kTileM) * kLv) + column);
        o.x = fmaf(w, x.x, o.x);
        o.y = fmaf(w, x.y, o.y);
        o.z = fmaf(w, x.z, o.z);
        o.w = fmaf(w, x.w, o.w);
      }
    }
    partial[group][column] = o;
    __syncthreads();
    if (group > 0) continue;
    for (int g = 1; g < kMergeGroups; ++g) {
      const float4 x = partial[g][column];
      o = {o.x + x.x, o.y + x.y, o.z + x.z, o.w + x.w};
    }
    const int token = row / p.group, head = merge.head * p.group + row - token * p.group;
    const RowEnd end = end_row(m, l, p.sinks != nullptr, p.sinks != nullptr ? load_sink(p, head) : 0.0f);
    *reinterpret_cast<uint2*>(p.out + (len.q_row + token) * p.out_stride.token + head * p.out_stride.head + column * 8) =
        make_uint2(Elem::pack(o.x * end.factor, o.y * end.factor), Elem::pack(o.z * end.factor, o.w * end.factor));
    if (t == 0 && p.lse != nullptr)
      *reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(p.lse) + (len.q_row + token) * p.lse_stride.token + head * p.lse_stride.head) =
          end.lse * 0.6931471805599453f;
  }
}

}  // namespace hyla::extend::sm90_latent
