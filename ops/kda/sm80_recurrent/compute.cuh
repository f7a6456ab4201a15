// Compute warps: one token after the other on the part of the state in registers.
//   p = (k e^g)^T S    delta = beta (v - p)    S = diag(e^g) S + k delta    o = (q e^g)^T S_before + (q.k) delta
// Both products use the state before the update, so one reduction over the lanes of a column serves both.
#pragma once
#include <cuda_fp16.h>

#include "checkpoint.cuh"
#include "config.h"
#include "state.cuh"

namespace hyla::kda::sm80_recurrent {

__device__ __forceinline__ void write_out(const Params& p, int64_t at, float x) {
  switch (p.out_type) {
    case Element::kBf16: static_cast<__nv_bfloat16*>(const_cast<void*>(p.out.data))[at] = __float2bfloat16_rn(x); break;
    case Element::kFp16: static_cast<__half*>(const_cast<void*>(p.out.data))[at] = __float2half_rn(x); break;
    default: static_cast<float*>(const_cast<void*>(p.out.data))[at] = x;
  }
}

// Sums N values over groups of `kLanes` neighbouring threads. While a thread holds several values, each step halves their number: it keeps
// one half and sends the other. Afterwards lane l holds the sum of value index l / (kLanes / N) in x[0] (all lanes the same for N = 1).
template <int kLanes, int N>
__device__ __forceinline__ void scatter_sum(float (&x)[N], int lane) {
  int held = N;
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    if (held > 1) {
      held /= 2;
      const bool upper = lane & mask;
#pragma unroll
      for (int i = 0; i < N / 2; ++i) {
        if (i >= held) break;
        const float send = upper ? x[i] : x[i + held], keep = upper ? x[i + held] : x[i];
        x[i] = keep + __shfl_xor_sync(~0u, send, mask);
      }
    } else {
      x[0] += __shfl_xor_sync(~0u, x[0], mask);
    }
  }
}

// Operand rows of one thread: float4 pieces at 4 * lane + 4 * lanes * i.
template <class T>
struct Operands {
  static constexpr Config kC = T::kConfig;
  static constexpr int kRows = kC.rows();
  float x[kRows];
  __device__ __forceinline__ void load(const float* vector, int lane) {
#pragma unroll
    for (int r = 0; r < kRows; r += 4) {
      const float4 w = *reinterpret_cast<const float4*>(vector + State<T>::row_of(lane, r));
      x[r] = w.x, x[r + 1] = w.y, x[r + 2] = w.z, x[r + 3] = w.w;
    }
  }
};

template <class T>
struct Compute {
  static constexpr Config kC = T::kConfig;
  static constexpr int kRows = kC.rows(), kColumns = kC.columns_per_thread, kD = kC.dim, kLanes = kC.lanes;

  const Params& p;
  int lane;        // within the lanes of a column
  int thread_lane; // within the warp
  int column;      // first column of the thread, within the block's
  State<T> state;
  Operands<T> kd, qd, k, d;  // with prefetch only

  // Sums of (k e^g) S and (q e^g) S over this thread's rows.
  __device__ __forceinline__ void partial(const float* token, float (&sums)[2 * kColumns]) const {
    if constexpr (kC.prefetch) {
      static_assert(kColumns == 1);
      float p0 = 0, p1 = 0, o0 = 0, o1 = 0;  // two chains each: half the latency
#pragma unroll
      for (int r = 0; r < kRows; r += 2) {
        p0 += kd.x[r] * state.s[r][0];
        p1 += kd.x[r + 1] * state.s[r + 1][0];
      }
#pragma unroll
      for (int r = 0; r < kRows; r += 2) {
        o0 += qd.x[r] * state.s[r][0];
        o1 += qd.x[r + 1] * state.s[r + 1][0];
      }
      sums[0] = p0 + p1, sums[1] = o0 + o1;
    } else {
#pragma unroll
      for (int i = 0; i < 2 * kColumns; ++i) sums[i] = 0.0f;
#pragma unroll
      for (int r = 0; r < kRows; r += 4) {
        const int row = State<T>::row_of(lane, r);
        const float4 a = *reinterpret_cast<const float4*>(token + row), b = *reinterpret_cast<const float4*>(token + kD + row);
#pragma unroll
        for (int m = 0; m < kColumns; ++m) {
          sums[m] += a.x * state.s[r][m] + a.y * state.s[r + 1][m] + a.z * state.s[r + 2][m] + a.w * state.s[r + 3][m];
          sums[kColumns + m] += b.x * state.s[r][m] + b.y * state.s[r + 1][m] + b.z * state.s[r + 2][m] + b.w * state.s[r + 3][m];
        }
      }
    }
  }

