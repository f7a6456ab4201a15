// The consumer warpgroups. Key tiles come in pairs (a, b): warpgroup 0 computes the scores and P of a, warpgroup 1 those of b; each owns 256
// columns of O and multiplies both P with its half of V. P crosses through shared memory, thread to same thread, in fragment order; the
// running maximum goes 0 -> 1 -> 0 with it. Q K^T of b is queued behind that of a, so each softmax runs under the other's products.
#pragma once
#include "cuda/device/copy.cuh"
#include "smem.cuh"
#include "softmax.cuh"
#include "store.cuh"
#include "traits.cuh"

namespace hyla::extend::sm90_latent {

template <class T>
struct Consumer {
  using Place = RingPlace<T::kSlots>;

  const KernelParams& p;
  SharedStorage<T>& s;
  int warp, lane;             // within the warpgroup
  uint32_t q_desc, ring_desc; // low words of matrix descriptors
  Place place;                // first chunk of tile a
  uint32_t rounds = 0;

  __device__ __forceinline__ Consumer(const KernelParams& p, SharedStorage<T>& s, int warp, int lane)
      : p(p), s(s), warp(warp), lane(lane), q_desc(low_word(dev::smem_addr(s.q))), ring_desc(low_word(dev::smem_addr(s.ring))) {}

  static __device__ __forceinline__ uint32_t low_word(uint32_t address) { return (1u << 16) | (address >> 4); }
  static __device__ __forceinline__ uint64_t desc(uint32_t low) {
    constexpr uint32_t kHigh = (1u << 30) | (1024 >> 4);  // 128-byte swizzle, 8-row groups 1,024 bytes apart
    return (uint64_t(kHigh) << 32) | low;
  }
  // Recomputing descriptors each round is cheaper than the registers that hoisting them takes.
  __device__ __forceinline__ void keep_descriptors_low() { asm volatile("" : "+r"(q_desc), "+r"(ring_desc)); }

  __device__ __forceinline__ void arrive(dev::Barrier& b) {
    __syncwarp();
    if (lane == 0) b.arrive();
  }

  // Queues Q K^T of the tile at `tile`, one commit group for every kWaitGroup chunks; `done(g)` runs when group g and all before it are complete,
  // for all groups but the last.
  template <class Done>
  __device__ __forceinline__ void issue_scores(float (&scores)[32], Place tile, Done done) {
    dev::pin(scores);
#pragma unroll
    for (int g = 0; g < T::kScoreChunks / T::kWaitGroup; ++g) {
      int slot[T::kWaitGroup];
#pragma unroll
      for (int j = 0; j < T::kWaitGroup; ++j) {
        const Place at = tile.after(g * T::kWaitGroup + j);
        slot[j] = at.slot;
        s.full[at.slot].wait(at.parity);
      }
      dev::fence_async_shared();
      dev::wgmma_fence();
#pragma unroll
      for (int j = 0; j < T::kWaitGroup; ++j)
#pragma unroll
        for (int k = 0; k < 4; ++k)
          dev::wgmma_ss<typename T::ScoresOp>(scores, desc(q_desc + T::score_chunk(g * T::kWaitGroup + j) * (kChunkBytes / 16) + k * 2),
                                              desc(ring_desc + slot[j] * (kChunkBytes / 16) + k * 2),
                                              g + j + k == 0 ? dev::ScaleOut::Zero : dev::ScaleOut::One);
      dev::wgmma_commit();
      if (g > 0) {
        dev::wgmma_wait<1>();
        done(g - 1);
      }
    }
  }
  // Releases the chunks of K that group g read, where nothing but the scores needs them.
  __device__ __forceinline__ void release_scores(Place tile, int g) {
    if constexpr (!T::kSharedV) {
      __syncwarp();
      if (lane == 0) {
#pragma unroll
        for (int j = 0; j < T::kWaitGroup; ++j) s.empty[tile.after(g * T::kWaitGroup + j).slot].arrive();
      }
    } else if (g == 0 && T::kRope > 0) {
      arrive(s.empty[tile.slot]);
    }
  }

