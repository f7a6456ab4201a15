// Online softmax on wgmma accumulators: cap, mask, running maximum and sum. Everything in log2 units after scaling, because new tokens and prefix
// scale differently.
#pragma once
#include "smem.cuh"

namespace hyla::extend::sm90_fa {

// A thread holds two rows (lane / 4 and 8 below); element 4j, 4j+1 belong to the first, 4j+2, 4j+3 to the second, columns 8j + 2 (lane % 4) + {0, 1}.
struct Rows {
  int token[2];    // index within the request; rows past the tile repeat its last token
  float scale[2];  // log2-unit factor of the raw (or capped) score for the current segment
  float max[2], sum[2];
};

struct Limits {  // visible columns of the tile per row: left <= column < right, relative to the thread's first column
  int left[2], right[2];
};

// s -> tanh(s * factor); the caller's scale carries the cap. Exact to fp32 rounding, saturates without NaN.
template <int kCount>
__device__ __forceinline__ void cap_scores(float (&rS)[kCount], float factor) {
  const float c = 2.0f * 1.44269504f * factor;
#pragma unroll
  for (int i = 0; i < kCount; ++i) rS[i] = fmaf(-2.0f, rcp_approx(1.0f + exp2_approx(rS[i] * c)), 1.0f);
}

template <int kCount>
__device__ __forceinline__ void mask_scores(float (&rS)[kCount], const Limits& lim) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int r = i >> 1 & 1, column = (i >> 2) * 8 + (i & 1);
    if (column < lim.left[r] || column >= lim.right[r]) rS[i] = -INFINITY;
  }
}

// Keys whose slot lies outside the pool.
template <int kCount>
__device__ __forceinline__ void mask_dead_keys(float (&rS)[kCount], const uint8_t* live, int first_column) {
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    const uint16_t two = *reinterpret_cast<const uint16_t*>(live + first_column + 8 * j);
    if (!(two & 0xff)) rS[4 * j] = rS[4 * j + 2] = -INFINITY;
    if (!(two >> 8)) rS[4 * j + 1] = rS[4 * j + 3] = -INFINITY;
  }
}

// Updates maximum and sum, turns scores into probabilities; `decay` is the factor of everything accumulated so far.
template <int kCount>
__device__ __forceinline__ void softmax_step(float (&rS)[kCount], Rows& rows, float (&decay)[2]) {
  float top[2] = {rS[0], rS[2]};
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    top[0] = fmaxf(top[0], fmaxf(rS[4 * j], rS[4 * j + 1]));
    top[1] = fmaxf(top[1], fmaxf(rS[4 * j + 2], rS[4 * j + 3]));
  }
  float shift[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
    top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
    const float now = fmaxf(rows.max[r], top[r] * rows.scale[r]);
    shift[r] = now == -INFINITY ? 0.0f : now;  // no key so far: every probability is exp2(-inf) = 0
    decay[r] = exp2_approx(rows.max[r] - shift[r]);
    rows.max[r] = now;
  }
  float a[2] = {0, 0}, b[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float &x = rS[4 * j + 2 * r], &y = rS[4 * j + 2 * r + 1];
      x = exp2_approx(fmaf(x, rows.scale[r], -shift[r]));
      y = exp2_approx(fmaf(y, rows.scale[r], -shift[r]));
      a[r] += x;
      b[r] += y;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) rows.sum[r] = fmaf(rows.sum[r], decay[r], a[r] + b[r]);
}

template <class Element, int kCount>
__device__ __forceinline__ void pack_p(uint32_t (&rP)[kCount / 2], const float (&rS)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) rP[i] = Element::pack(rS[2 * i], rS[2 * i + 1]);
}

// Whether any row of the warp changes when multiplied: the running maximum seldom moves after the first tiles, and the multiplications cost issue
// slots that the exponentials need.
__device__ __forceinline__ bool any_scaling(const float (&factor)[2]) { return __any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f); }

template <int kCount>
__device__ __forceinline__ void scale_rows(float (&rO)[kCount], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) rO[i] *= factor[i >> 1 & 1];
}

}  // namespace hyla::extend::sm90_fa