  __device__ __forceinline__ void update(const float* token, const float (&delta)[kColumns]) {
    if constexpr (kC.prefetch) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) state.s[r][0] = d.x[r] * state.s[r][0] + k.x[r] * delta[0];
    } else {
#pragma unroll
      for (int r = 0; r < kRows; r += 4) {
        const int row = State<T>::row_of(lane, r);
        const float4 a = *reinterpret_cast<const float4*>(token + 2 * kD + row), b = *reinterpret_cast<const float4*>(token + 3 * kD + row);
#pragma unroll
        for (int m = 0; m < kColumns; ++m) {
          state.s[r][m] = b.x * state.s[r][m] + a.x * delta[m];
          state.s[r + 1][m] = b.y * state.s[r + 1][m] + a.y * delta[m];
          state.s[r + 2][m] = b.z * state.s[r + 2][m] + a.z * delta[m];
          state.s[r + 3][m] = b.w * state.s[r + 3][m] + a.w * delta[m];
        }
      }
    }
  }

  // The token at `s`; `next` is the following one's operands (or s again). out_at: element of the block's first column.
  __device__ __forceinline__ void token(const float* s, const float* next, int64_t out_at) {
    const float* v = s + 4 * kD;
    const float2 scalars = *reinterpret_cast<const float2*>(s + 4 * kD + kC.columns());  // beta, q.k
    float sums[2 * kColumns];
    partial(s, sums);
    if constexpr (kC.prefetch) {
      kd.load(next, lane);
      qd.load(next + kD, lane);
    }
    float delta[kColumns];
    if constexpr (kColumns == 1) {
      // Two plain sums: one step less on the chain than splitting and sending delta back.
#pragma unroll
      for (int mask = kLanes / 2; mask > 0; mask /= 2) {
        sums[0] += __shfl_xor_sync(~0u, sums[0], mask);
        sums[1] += __shfl_xor_sync(~0u, sums[1], mask);
      }
      delta[0] = scalars.x * (v[column] - sums[0]);
      if (lane == 0) write_out(p, out_at + column, sums[1] + scalars.y * delta[0]);
    } else {
      // Afterwards lanes [m, m + 1) * kRepeat hold p of column m, the lanes kColumns * kRepeat further o of column m.
      constexpr int kRepeat = kLanes / (2 * kColumns);
      static_assert(kRepeat >= 1);
      scatter_sum<kLanes>(sums, thread_lane);
      const int value = lane / kRepeat, mine = value % kColumns;
      const float own = scalars.x * (v[column + mine] - sums[0]);
      const int base = thread_lane & ~(kLanes - 1);
#pragma unroll
      for (int m = 0; m < kColumns; ++m) delta[m] = __shfl_sync(~0u, own, base + m * kRepeat);
      const float delta_mine = __shfl_sync(~0u, own, base + mine * kRepeat);
      if (value >= kColumns && lane % kRepeat == 0) write_out(p, out_at + column + mine, sums[0] + scalars.y * delta_mine);
    }
    update(s, delta);
    if constexpr (kC.prefetch) {
      d.load(next + 3 * kD, lane);
      k.load(next + 2 * kD, lane);
    }
  }

  __device__ __forceinline__ void load_first(const float* s) {
    if constexpr (kC.prefetch) {
      kd.load(s, lane);
      qd.load(s + kD, lane);
      d.load(s + 3 * kD, lane);
      k.load(s + 2 * kD, lane);
    }
  }
};

}  // namespace hyla::kda::sm80_recurrent