  // Queues P V for this warpgroup's 256 columns, one commit group a chunk. `fetched`: somebody of this warpgroup's past has waited for V.
  template <int kWarpgroup>
  __device__ __forceinline__ void issue_values(float (&o)[4][32], uint32_t (&prob)[16], Place tile) {
    int slot[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const Place at = tile.after(T::value_position(4 * kWarpgroup + c));
      slot[c] = at.slot;
      if constexpr (!T::kSharedV) s.full[at.slot].wait(at.parity);
    }
    if constexpr (!T::kSharedV) dev::fence_async_shared();
    dev::pin(prob);
#pragma unroll
    for (int c = 0; c < 4; ++c) dev::pin(o[c]);
    dev::wgmma_fence();
#pragma unroll
    for (int c = 0; c < 4; ++c) {
#pragma unroll
      for (int k = 0; k < 4; ++k) dev::wgmma_rs<typename T::ValuesOp>(o[c], prob + 4 * k, desc(ring_desc + slot[c] * (kChunkBytes / 16) + k * 128));
      dev::wgmma_commit();
    }
  }
  template <int kWarpgroup>
  __device__ __forceinline__ void release_values(Place tile, int from, int to) {
    __syncwarp();
    if (lane == 0) {
#pragma unroll
      for (int c = from; c < to; ++c) s.empty[tile.after(T::value_position(4 * kWarpgroup + c)).slot].arrive();
    }
  }

  __device__ __forceinline__ static void scale_rows(float (&o)[4][32], const float (&factor)[2]) {
#pragma unroll
    for (int c = 0; c < 4; ++c)
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        o[c][4 * j] *= factor[0];
        o[c][4 * j + 1] *= factor[0];
        o[c][4 * j + 2] *= factor[1];
        o[c][4 * j + 3] *= factor[1];
      }
  }
  // O moves to a new row maximum, and to the units of v_scale where the walk passes from new tokens to the prefix.
  __device__ __forceinline__ void rescale(float (&o)[4][32], float (&l)[2], const float (&before)[2], const float (&now)[2], bool enters_prefix) {
    float factor[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      factor[e] = rescale_factor(before[e], now[e]);
      l[e] *= factor[e];
      if (enters_prefix) factor[e] *= p.v_scale_inverse;
    }
    scale_rows(o, factor);
  }

  // Maximum and exponentials of one tile: scores become P, m the new maximum; l (already rescaled by the caller's rule) gains the row sums.
  __device__ __forceinline__ void tile_scales(const KeyTile& tile, const Rows& rows, float (&scale)[2]) const {
    const float unit = p.cap_log2e > 0.0f ? p.cap_log2e : tile.prefix ? p.scale_prefix : p.scale_new;
    scale[0] = unit * rows.temperature[0];
    scale[1] = unit * rows.temperature[1];
  }
  __device__ __forceinline__ void limit_scores(float (&scores)[32], const Item& item, const KeyTile& tile, const Rows& rows, int half, bool exists) {
    const int info = 2 * (rounds & 1) + half;
    s.info_full[info].wait((rounds >> 1) & 1);
    const uint64_t keys = !exists ? 0 : tile.prefix ? *reinterpret_cast<const volatile uint64_t*>(s.key_mask[info]) : ~0ull;
    if (p.cap_log2e > 0.0f) cap_scores(scores, tile.prefix ? p.scale_prefix : p.scale_new);
    if (!fully_visible(p, item, tile, keys)) mask_scores(scores, p, item, tile, rows, keys, lane);
  }
  // After the wait for products on o with P in `prob`.
  static __device__ __forceinline__ void finish(float (&o)[4][32], uint32_t (&prob)[16]) {
#pragma unroll
    for (int c = 0; c < 4; ++c) dev::pin(o[c]);
    dev::pin(prob);
  }

