// Online softmax of one 64 x 64 score tile in the accumulator layout, in base 2. A thread holds two rows (r and r + 8 of its warp) and the
// columns 8 j + 2 (lane % 4) + {0, 1} of each: s[4 j + 2 row + e].
#pragma once
#include "item.cuh"
#include "traits.cuh"

namespace hyla::extend::sm90_latent {

// What a thread knows about its two rows of an item, and the positions that all rows of the item see (up to the end of a segment).
struct Rows {
  int position[2];
  float temperature[2];
  int seen_lo, seen_hi;
};

__device__ __forceinline__ Rows make_rows(const KernelParams& p, const Item& item, int warp, int lane) {
  Rows r;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int row = min(warp * 16 + (lane >> 2) + 8 * e, item.rows - 1);
    r.position[e] = item.prefix + (item.first_row + row) / p.group;
    r.temperature[e] = p.temperature_len > 0 && r.position[e] > p.temperature_len ? __log2f(float(r.position[e])) * p.temperature_factor : 1.0f;
  }
  const int first = item.prefix + item.first_row / p.group, last = item.prefix + (item.first_row + item.rows - 1) / p.group;
  r.seen_lo = p.window >= 0 ? last - p.window : 0;
  r.seen_hi = first + 1 + p.ahead;
  return r;
}

// Bits [lo, hi) of 64.
__device__ __forceinline__ uint64_t bit_range(int lo, int hi) {
  lo = max(lo, 0);
  hi = min(hi, 64);
  return hi > lo ? (~0ull << lo) & (~0ull >> (64 - hi)) : 0ull;
}

__device__ __forceinline__ void mask_scores(float (&s)[32], const KernelParams& p, const Item& item, const KeyTile& tile, const Rows& rows, uint64_t keys,
                                            int lane) {
  const int end = tile.prefix ? item.prefix : item.prefix + item.n;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int lo = p.window >= 0 ? rows.position[e] - p.window : 0;
    const int hi = min(end, rows.position[e] + 1 + p.ahead);
    const uint64_t bits = (keys & bit_range(lo - tile.position, hi - tile.position)) >> (2 * (lane & 3));
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (!(bits >> (8 * j) & 1)) s[4 * j + 2 * e] = -INFINITY;
      if (!(bits >> (8 * j + 1) & 1)) s[4 * j + 2 * e + 1] = -INFINITY;
    }
  }
}

// No row of the item hides any key of the tile.
__device__ __forceinline__ bool fully_visible(const Item& item, const KeyTile& tile, const Rows& rows, uint64_t keys) {
  const int end = tile.prefix ? item.prefix : item.prefix + item.n;
  return keys == ~0ull && tile.position >= rows.seen_lo && tile.position + kTileN <= min(end, rows.seen_hi);
}

// cap * tanh(x) needs an absolute error: 1 - 2 / (1 + e^2x) saturates without overflow.
__device__ __forceinline__ void cap_scores(float (&s)[32], float scale) {
  const float k = 2.0f * 1.4426950408889634f * scale;
#pragma unroll
  for (int i = 0; i < 32; ++i) s[i] = fmaf(-2.0f, dev::rcp_approx(1.0f + dev::exp2_approx(s[i] * k)), 1.0f);
}

__device__ __forceinline__ float finite_max(float m) { return m == -INFINITY ? 0.0f : m; }

// Factor of everything summed so far when the running maximum goes from `before` to `now`.
__device__ __forceinline__ float rescale_factor(float before, float now) { return dev::exp2_approx(before - finite_max(now)); }

// Row maxima over the quad, merged with the running ones; `scale` takes scores to base-2 logits.
__device__ __forceinline__ void row_max(const float (&s)[32], float (&m)[2], const float (&scale)[2]) {
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    float a = fmaxf(s[2 * e], s[2 * e + 1]);
#pragma unroll
    for (int j = 1; j < 8; ++j) a = fmaxf(a, fmaxf(s[4 * j + 2 * e], s[4 * j + 2 * e + 1]));
    a = fmaxf(a, __shfl_xor_sync(0xffffffffu, a, 1));
    a = fmaxf(a, __shfl_xor_sync(0xffffffffu, a, 2));
    m[e] = fmaxf(m[e], a * scale[e]);
  }
}

// s becomes P; l gains this thread's part of the row sums.
__device__ __forceinline__ void exponentials(float (&s)[32], const float (&m)[2], float (&l)[2], const float (&scale)[2]) {
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const float base = finite_max(m[e]);
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float& x = s[4 * j + 2 * e];
      float& y = s[4 * j + 2 * e + 1];
      x = dev::exp2_approx(fmaf(x, scale[e], -base));
      y = dev::exp2_approx(fmaf(y, scale[e], -base));
      even += x;
      odd += y;
    }
    l[e] += even + odd;
  }
}

}  // namespace hyla::extend::sm90_latent
