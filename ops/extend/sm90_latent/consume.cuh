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
  int warp, lane;              // within the warpgroup
  uint32_t q_desc, ring_desc;  // low words of matrix descriptors
  Place place;                 // first chunk of tile a
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

  // Queues P V for this warpgroup's 256 columns. With a shared V the warpgroup that made P has seen all of the tile arrive.
  template <int kWarpgroup>
  __device__ __forceinline__ void issue_values(typename T::Output& o, uint32_t (&prob)[16], Place tile) {
    uint32_t first[T::kValueParts];
#pragma unroll
    for (int part = 0; part < T::kValueParts; ++part) {
      const Place at = tile.after(T::value_position(kWarpgroup, part));
      first[part] = ring_desc + at.slot * (kChunkBytes / 16) + ((T::kValueStride * kChunkBytes / 16 - 1) << 16);
      if constexpr (!T::kSharedV) {
#pragma unroll
        for (int c = 0; c < T::kPartChunks; ++c) s.full[at.slot + c].wait(at.parity);
      }
    }
    if constexpr (!T::kSharedV) dev::fence_async_shared();
    dev::pin(prob);
#pragma unroll
    for (auto& part : o) dev::pin(part);
    dev::wgmma_fence();
#pragma unroll
    for (int part = 0; part < T::kValueParts; ++part) {
#pragma unroll
      for (int k = 0; k < 4; ++k) dev::wgmma_rs<typename T::ValuesOp>(o[part], prob + 4 * k, desc(first[part] + k * 128));
      dev::wgmma_commit();
    }
  }
  template <int kWarpgroup>
  __device__ __forceinline__ void release_part(Place tile, int part) {
    __syncwarp();
    if (lane == 0) {
      const int slot = tile.after(T::value_position(kWarpgroup, part)).slot;
#pragma unroll
      for (int c = 0; c < T::kPartChunks; ++c) s.empty[slot + c * T::kValueStride].arrive();
    }
  }
  // Waits for P V, the last thing queued, and gives its chunks back part by part.
  template <int kWarpgroup>
  __device__ __forceinline__ void finish_values(typename T::Output& o, uint32_t (&prob)[16], Place tile) {
    if constexpr (T::kValueParts == 2) {
      dev::wgmma_wait<1>();
      release_part<kWarpgroup>(tile, 0);
    }
    dev::wgmma_wait<0>();
    finish(o, prob);
    release_part<kWarpgroup>(tile, T::kValueParts - 1);
  }

  __device__ __forceinline__ static void scale_rows(typename T::Output& o, const float (&factor)[2]) {
#pragma unroll
    for (auto& part : o)
#pragma unroll
      for (int j = 0; j < T::kValueN / 8; ++j) {
        part[4 * j] *= factor[0];
        part[4 * j + 1] *= factor[0];
        part[4 * j + 2] *= factor[1];
        part[4 * j + 3] *= factor[1];
      }
  }
  // O moves to a new row maximum, and to the units of v_scale where the walk passes from new tokens to the prefix.
  __device__ __forceinline__ void rescale(typename T::Output& o, float (&l)[2], const float (&before)[2], const float (&now)[2], bool enters_prefix) {
    float factor[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      factor[e] = rescale_factor(before[e], now[e]);
      l[e] *= factor[e];
      if (enters_prefix) factor[e] *= p.v_scale_inverse;
    }
    scale_rows(o, factor);
  }

  // What the softmax of a tile needs besides the scores, gathered while these are computed.
  struct TileView {
    KeyTile tile;
    uint64_t keys;   // bit set: the key exists
    bool masked;     // some row hides some key
    float scale[2];  // to base-2 logits, a row
  };
  __device__ __forceinline__ TileView look_at(const Item& item, const KeyTile& tile, const Rows& rows, int half, bool exists) {
    TileView v;
    v.tile = tile;
    const int info = 2 * (rounds & 1) + half;
    s.info_full[info].wait((rounds >> 1) & 1);
    v.keys = !exists ? 0 : tile.prefix ? *reinterpret_cast<const volatile uint64_t*>(s.key_mask[info]) : ~0ull;
    v.masked = !fully_visible(item, tile, rows, v.keys);
    const float unit = p.cap_log2e > 0.0f ? p.cap_log2e : tile.prefix ? p.scale_prefix : p.scale_new;
    v.scale[0] = unit * rows.temperature[0];
    v.scale[1] = unit * rows.temperature[1];
    return v;
  }
  // Scores become P, m the new maximum, `sums` this thread's part of the row sums.
  __device__ __forceinline__ void soften(float (&scores)[32], const TileView& v, const Item& item, const Rows& rows, float (&m)[2], float (&sums)[2]) {
    if (p.cap_log2e > 0.0f) cap_scores(scores, v.tile.prefix ? p.scale_prefix : p.scale_new);
    if (v.masked) mask_scores(scores, p, item, v.tile, rows, v.keys, lane);
    row_max(scores, m, v.scale);
    sums[0] = sums[1] = 0.0f;
    exponentials(scores, m, sums, v.scale);
  }
  // After the wait for products on o with P in `prob`.
  static __device__ __forceinline__ void finish(typename T::Output& o, uint32_t (&prob)[16]) {
#pragma unroll
    for (auto& part : o) dev::pin(part);
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
  __device__ __forceinline__ void first_warpgroup(const Item& item, const Rows& rows, typename T::Output& o, float (&m)[2], float (&l)[2]) {
    float scores[32];
    uint32_t prob[16];
    bool was_new = item.begin < item.new_tiles;
#pragma unroll 1
    for (int j = item.begin; j < item.end; j += 2) {
      keep_descriptors_low();
      const KeyTile tile = key_tile(item, j);
      issue_scores(scores, place, [&](int g) { release_scores(place, g); });
      arrive(s.scores_issued);
      const TileView view = look_at(item, tile, rows, 0, true);
      dev::wgmma_wait<0>();
      dev::pin(scores);
      release_scores(place, T::kScoreChunks / T::kWaitGroup - 1);
      if (j + 2 >= item.end) arrive(s.q_empty);

      const float before[2] = {m[0], m[1]};
      float sums[2];
      soften(scores, view, item, rows, m, sums);
      pack(prob, scores);
      put_p(prob, m, 0);
      rescale(o, l, before, m, was_new && tile.prefix);
      was_new = !tile.prefix;
      l[0] += sums[0];
      l[1] += sums[1];
      const Place va = values_a();
      issue_values<0>(o, prob, va);
      finish_values<0>(o, prob, va);

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
      finish_values<0>(o, prob, vb);
      next_round();
    }
  }

  __device__ __forceinline__ void second_warpgroup(const Item& item, const Rows& rows, typename T::Output& o, float (&m)[2], float (&l)[2]) {
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
      const bool exists = j + 1 < item.end;  // an odd walk ends with a tile of zeros
      const TileView view = look_at(item, tile, rows, 1, exists);
      s.p_full[0].wait(rounds & 1);
      float now[2];
      get_p(prob, now, 0);
      rescale(o, l, m, now, was_new && first.prefix);
      was_new = !first.prefix;
      m[0] = now[0];
      m[1] = now[1];
      const Place va = values_a();
      issue_values<1>(o, prob, va);
      dev::wgmma_wait<T::kValueParts>();
      dev::pin(scores);
      release_scores(kb, T::kScoreChunks / T::kWaitGroup - 1);
      if (j + 2 >= item.end) arrive(s.q_empty);

      const float before[2] = {m[0], m[1]};
      float sums[2];
      soften(scores, view, item, rows, m, sums);
      uint32_t own[16];
      pack(own, scores);
      put_p(own, m, 1);
      finish_values<1>(o, prob, va);
      // The exclusive or with a zero that the compiler cannot see keeps it from packing straight into registers that a product in flight reads.
#pragma unroll
      for (int i = 0; i < 16; ++i) prob[i] = own[i] ^ p.zero;
      rescale(o, l, before, m, was_new && tile.prefix && exists);
      was_new = !tile.prefix;
      l[0] += sums[0];
      l[1] += sums[1];
      const Place vb = values_b();
      issue_values<1>(o, prob, vb);
      finish_values<1>(o, prob, vb);
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
      typename T::Output o;
      float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.0f, 0.0f};
#pragma unroll
      for (auto& part : o)
#pragma unroll
        for (float& x : part) x = 0.0f;
      if (item.begin < item.end) {
        const Rows rows = make_rows(p, item, warp, lane);
        s.q_full.wait(q_count & 1);
        ++q_count;
        dev::fence_async_shared();
        if constexpr (kWarpgroup == 0) first_warpgroup(item, rows, o, m, l);
        else second_warpgroup(item, rows, o, m, l);
      }
      store_rows<T, kWarpgroup>(p, s, item, o, m, l, at, warp, lane);
      arrive(s.item_empty[at]);
    }
  }
};

}  // namespace hyla::extend::sm90_latent