  static __device__ __forceinline__ void pack(uint32_t (&prob)[16], const float (&scores)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) prob[i] = T::Elem::pack(scores[2 * i], scores[2 * i + 1]);
  }
  __device__ __forceinline__ void put_p(const uint32_t (&prob)[16], const float (&m)[2], int which) {
    const int t = warp * 32 + lane;
#pragma unroll
    for (int j = 0; j < 4; ++j) s.p[j][t] = make_uint4(prob[4 * j], prob[4 * j + 1], prob[4 * j + 2], prob[4 * j + 3]);
    if ((lane & 3) == 0) {
      s.row_max[which][warp * 16 + (lane >> 2)] = m[0];
      s.row_max[which][warp * 16 + (lane >> 2) + 8] = m[1];
    }
    arrive(s.p_full[which]);
  }
  __device__ __forceinline__ void get_p(uint32_t (&prob)[16], float (&m)[2], int which) {
    const uint32_t from = dev::smem_addr(&s.p[0][warp * 32 + lane]);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(prob[4 * j]), "=r"(prob[4 * j + 1]), "=r"(prob[4 * j + 2]), "=r"(prob[4 * j + 3])
                   : "r"(from + j * 2048)
                   : "memory");
    const volatile float* row = s.row_max[which] + warp * 16 + (lane >> 2);
    m[0] = row[0];
    m[1] = row[8];
  }

  __device__ __forceinline__ Place values_a() const { return T::kSharedV ? place : place.after(2 * T::kScoreChunks); }
  __device__ __forceinline__ Place scores_b() const { return place.after(T::kScoreChunks); }
  __device__ __forceinline__ Place values_b() const { return T::kSharedV ? scores_b() : place.after(2 * T::kScoreChunks + kVChunks); }
  __device__ __forceinline__ void next_round() {
    place = place.after(T::kConfig.tile_chunks()).after(T::kConfig.tile_chunks());
    ++rounds;
  }

  // Nothing is in flight at the loop's back edge: ptxas serializes products whose accumulators cross one.
  __device__ __forceinline__ void first_warpgroup(const Item& item, const Rows& rows, float (&o)[4][32], float (&m)[2], float (&l)[2]) {
    float scores[32];
    uint32_t prob[16];
    bool was_new = item.begin < item.new_tiles;
#pragma unroll 1
    for (int j = item.begin; j < item.end; j += 2) {
      keep_descriptors_low();
      const KeyTile tile = key_tile(item, j);
      issue_scores(scores, place, [&](int g) { release_scores(place, g); });
      arrive(s.scores_issued);
      dev::wgmma_wait<0>();
      dev::pin(scores);
      release_scores(place, T::kScoreChunks / T::kWaitGroup - 1);
      if (j + 2 >= item.end) arrive(s.q_empty);

      float scale[2];
      const float before[2] = {m[0], m[1]};
      tile_scales(tile, rows, scale);
      limit_scores(scores, item, tile, rows, 0, true);
      row_max(scores, m, scale);
      float sums[2] = {0.0f, 0.0f};
      exponentials(scores, m, sums, scale);
      pack(prob, scores);
      put_p(prob, m, 0);
      rescale(o, l, before, m, was_new && tile.prefix);
      was_new = !tile.prefix;
      l[0] += sums[0];
      l[1] += sums[1];
      const Place va = values_a();
      issue_values<0>(o, prob, va);
      dev::wgmma_wait<2>();
      release_values<0>(va, 0, 2);
      dev::wgmma_wait<0>();
      finish(o, prob);
      release_values<0>(va, 2, 4);

      s.p_full[1].wait(rounds & 1);
      const KeyTile next = key_tile(item, j + 1);
      float now[2];
      get_p(prob, now, 1);
      const bool second_exists = j + 1 < item.end;
      rescale(o, l, m, now, was_new && next.prefix && second_exists);
      was_new = !next.prefix;
      m[0] = now[0];
      m[1] = now[1];
      const Place vb = values_b();
      issue_values<0>(o, prob, vb);
      dev::wgmma_wait<2>();
      release_values<0>(vb, 0, 2);
      dev::wgmma_wait<0>();
      finish(o, prob);
      release_values<0>(vb, 2, 4);
      next_round();
    }
  }

  __device__ __forceinline__ void second_warpgroup(const Item& item, const Rows& rows, float (&o)[4][32], float (&m)[2], float (&l)[2]) {
    float scores[32];
    uint32_t prob[16];
    bool was_new = item.begin < item.new_tiles;
#pragma unroll 1
    for (int j = item.begin; j < item.end; j += 2) {
      keep_descriptors_low();
      const KeyTile first = key_tile(item, j);
      const KeyTile tile = key_tile(item, j + 1);
      const Place kb = scores_b();
      s.scores_issued.wait(rounds & 1);
      issue_scores(scores, kb, [&](int g) { release_scores(kb, g); });
      s.p_full[0].wait(rounds & 1);
      float now[2];
      get_p(prob, now, 0);
      rescale(o, l, m, now, was_new && first.prefix);
      was_new = !first.prefix;
      m[0] = now[0];
      m[1] = now[1];
      const Place va = values_a();
      issue_values<1>(o, prob, va);
      dev::wgmma_wait<4>();
      dev::pin(scores);
      release_scores(kb, T::kScoreChunks / T::kWaitGroup - 1);
      if (j + 2 >= item.end) arrive(s.q_empty);

      float scale[2];
      const float before[2] = {m[0], m[1]};
      tile_scales(tile, rows, scale);
      const bool exists = j + 1 < item.end;  // an odd walk ends with a tile of zeros
      limit_scores(scores, item, tile, rows, 1, exists);
      row_max(scores, m, scale);
      float sums[2] = {0.0f, 0.0f};
      exponentials(scores, m, sums, scale);
      uint32_t own[16];
      pack(own, scores);
      put_p(own, m, 1);
      dev::wgmma_wait<2>();
      release_values<1>(va, 0, 2);
      dev::wgmma_wait<0>();
      finish(o, prob);
      release_values<1>(va, 2, 4);
      // The exclusive or with a zero that the compiler cannot see keeps it from packing straight into registers that a product in flight reads.
#pragma unroll
      for (int i = 0; i < 16; ++i) prob[i] = own[i] ^ p.zero;
      rescale(o, l, before, m, was_new && tile.prefix && exists);
      was_new = !tile.prefix;
      l[0] += sums[0];
      l[1] += sums[1];
      const Place vb = values_b();
      issue_values<1>(o, prob, vb);
      dev::wgmma_wait<2>();
      release_values<1>(vb, 0, 2);
      dev::wgmma_wait<0>();
      finish(o, prob);
      release_values<1>(vb, 2, 4);
      next_round();
    }
  }

  template <int kWarpgroup>
  __device__ __forceinline__ void run() {
    uint32_t q_count = 0;
#pragma unroll 1
    for (uint32_t count = 0;; ++count) {
      const int at = count & 1;
      s.item_full[at].wait((count >> 1) & 1);
      const Item& item = s.item[at];
      if (item.rows == 0) break;
      float o[4][32], m[2] = {-INFINITY, -INFINITY}, l[2] = {0.0f, 0.0f};
#pragma unroll
      for (int c = 0; c < 4; ++c)
#pragma unroll
        for (int i = 0; i < 32; ++i) o[c][i] = 0.0f;
      if (item.begin < item.end) {
        const Rows rows = make_rows(p, item, warp, lane);
        s.q_full.wait(q_count & 1);
        ++q_count;
        dev::fence_async_shared();
        if constexpr (kWarpgroup == 0)
          first_warpgroup(item, rows, o, m, l);
        else
          second_warpgroup(item, rows, o, m, l);
      }
      store_rows<T, kWarpgroup>(p, s, item, o, m, l, at, warp, lane);
      arrive(s.item_empty[at]);
    }
  }
};

}  // namespace hyla::extend::sm90_latent
