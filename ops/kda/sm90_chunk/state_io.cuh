// The state between registers and memory. A warpgroup holds 64 rows (V) of S^T as wgmma accumulators: thread (warp w, g = lane / 4,
// t = lane % 4) holds rows 16 w + g and + 8, columns (K) 8 j + 2 t and + 1 in s[4 j .. 4 j + 3].
#pragma once
#include "config.h"
#include "cuda/device/math.cuh"
#include "launch.h"

namespace hyla::kda::sm90_chunk {

struct StatePosition {
  int row, col;  // of s[0]
  __device__ __forceinline__ explicit StatePosition(int half) {
    const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    row = half * kHalf + 16 * warp + (lane >> 2), col = 2 * (lane & 3);
  }
};

__device__ __forceinline__ float bf16_value(uint16_t x) { return __uint_as_float(uint32_t(x) << 16); }
__device__ __forceinline__ uint16_t bf16_round(float x) { return uint16_t(dev::Bf16::pack(x, 0.f)); }

__device__ __forceinline__ void load_state(float (&s)[64], const States& from, int64_t row, int head, bool v_first, int half) {
  const StatePosition at(half);
  const int64_t base = row * from.row + head * from.head;
  const float* f = static_cast<const float*>(from.data) + (from.bf16 ? 0 : base);
  const uint16_t* h = static_cast<const uint16_t*>(from.data) + (from.bf16 ? base : 0);
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int v = at.row + 8 * (e >> 1), k = at.col + 8 * j + (e & 1);
      const int64_t i = v_first ? v * from.inner + k : k * from.inner + v;
      s[4 * j + e] = from.bf16 ? bf16_value(h[i]) : f[i];
    }
  }
}

__device__ __forceinline__ void store_state(const float (&s)[64], const States& to, int64_t row, int head, bool v_first, int half) {
  const StatePosition at(half);
  const int64_t base = row * to.row + head * to.head;
  if (v_first) {
    if (to.bf16) {
      uint16_t* h = static_cast<uint16_t*>(to.data) + base + at.row * to.inner + at.col;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) h[(e >> 1) * 8 * to.inner + 8 * j + (e & 1)] = bf16_round(s[4 * j + e]);
      }
    } else {
      float* f = static_cast<float*>(to.data) + base + at.row * to.inner + at.col;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) f[(e >> 1) * 8 * to.inner + 8 * j + (e & 1)] = s[4 * j + e];
      }
    }
  } else if (to.bf16) {
    uint16_t* h = static_cast<uint16_t*>(to.data) + base + at.col * to.inner + at.row;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) h[(8 * j + (e & 1)) * to.inner + 8 * (e >> 1)] = bf16_round(s[4 * j + e]);
    }
  } else {
    float* f = static_cast<float*>(to.data) + base + at.col * to.inner + at.row;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) f[(8 * j + (e & 1)) * to.inner + 8 * (e >> 1)] = s[4 * j + e];
    }
  }
}

// The same state in the accumulators' own order, for kernels of one run: [half][16][128 threads] float4.
__device__ __forceinline__ uint8_t* summary_place(uint8_t* base, int half, int j) { return base + ((half * 16 + j) * 128 + int(threadIdx.x & 127)) * 16; }
__device__ __forceinline__ void store_summary(const float (&s)[64], uint8_t* base, int half) {
#pragma unroll
  for (int j = 0; j < 16; ++j) *reinterpret_cast<float4*>(summary_place(base, half, j)) = make_float4(s[4 * j], s[4 * j + 1], s[4 * j + 2], s[4 * j + 3]);
}
__device__ __forceinline__ void load_summary(float (&s)[64], const uint8_t* base, int half) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float4 x = __ldcg(reinterpret_cast<const float4*>(summary_place(const_cast<uint8_t*>(base), half, j)));
    s[4 * j] = x.x, s[4 * j + 1] = x.y, s[4 * j + 2] = x.z, s[4 * j + 3] = x.w;
  }
}

}  // namespace hyla::kda::sm90_chunk
