// The extend attention kernel: a loading warpgroup and two consumers of 64 query rows each. See NOTES.md for roles and barriers.
#pragma once
#include "load.cuh"
#include "mma.cuh"
#include "store.cuh"

namespace hyla::extend::sm90_fa {

// What the consumers need of a unit beyond Unit itself.
template <class C>
struct Visit {
  Span span;
  int q0, q1, n, prefix, column;  // first and last token; the thread's first column
};

template <class C>
__device__ __forceinline__ bool needs_mask(const Params& p, const Visit<C>& v, const Tile& t) {
  const int last_left = p.window < 0 ? 0 : (t.prefix ? v.prefix : 0) + v.q1 - p.window;
  const int first_right = t.prefix ? v.prefix : lower(v.n, v.q0 + 1 + p.ahead);
  return t.first < upper(0, last_left) || t.first + C::kN > first_right;
}

template <class C>
__device__ __forceinline__ Limits limits_of(const Params& p, const Visit<C>& v, const Tile& t, const Rows& rows) {
  Limits lim;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int left = p.window < 0 ? 0 : (t.prefix ? v.prefix : 0) + rows.token[r] - p.window;
    const int right = t.prefix ? v.prefix : lower(v.n, rows.token[r] + 1 + p.ahead);
    lim.left[r] = upper(0, left) - t.first - v.column;
    lim.right[r] = right - t.first - v.column;
  }
  return lim;
}

// Factor of the logits by query position; 1 when off.
__device__ __forceinline__ float temperature(const Params& p, int position) {
  return p.xai_length > 0 && position > p.xai_length ? __log2f(float(position)) / __log2f(float(p.xai_length)) : 1.0f;
}

// Score factor in log2 units: with a cap the sm_scale sits inside the tanh.
__device__ __forceinline__ float score_scale(const Params& p, bool prefix) {
  constexpr float kLog2e = 1.44269504f;
  if (p.cap > 0.0f) return p.cap * kLog2e;
  return p.sm_scale * (prefix ? p.k_scale : 1.0f) * kLog2e;
}

// Raw scores of tile `t` -> probabilities.
template <class C>
__device__ __forceinline__ void weigh_tile(const Params& p, const Smem<C>& s, const Visit<C>& v, const Tile& t, int stage, float (&rS)[C::kN / 2], Rows& rows,
                                           float (&decay)[2], bool any_bad) {
  if (p.cap > 0.0f) cap_scores(rS, p.sm_scale * (t.prefix ? p.k_scale : 1.0f) / p.cap);
  if (needs_mask<C>(p, v, t)) mask_scores(rS, limits_of<C>(p, v, t, rows));
  if (any_bad) mask_dead_keys(rS, s.live[stage], v.column);
  softmax_step(rS, rows, decay);
}

template <class C>
__device__ __forceinline__ bool bad_slots(const Smem<C>& s, int stage, const Tile& t) {
  if (!t.prefix) return false;
  const uint4 w = *reinterpret_cast<const uint4*>(s.bad[stage]);
  return (w.x | w.y | w.z | w.w) != 0;
}

// Waits until a K or V tile has landed and may be read by wgmma.
template <class C>
__device__ __forceinline__ void wait_tile(const Params& p, Barrier& full, uint32_t parity, const Tile& t, int n) {
  full.wait(parity);
  if (!(p.use_tma && whole_new_tile<C::kN>(t, n))) fence_async_shared();  // cp.async writes through the generic proxy
}

