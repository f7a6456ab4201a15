// The part of the state that a thread holds, and its way to and from memory in both layouts.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "config.h"
#include "params.h"

namespace hyla::kda::sm80_recurrent {

// How elements are moved: their stored type; `kVec`: four neighbours in one access, rows of `dim` elements (offsets are then immediates).
template <bool kBf16, bool kVec>
struct Access {
  static constexpr bool kRowsAreDense = kVec;

  static __device__ __forceinline__ float read(const void* data, int64_t at) {
    if constexpr (kBf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
    else return static_cast<const float*>(data)[at];
  }
  static __device__ __forceinline__ void write(void* data, int64_t at, float x) {
    if constexpr (kBf16) static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(x);
    else static_cast<float*>(data)[at] = x;
  }
  static __device__ __forceinline__ void read4(const void* data, int64_t at, float (&x)[4]) {
    if constexpr (!kVec) {
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = read(data, at + j);
    } else if constexpr (kBf16) {
      const uint2 w = *reinterpret_cast<const uint2*>(static_cast<const __nv_bfloat16*>(data) + at);
      x[0] = __uint_as_float(w.x << 16), x[1] = __uint_as_float(w.x & 0xffff0000u);
      x[2] = __uint_as_float(w.y << 16), x[3] = __uint_as_float(w.y & 0xffff0000u);
    } else {
      const float4 w = *reinterpret_cast<const float4*>(static_cast<const float*>(data) + at);
      x[0] = w.x, x[1] = w.y, x[2] = w.z, x[3] = w.w;
    }
  }
  static __device__ __forceinline__ void write4(void* data, int64_t at, const float (&x)[4]) {
    if constexpr (!kVec) {
#pragma unroll
      for (int j = 0; j < 4; ++j) write(data, at + j, x[j]);
    } else if constexpr (kBf16) {
      const __nv_bfloat162 lo = __floats2bfloat162_rn(x[0], x[1]), hi = __floats2bfloat162_rn(x[2], x[3]);
      *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(data) + at) =
          make_uint2(*reinterpret_cast<const uint32_t*>(&lo), *reinterpret_cast<const uint32_t*>(&hi));
    } else {
      *reinterpret_cast<float4*>(static_cast<float*>(data) + at) = make_float4(x[0], x[1], x[2], x[3]);
    }
  }
};

// Calls f with the Access that `g` allows; the choice is made once, so that all loads of a state are in flight together.
template <class F>
__device__ __forceinline__ void with_access(const States& g, F&& f) {
  if (g.vec) g.bf16 ? f(Access<true, true>{}) : f(Access<false, true>{});
  else g.bf16 ? f(Access<true, false>{}) : f(Access<false, false>{});
}

// Thread (lane l of a column's lanes, first column c0) holds rows 4 l + 4 lanes i + j (i < rows / 4, j < 4) of columns c0 + m.
// Both layouts are then read in full sectors: V-first 4 rows at a time, K-first all the thread's columns at a time.
template <class T>
struct State {
  static constexpr Config kC = T::kConfig;
  static constexpr int kColumns = kC.columns_per_thread, kRows = kC.rows();
  float s[kRows][kColumns];

  static __device__ __forceinline__ int row_of(int lane, int r) { return 4 * lane + 4 * kC.lanes * (r / 4) + r % 4; }

  __device__ __forceinline__ void zero() {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int m = 0; m < kColumns; ++m) s[r][m] = 0.0f;
  }

  __device__ __forceinline__ void load(const States& g, int64_t slot, int head, bool v_first, int lane, int column) {
    with_access(g, [&](auto access) {
      using A = decltype(access);
      const int64_t row = A::kRowsAreDense ? kC.dim : g.row;
      const int64_t base = slot * g.slot + head * g.head + (v_first ? column * row + row_of(lane, 0) : row_of(lane, 0) * row + column);
      if (v_first) {
#pragma unroll
        for (int m = 0; m < kColumns; ++m)
#pragma unroll
          for (int r = 0; r < kRows; r += 4) {
            float x[4];
            A::read4(g.data, base + m * row + row_of(0, r), x);
#pragma unroll
            for (int j = 0; j < 4; ++j) s[r + j][m] = x[j];
          }
      } else {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const int64_t at = base + row_of(0, r) * row;
          if constexpr (kColumns == 4) {
            A::read4(g.data, at, s[r]);
          } else {
#pragma unroll
            for (int m = 0; m < kColumns; ++m) s[r][m] = A::read(g.data, at + m);
          }
        }
      }
    });
  }

  __device__ __forceinline__ void store(const States& g, int64_t slot, int head, bool v_first, int lane, int column) const {
    with_access(g, [&](auto access) {
      using A = decltype(access);
      const int64_t row = A::kRowsAreDense ? kC.dim : g.row;
      const int64_t base = slot * g.slot + head * g.head + (v_first ? column * row + row_of(lane, 0) : row_of(lane, 0) * row + column);
      if (v_first) {
#pragma unroll
        for (int m = 0; m < kColumns; ++m)
#pragma unroll
          for (int r = 0; r < kRows; r += 4) {
            const float x[4] = {s[r][m], s[r + 1][m], s[r + 2][m], s[r + 3][m]};
            A::write4(g.data, base + m * row + row_of(0, r), x);
          }
      } else {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const int64_t at = base + row_of(0, r) * row;
          if constexpr (kColumns == 4) {
            A::write4(g.data, at, s[r]);
          } else {
#pragma unroll
            for (int m = 0; m < kColumns; ++m) A::write(g.data, at + m, s[r][m]);
          }
        }
      }
    });
  }
};

}  // namespace hyla::kda::sm80_recurrent
