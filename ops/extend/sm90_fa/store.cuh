// End of a unit: normalise, add the sink, write the output (or this part's partial result) and the LSE.
#pragma once
#include "softmax.cuh"

namespace hyla::extend::sm90_fa {

__device__ __forceinline__ float sink_log2(const Params& p, int head) {
  const float s = p.sinks_bf16 ? __uint_as_float(uint32_t(static_cast<const uint16_t*>(p.sinks)[head]) << 16) : static_cast<const float*>(p.sinks)[head];
  return s * 1.44269504f;
}

// Rows of the accumulator to global memory in 16-byte pieces: the four lanes of a row exchange words so that each holds 8 columns of one block.
template <class Element, int kCount>
__device__ __forceinline__ void store_rows(const float (&rO)[kCount], uint8_t* const (&row)[2], const bool (&valid)[2], int lane) {
  const int q = lane & 3;
  static_assert(kCount % 16 == 0);
#pragma unroll
  for (int j = 0; j < kCount / 16; ++j) {  // four blocks of eight columns
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t w[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) w[b] = Element::pack(rO[16 * j + 4 * b + 2 * r], rO[16 * j + 4 * b + 2 * r + 1]);
        // Transpose 4 x 4 over the quad: w[b] of lane q goes to word q of lane b.
#pragma unroll
      for (int step = 1; step <= 2; step <<= 1) {
        const bool up = q & step;
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          if (b & step) continue;
          const uint32_t give = up ? w[b] : w[b | step];
          const uint32_t got = __shfl_xor_sync(0xffffffffu, give, step);
          if (up) w[b] = got;
          else w[b | step] = got;
        }
      }
      if (valid[r]) *reinterpret_cast<uint4*>(row[r] + (32 * j + 8 * q) * 2) = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
}

template <class C>
__device__ __forceinline__ void finish_unit(const Params& p, const Unit& w, int head, float (&rO)[C::kLv / 2], Rows& rows, float v_scale, int row0, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows.sum[r] += __shfl_xor_sync(0xffffffffu, rows.sum[r], 1);
    rows.sum[r] += __shfl_xor_sync(0xffffffffu, rows.sum[r], 2);
  }
  const bool direct = w.slot < 0;
  float factor[2], lse[2];
  bool valid[2];
  int token[2], q_head[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = row0 + 8 * r;
    token[r] = row / p.group;
    q_head[r] = head * p.group + row % p.group;
    valid[r] = token[r] < w.tokens;
    float max = rows.max[r], sum = rows.sum[r], gain = 1.0f;
    if (direct && p.sinks != nullptr && valid[r]) {
      const float sink = sink_log2(p, q_head[r]), top = fmaxf(max, sink);
      gain = exp2_approx(max - top);
      sum = fmaf(sum, gain, exp2_approx(sink - top));
      max = top;
    }
    factor[r] = sum > 0.0f ? gain * v_scale / sum : 0.0f;
    lse[r] = sum > 0.0f ? max + log2f(sum) : -INFINITY;
  }
  scale_rows(rO, factor);
  if (direct) {
    uint8_t* row[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row[r] = static_cast<uint8_t*>(p.out) + (w.q_row + token[r]) * p.out_row + q_head[r] * p.out_head;
      if (p.lse != nullptr && valid[r] && (lane & 3) == 0) p.lse[(w.q_row + token[r]) * p.lse_row + q_head[r] * p.lse_head] = lse[r] * 0.693147181f;
    }
    store_rows<typename C::Element>(rO, row, valid, lane);
  } else {
    const int64_t slot = w.slot + int64_t(head) * w.parts;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!valid[r] || row0 + 8 * r >= p.slot_rows) continue;  // more rows than the caller announced
      const int64_t row = slot * p.slot_rows + row0 + 8 * r;
      float* o = p.partial_o + row * C::kLv + 2 * (lane & 3);
#pragma unroll
      for (int j = 0; j < C::kLv / 8; ++j) *reinterpret_cast<float2*>(o + 8 * j) = make_float2(rO[4 * j + 2 * r], rO[4 * j + 2 * r + 1]);
      if ((lane & 3) == 0) p.partial_lse[row] = lse[r];
    }
  }
}

}  // namespace hyla::extend::sm90_fa