template <class C>
__device__ __forceinline__ void consume_unit(const Params& p, Smem<C>& s, const Unit& w, int head, int wg, int row0, int lane, RingState<C::kStages>& k_ring,
                                             RingState<C::kStages>& v_ring, uint32_t& q_parity) {
  const int count = w.t1 - w.t0;
  Visit<C> v;
  v.span = span_of<C::kN>(w.n, w.prefix, w.q0, w.tokens, p.window, p.ahead, p.skip_prefix, p.skip_new);
  v.q0 = w.q0, v.q1 = w.q0 + w.tokens - 1, v.n = w.n, v.prefix = w.prefix, v.column = 2 * (lane & 3);
  Rows rows;
  float heat[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows.token[r] = v.q0 + lower((row0 + 8 * r) / p.group, w.tokens - 1);
    heat[r] = temperature(p, v.prefix + rows.token[r]);
    rows.max[r] = -INFINITY;
    rows.sum[r] = 0.0f;
  }
  float rO[C::kLv / 2];
#pragma unroll
  for (int i = 0; i < C::kLv / 2; ++i) rO[i] = 0.0f;
  float out_scale = 1.0f;

  if (count > 0) {
    float rS[C::kN / 2], decay[2];
    uint32_t rP[C::kN / 4];
    const uint64_t q_desc = panel_desc<C::kPanelQ>(smem_addr(s.q) + wg * 64 * C::kPanelQ, 0);
    const uint64_t k_desc = panel_desc<C::kPanelQ>(smem_addr(s.k[0]), 0);
    const uint64_t v_desc = panel_desc<C::kPanelV>(smem_addr(s.v[0]), C::kN * C::kPanelV);
    constexpr uint32_t kStepK = C::kN * C::kLq * 2 / 16, kStepV = C::kN * C::kLv * 2 / 16;

    // First tile: nothing to overlap with.
    Tile tile = tile_of<C::kN>(v.span, w.t0);
    s.q_full.wait(q_parity);
    q_parity ^= 1;
    if (C::kPingPong && wg == 1 && count > 1) named_arrive(kTurn0, 256);
    s.k_full[k_ring.index].wait(k_ring.parity);
    fence_async_shared();  // Q always comes by cp.async
    pin(rS);
    wgmma_fence();
    issue_qk<C>(rS, q_desc, k_desc + k_ring.index * kStepK);
    wgmma_commit();
    wgmma_wait<0>();
    pin(rS);
    const bool first_bad = bad_slots<C>(s, k_ring.index, tile);
    if (count == 1) release(s.q_empty, lane);
#pragma unroll
    for (int r = 0; r < 2; ++r) rows.scale[r] = score_scale(p, tile.prefix) * heat[r];
    weigh_tile<C>(p, s, v, tile, k_ring.index, rS, rows, decay, first_bad);
    release(s.k_empty[k_ring.index], lane);
    pack_p<typename C::Element>(rP, rS);
    k_ring.advance();

#pragma unroll 1
    for (int i = 1; i < count; ++i) {
      const Tile behind = tile;
      tile = tile_of<C::kN>(v.span, w.t0 + i);
      const bool entering = tile.prefix && !behind.prefix;
      wait_tile<C>(p, s.k_full[k_ring.index], k_ring.parity, tile, v.n);
      if (C::kPingPong) named_sync(kTurn0 + wg, 256);
      pin(rS);
      pin(rP);
      pin(rO);
      wgmma_fence();
      issue_qk<C>(rS, q_desc, k_desc + k_ring.index * kStepK);
      wgmma_commit();
      if constexpr (C::kLateRescale) {
        scale_rows(rO, decay);
        pin(rO);
      }
      wait_tile<C>(p, s.v_full[v_ring.index], v_ring.parity, behind, v.n);
      wgmma_fence();
      issue_pv<C>(rO, rP, v_desc + v_ring.index * kStepV);
      wgmma_commit();
      if (C::kPingPong && (wg == 0 || i + 1 < count)) named_arrive(kTurn1 - wg, 256);
      wgmma_wait<1>();
      pin(rS);
      const bool any_bad = bad_slots<C>(s, k_ring.index, tile);
      if (!any_bad) release(s.k_empty[k_ring.index], lane);
      if (i + 1 == count) release(s.q_empty, lane);
      if (entering) {
#pragma unroll
        for (int r = 0; r < 2; ++r) rows.scale[r] = score_scale(p, true) * heat[r];
      }
      weigh_tile<C>(p, s, v, tile, k_ring.index, rS, rows, decay, any_bad);
      if (any_bad) release(s.k_empty[k_ring.index], lane);
      if (entering) {
        // O holds plain sums of new values; from here on it is kept in units of v_scale.
        decay[0] /= p.v_scale;
        decay[1] /= p.v_scale;
      }
      wgmma_wait<0>();
      pin(rO);
      pin(rP);
      release(s.v_empty[v_ring.index], lane);
      pack_p<typename C::Element>(rP, rS);
      // With few columns the issue slots of these multiplications count, and they are seldom needed.
      if (!C::kLateRescale && (C::kLv > 64 || any_scaling(decay))) scale_rows(rO, decay);
      k_ring.advance();
      v_ring.advance();
    }

    if constexpr (C::kLateRescale) scale_rows(rO, decay);
    wait_tile<C>(p, s.v_full[v_ring.index], v_ring.parity, tile, v.n);
    pin(rP);
    pin(rO);
    wgmma_fence();
    issue_pv<C>(rO, rP, v_desc + v_ring.index * kStepV);
    wgmma_commit();
    wgmma_wait<0>();
    pin(rO);
    pin(rP);
    release(s.v_empty[v_ring.index], lane);
    v_ring.advance();
    if (tile.prefix) out_scale = p.v_scale;
  }
  finish_unit<C>(p, w, head, rO, rows, out_scale, row0, lane);
}

template <class C>
__device__ __forceinline__ void run_consumer(const Params& p, Smem<C>& s, int warp) {
  const int lane = threadIdx.x & 31, wg = warp >> 2, row0 = warp * 16 + (lane >> 2);
  RingState<C::kStages> k_ring, v_ring;
  RingState<2> unit_ring;
  uint32_t q_parity = 0;
  for (;;) {
    s.unit_full[unit_ring.index].wait(unit_ring.parity);
    const int head = s.head[unit_ring.index];
    if (head < 0) break;
    consume_unit<C>(p, s, s.unit[unit_ring.index], head, wg, row0, lane, k_ring, v_ring, q_parity);
    release(s.unit_empty[unit_ring.index], lane);
    unit_ring.advance();
  }
}

template <class C>
__global__ void __launch_bounds__(kThreads, 1) extend_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) uint8_t raw[];
  Smem<C>& s = *reinterpret_cast<Smem<C>*>(raw);
  static_assert(sizeof(Smem<C>) <= smem_bytes(C::kShape, C::kPool) && smem_bytes(C::kShape, C::kPool) <= 232448);
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0);
  if (threadIdx.x == 0) init_barriers(s);
  __syncthreads();
  wait_prior_grid();
  if (warp >= kConsumerWarps) {
    setmaxnreg_dec<C::kLoaderRegisters>();
    run_loader<C>(p, s);
  } else {
    setmaxnreg_inc<C::kConsumerRegisters>();
    run_consumer<C>(p, s, warp);
  }
  launch_dependents();
}

}  // namespace hyla::extend::sm90_fa
