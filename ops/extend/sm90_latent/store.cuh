// The end of an item: row sums of both warpgroups, sink, normalisation, output and LSE - or the partial results of one part.
#pragma once
#include "smem.cuh"
#include "traits.cuh"

namespace hyla::extend::sm90_latent {

__device__ __forceinline__ float load_sink(const KernelParams& p, int head) {
  if (p.sinks_bf16) return __uint_as_float(uint32_t(__ldg(static_cast<const unsigned short*>(p.sinks) + head)) << 16);
  return __ldg(static_cast<const float*>(p.sinks) + head);
}

// Factor of O and base-2 LSE of a row with maximum m and sum l. Empty rows: 0 and -inf, or the sink's logit.
struct RowEnd {
  float factor, lse;
};
__device__ __forceinline__ RowEnd end_row(float m, float l, bool has_sink, float sink) {
  const float sink2 = has_sink ? sink * 1.4426950408889634f : -INFINITY;
  const float top = fmaxf(m, sink2);
  if (top == -INFINITY) return {0.0f, -INFINITY};
  const float mine = dev::exp2_approx(m - top);
  const float total = l * mine + dev::exp2_approx(sink2 - top);
  return {mine / total, top + __log2f(total)};
}

template <class T, int kWarpgroup>
__device__ __forceinline__ void store_rows(const KernelParams& p, SharedStorage<T>& s, const Item& item, typename T::Output& o, const float (&m)[2],
                                           float (&l)[2], int parity, int warp, int lane) {
  const int first = warp * 16 + (lane >> 2);
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    l[e] += __shfl_xor_sync(0xffffffffu, l[e], 1);
    l[e] += __shfl_xor_sync(0xffffffffu, l[e], 2);
    if ((lane & 3) == 0) s.row_sum[parity][kWarpgroup][first + 8 * e] = l[e];
  }
  dev::named_sync(kConsumers, 256);
  const bool saw_prefix = item.end > item.new_tiles && item.end > item.begin;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int r = first + 8 * e;
    if (r >= item.rows) continue;
    const int row = item.first_row + r, token = row / p.group, head = item.head * p.group + row - token * p.group;
    const bool whole = item.part < 0;
    const RowEnd end =
        end_row(m[e], s.row_sum[parity][0][r] + s.row_sum[parity][1][r], whole && p.sinks != nullptr, whole && p.sinks != nullptr ? load_sink(p, head) : 0.0f);
    const float factor = saw_prefix ? end.factor * p.v_scale : end.factor;
    const int column = kWarpgroup * 256 + 2 * (lane & 3);
    if (whole) {
      uint8_t* out = p.out + (item.q_row + token) * p.out_stride.token + head * p.out_stride.head + column * 2;
#pragma unroll
      for (int c = 0; c < T::kValueParts; ++c)
#pragma unroll
        for (int j = 0; j < T::kValueN / 8; ++j)
          *reinterpret_cast<uint32_t*>(out + c * T::kValueN * 2 + j * 16) = T::Elem::pack(o[c][4 * j + 2 * e] * factor, o[c][4 * j + 2 * e + 1] * factor);
      if (kWarpgroup == 0 && (lane & 3) == 0 && p.lse != nullptr)
        *reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(p.lse) + (item.q_row + token) * p.lse_stride.token + head * p.lse_stride.head) =
            end.lse * 0.6931471805599453f;
    } else {
      float* out = p.part_out + (int64_t(item.part) * kTileM + r) * kLv + column;
#pragma unroll
      for (int c = 0; c < T::kValueParts; ++c)
#pragma unroll
        for (int j = 0; j < T::kValueN / 8; ++j)
          *reinterpret_cast<float2*>(out + c * T::kValueN + j * 8) = make_float2(o[c][4 * j + 2 * e] * factor, o[c][4 * j + 2 * e + 1] * factor);
      if (kWarpgroup == 0 && (lane & 3) == 0) p.part_lse[int64_t(item.part) * kTileM + r] = end.lse;
    }
  }
}

}  // namespace hyla::extend::sm90_latent
