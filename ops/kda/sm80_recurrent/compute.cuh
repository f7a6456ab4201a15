// Compute warps: the delta rule on the part of the state in registers, a group of tokens at a time.
//   p_j = (k_j D_j)^T S,  o_j = (q_j D_j)^T S                         with the state before the group: one reduction for all
//   delta_i = beta_i (v_i - p_i - sum_(j<i) A_kk[i][j] delta_j)       every thread for one column
//   out_i = o_i + sum_(j<=i) A_qk[i][j] delta_j
//   S = D S + sum_j (k_j D / D_j) delta_j^T
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "config.h"
#include "prepare.cuh"
#include "state.cuh"

namespace hyla::kda::sm80_recurrent {

__device__ __forceinline__ void write_out(const Params& p, int64_t at, float x) {
  switch (p.out_type) {
    case Element::kBf16:
      static_cast<__nv_bfloat16*>(const_cast<void*>(p.out.data))[at] = __float2bfloat16_rn(x);
      break;
    case Element::kFp16:
      static_cast<__half*>(const_cast<void*>(p.out.data))[at] = __float2half_rn(x);
      break;
    default:
      static_cast<float*>(const_cast<void*>(p.out.data))[at] = x;
  }
}

// Output rows of a skipped sequence.
__device__ __forceinline__ void zero_rows(const Params& p, const Item& item, int columns, int threads) {
  const int64_t at = item.batch * p.out.batch + item.first * p.out.token + item.head * p.out.head + item.split * columns;
  for (int64_t i = threadIdx.x; i < static_cast<int64_t>(item.length) * columns; i += threads) write_out(p, at + i / columns * p.out.token + i % columns, 0.0f);
}

__device__ __forceinline__ float4 read4(const float* shared) { return *reinterpret_cast<const float4*>(shared); }

template <class T>
struct Compute {
  static constexpr Config kC = T::kConfig;
  static constexpr int kRows = kC.rows(), kColumns = kC.columns_per_thread, kLanes = kC.lanes;
  static constexpr int kSums = 2 * kGroup * kColumns;                  // of a thread: [column][p 0..3, o 0..3]
  static constexpr int kHeld = kSums > kLanes ? kSums / kLanes : 1;    // of them after the reduction
  static constexpr int kRepeat = kSums < kLanes ? kLanes / kSums : 1;  // neighbours that then hold the same
  static constexpr int kTeam = kLanes / kColumns;                      // threads that then hold the sums of one column
  static_assert(kGroup == 4 && kHeld * kTeam == 2 * kGroup * kRepeat);
  using S = Stage<T>;

  const Params& p;
  int thread_lane;  // within the warp
  int lane;         // within the lanes of a column
  int column;       // first column of the thread, within the block's
  State<T> state;

  __device__ __forceinline__ void partial(const float* stage, float (&sums)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0.0f;
#pragma unroll
    for (int r = 0; r < kRows; r += 4) {
      const int row = State<T>::row_of(lane, r);
#pragma unroll
      for (int j = 0; j < 2 * kGroup; ++j) {
        const float4 x = read4(stage + S::kK + j * kC.dim + row);  // q follows k
#pragma unroll
        for (int m = 0; m < kColumns; ++m) {
          float& sum = sums[m * 2 * kGroup + j];
          sum += x.x * state.s[r][m];
          sum += x.y * state.s[r + 1][m];
          sum += x.z * state.s[r + 2][m];
          sum += x.w * state.s[r + 3][m];
        }
      }
    }
  }

  __device__ __forceinline__ void update(const float* stage, const float (&delta)[kGroup][kColumns]) {
#pragma unroll
    for (int r = 0; r < kRows; r += 4) {
      const int row = State<T>::row_of(lane, r);
      const float4 d = read4(stage + S::kDecay + row);
#pragma unroll
      for (int m = 0; m < kColumns; ++m) {
        state.s[r][m] *= d.x;
        state.s[r + 1][m] *= d.y;
        state.s[r + 2][m] *= d.z;
        state.s[r + 3][m] *= d.w;
      }
#pragma unroll
      for (int j = 0; j < kGroup; ++j) {
        const float4 k = read4(stage + S::kKEnd + j * kC.dim + row);
#pragma unroll
        for (int m = 0; m < kColumns; ++m) {
          state.s[r][m] += k.x * delta[j][m];
          state.s[r + 1][m] += k.y * delta[j][m];
          state.s[r + 2][m] += k.z * delta[j][m];
          state.s[r + 3][m] += k.w * delta[j][m];
        }
      }
    }
  }

  // `count` tokens in `stage`; out_at: element of the first token's output at the block's first column.
  __device__ __forceinline__ void group(const float* stage, int count, int64_t out_at) {
    const int team = lane / kTeam, member = lane % kTeam;  // this thread's column after the reduction, and its share of the sums
    const int base = thread_lane - lane;                   // first thread of the lanes
    float v[kGroup];
#pragma unroll
    for (int j = 0; j < kGroup; ++j) v[j] = stage[S::kV + j * kC.columns() + column + team];
    const float4 beta = read4(stage + S::kBeta);

    float sums[kSums];
    partial(stage, sums);
    scatter_sum<kLanes>(sums, lane);
    float own[kGroup];
#pragma unroll
    for (int j = 0; j < kGroup; ++j) own[j] = v[j] - __shfl_sync(~0u, sums[j % kHeld], base + team * kTeam + j / kHeld * kRepeat);
    const float* a = stage + S::kAkk;
    own[0] = beta.x * own[0];
    own[1] = beta.y * (own[1] - a[4] * own[0]);
    own[2] = beta.z * (own[2] - a[8] * own[0] - a[9] * own[1]);
    own[3] = beta.w * (own[3] - a[12] * own[0] - a[13] * own[1] - a[14] * own[2]);

    float delta[kGroup][kColumns];
#pragma unroll
    for (int m = 0; m < kColumns; ++m)
#pragma unroll
      for (int j = 0; j < kGroup; ++j) delta[j][m] = __shfl_sync(~0u, own[j], base + m * kTeam);
    update(stage, delta);

#pragma unroll
    for (int r = 0; r < kHeld; ++r) {
      const int i = member / kRepeat * kHeld + r - kGroup;
      if (i < 0 || i >= count || member % kRepeat != 0) continue;
      const float4 aqk = read4(stage + S::kAqk + i * kGroup);
      // Selected, not multiplied by zero: a NaN in a later token of the group must not reach this one.
      const float out = sums[r] + aqk.x * own[0] + (i >= 1 ? aqk.y * own[1] : 0.0f) + (i >= 2 ? aqk.z * own[2] : 0.0f) + (i >= 3 ? aqk.w * own[3] : 0.0f);
      write_out(p, out_at + i * p.out.token + column + team, out);
    }
  }
};

}  // namespace hyla::kda::sm80_recurrent
