// The loading warpgroup: hands out units, fetches Q, K and V. Rows come by cp.async (prefix slots, partial tiles) or by the copy engine.
#pragma once
#include "fp8.cuh"
#include "smem.cuh"

namespace hyla::extend::sm90_fa {

// The rows one warp fetches of a tile: lane l keeps row l.
struct RowSet {
  uint32_t k, v;  // this lane's row, in units of its tensor
  uint32_t live;  // bit r: row r is inside the segment and its slot inside the pool
};

// Hides a value's origin, so that what is derived from it is computed anew at every use instead of living in registers across the loop:
// the loading warpgroup has few.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// 16-byte copies of kRows rows a warp into a swizzled tile of kTileRows rows. A dead row is filled with zeros.
template <int kPanel, int kPanels, int kTileRows, int kRows, bool kFill>
__device__ __forceinline__ void copy_rows(uint32_t tile, const uint8_t* base, uint32_t unit, uint32_t offset, uint32_t live, int warp, int lane) {
  constexpr int kLanes = kPanel / 16, kStep = 32 / kLanes;  // lanes a row, rows an instruction
  static_assert(kRows % kStep == 0);
  const int r = lane / kLanes, u = lane % kLanes;
  const int row0 = warp * kRows + r;
  // Row distance kStep flips bit 2 of the 128-byte swizzle and leaves the 64-byte one alone.
  const uint32_t swz = kPanel == 128 ? (u ^ (row0 & 7)) : (u ^ ((row0 >> 1) & 3));
  const uint32_t dst0 = tile + row0 * kPanel + swz * 16, dst1 = kPanel == 128 ? dst0 ^ 64 : dst0;
  base += u * 16;
#pragma unroll(kPanels > 3 ? 2 : 8)
  for (int g = 0; g < kRows / kStep; ++g) {
    const uint32_t off = __shfl_sync(0xffffffffu, offset, g * kStep + r);
    const uint8_t* src = base + uint64_t(off) * unit;
    const uint32_t dst = (g & 1 ? dst1 : dst0) + g * kStep * kPanel;
    const bool valid = live >> (g * kStep + r) & 1;
#pragma unroll
    for (int j = 0; j < kPanels; ++j) {
      if constexpr (kFill) cp_async16_zfill(dst + j * kTileRows * kPanel, src + j * kPanel, valid);
      else cp_async16(dst + j * kTileRows * kPanel, src + j * kPanel);
    }
  }
}

template <int kPanel, int kPanels, int kTileRows, int kRows>
__device__ __forceinline__ void gather_rows(uint32_t tile, const uint8_t* base, uint32_t unit, uint32_t offset, uint32_t live, int warp, int lane) {
  lane = opaque(lane), warp = opaque(warp);
  constexpr uint32_t kAll = kRows == 32 ? 0xffffffffu : (1u << kRows) - 1;
  if (live == kAll) copy_rows<kPanel, kPanels, kTileRows, kRows, false>(tile, base, unit, offset, live, warp, lane);
  else copy_rows<kPanel, kPanels, kTileRows, kRows, true>(tile, base, unit, offset, live, warp, lane);
}

// This warp's rows of a K or V tile, and every thread's arrival.
template <class C, int kPanel, int kPanels>
__device__ __forceinline__ void fetch_rows(bool prefix, const Matrix& m, uint32_t dst, uint32_t raw, int head, uint32_t offset, uint32_t live, Barrier& full,
                                           int warp, int lane) {
  const uint8_t* base = static_cast<const uint8_t*>(m.data) + opaque(head) * m.head;
  if constexpr (C::kFp8) {
    if (prefix) {
      widen_raw<typename C::Element, C::kPool, kPanel, kPanels, C::kN, C::kRowsPerWarp>(dst, raw, opaque(warp), opaque(lane));
      fence_async_shared();
      full.arrive();
      return;
    }
  }
  gather_rows<kPanel, kPanels, C::kN, C::kRowsPerWarp>(dst, base, m.unit, offset, live, warp, lane);
  full.arrive_on_cp_async();
}

// Starts fetching an fp8 tile of the prefix; one group of copies, empty for other tiles.
template <class C, int kPanel, int kPanels>
__device__ __forceinline__ void prefetch_raw(const Matrix& pool, const Tile& t, uint32_t raw, int head, uint32_t offset, uint32_t live, int warp, int lane) {
  if (t.prefix)
    fetch_raw<kPanel, kPanels, C::kRowsPerWarp>(raw, static_cast<const uint8_t*>(pool.data) + opaque(head) * pool.head, pool.unit, offset, live, opaque(warp),
                                                opaque(lane));
  cp_async_commit();
}

// A slot as it lies in kv_indices. Kept raw until it is used, so that the load stays in flight for a whole tile.
struct RawSlot {
  uint32_t lo, hi;
};
template <class C>
__device__ __forceinline__ RawSlot read_slot(const Params& p, const Unit& w, const Span& span, int index, int warp, int lane) {
  RawSlot s{0xffffffffu, 0};
  lane = opaque(lane);
  const Tile t = tile_of<C::kN>(span, index);
  const int key = t.first + warp * C::kRowsPerWarp + (lane < C::kRowsPerWarp ? lane : 0);
  if (t.prefix && key >= span.prefix_lo && key < w.prefix) {
    const int64_t at = w.kv_begin + key;
    if (p.indices64) {
      const uint2 x = __ldg(static_cast<const uint2*>(p.kv_indices) + at);
      s = {x.x, x.y};
    } else {
      s.lo = __ldg(static_cast<const uint32_t*>(p.kv_indices) + at);
    }
  }
  return s;
}

__device__ __forceinline__ uint32_t pool_offset(const Params& p, const Matrix& m, uint32_t slot) {
  if (p.page_size == 1) return slot * m.per_row;
  const uint32_t page = p.page_shift >= 0 ? slot >> p.page_shift : slot / uint32_t(p.page_size);
  return page * m.per_page + (slot - page * uint32_t(p.page_size)) * m.per_row;
}

// Row offsets of one tile; sets `bad` when a key of the segment has no readable slot.
template <class C>
__device__ __forceinline__ RowSet locate_rows(const Params& p, const Unit& w, const Span& span, const Tile& t, RawSlot raw, int warp, int lane, bool& live,
                                              bool& bad) {
  lane = opaque(lane);
  const int key = t.first + warp * C::kRowsPerWarp + lane;
  const bool mine = lane < C::kRowsPerWarp;
  RowSet rows{0, 0, 0};
  if (t.prefix) {
    const bool inside = mine && key >= span.prefix_lo && key < w.prefix;
    live = inside && raw.hi == 0 && raw.lo < uint64_t(p.slots);
    bad = inside && !live;
    if (live) {
      rows.k = pool_offset(p, p.k_pool, raw.lo);
      rows.v = pool_offset(p, p.v_pool, raw.lo);
    }
  } else {
    live = mine && key >= span.new_lo && key < span.new_hi;
    bad = false;
    if (live) {
      rows.k = uint32_t(w.new_row + key) * p.k.per_row;
      rows.v = uint32_t(w.new_row + key) * p.v.per_row;
    }
  }
  rows.live = __ballot_sync(0xffffffffu, live);
  return rows;
}

__device__ __forceinline__ void tma_tile(uint32_t dst, const TensorMap& map, int column, int head, int row, Barrier& full) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(dst), "l"(&map), "r"(column),
               "r"(head), "r"(row), "r"(smem_addr(&full))
               : "memory");
}
__device__ __forceinline__ void arrive_many(Barrier& b, uint32_t count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr(&b)), "r"(count) : "memory");
}

// Copies work index `index` (unit and KV head) to shared memory slot `at`; one thread.
template <class C>
__device__ __forceinline__ void publish_unit(const Params& p, Smem<C>& s, int index, int at) {
  const int units = __ldcg(&p.header->units), head_group = __ldcg(&p.header->head_group);
  const int per_group = units * head_group, group = per_group > 0 ? index / per_group : 0;
  if (units == 0 || group * head_group >= p.kv_heads) {
    s.head[at] = -1;
  } else {
    const int rest = index - group * per_group, unit = rest / head_group;
    const uint4* src = reinterpret_cast<const uint4*>(p.units + unit);
    uint4* dst = reinterpret_cast<uint4*>(&s.unit[at]);
#pragma unroll
    for (int i = 0; i < 4; ++i) dst[i] = __ldcg(src + i);
    s.head[at] = group * head_group + rest - unit * head_group;
  }
  s.unit_full[at].arrive();
}

// Q rows of a unit: row r is head r % G of token r / G.
template <class C>
__device__ __forceinline__ void load_q(const Params& p, Smem<C>& s, const Unit& w, int head, int warp, int lane) {
  const int row = warp * 32 + opaque(lane), token = row / p.group;
  const bool valid = token < w.tokens;
  const uint32_t offset = valid ? uint32_t(w.q_row + token) * p.q.per_row + uint32_t(head * p.group + row % p.group) * p.q_per_head : 0;
  const uint32_t live = __ballot_sync(0xffffffffu, valid);
  gather_rows<C::kPanelQ, C::kPanelsQ, kTileM, 32>(smem_addr(s.q), static_cast<const uint8_t*>(p.q.data), p.q.unit, offset, live, warp, lane);
  s.q_full.arrive_on_cp_async();
}

template <class C>
__device__ __forceinline__ void load_k(const Params& p, Smem<C>& s, const Unit& w, const Tile& t, int head, const RowSet& rows, bool live, bool bad,
                                       RingState<C::kStages>& ring, int warp, int lane) {
  Barrier& full = s.k_full[ring.index];
  s.k_empty[ring.index].wait(ring.parity ^ 1);
  const uint32_t dst = smem_addr(s.k[ring.index]);
  if (p.use_tma && whole_new_tile<C::kN>(t, w.n)) {
    if (warp == 0 && lane == 0) {
      full.expect_tx(C::kN * C::kLq * 2);
#pragma unroll
      for (int j = 0; j < C::kPanelsQ; ++j) tma_tile(dst + j * C::kN * C::kPanelQ, p.k_map, j * C::kPanelQ / 2, head, int(w.new_row) + t.first, full);
      arrive_many(full, 128 + kLoaderWarps);
    }
  } else {
    fetch_rows<C, C::kPanelQ, C::kPanelsQ>(t.prefix, t.prefix ? p.k_pool : p.k, dst, smem_addr(s.raw_k), head, rows.k, rows.live, full, warp, lane);
    if (t.prefix) {
      const bool any_bad = __any_sync(0xffffffffu, bad);
      // Always: a bad row in another warp's share makes the consumers read the flags of all rows.
      if (lane < C::kRowsPerWarp) s.live[ring.index][warp * C::kRowsPerWarp + lane] = live;
      if (lane == 0) s.bad[ring.index][warp] = any_bad;
    }
    release(full, lane);
  }
  ring.advance();
}

template <class C>
__device__ __forceinline__ void load_v(const Params& p, Smem<C>& s, const Unit& w, const Tile& t, int head, const RowSet& rows, RingState<C::kStages>& ring,
                                       int warp, int lane) {
  Barrier& full = s.v_full[ring.index];
  s.v_empty[ring.index].wait(ring.parity ^ 1);
  const uint32_t dst = smem_addr(s.v[ring.index]);
  if (p.use_tma && whole_new_tile<C::kN>(t, w.n)) {
    if (warp == 0 && lane == 0) {
      full.expect_tx(C::kN * C::kLv * 2);
#pragma unroll
      for (int j = 0; j < C::kPanelsV; ++j) tma_tile(dst + j * C::kN * C::kPanelV, p.v_map, j * C::kPanelV / 2, head, int(w.new_row) + t.first, full);
      arrive_many(full, 128);
    }
  } else {
    fetch_rows<C, C::kPanelV, C::kPanelsV>(t.prefix, t.prefix ? p.v_pool : p.v, dst, smem_addr(s.raw_v), head, rows.v, rows.live, full, warp, lane);
  }
  ring.advance();
}

// Order of a unit: K(0), Q, K(1), V(0), K(2), V(1), ... so that Q K^T runs one tile ahead of P V.
template <class C>
__device__ __forceinline__ void load_unit(const Params& p, Smem<C>& s, const Unit& w, int head, RingState<C::kStages>& k_ring, RingState<C::kStages>& v_ring,
                                          uint32_t& q_parity, int warp, int lane) {
  const int count = w.t1 - w.t0;
  if (count == 0) return;
  // The span is computed anew for every tile: it is cheap, and this warpgroup has few registers.
  const auto span = [&] { return span_of<C::kN>(w.n, w.prefix, w.q0, w.tokens, p.window, p.ahead, p.skip_prefix, p.skip_new); };
  RowSet behind{}, here{};
  bool live, bad;
  // Row i of the work list: slots are read one tile ahead, with an fp8 pool two, because its raw bytes are fetched one tile ahead.
  RawSlot slot = read_slot<C>(p, w, span(), w.t0, warp, lane);
  if constexpr (C::kFp8) {
    here = locate_rows<C>(p, w, span(), tile_of<C::kN>(span(), w.t0), slot, warp, lane, live, bad);
    if (count > 1) slot = read_slot<C>(p, w, span(), w.t0 + 1, warp, lane);
    prefetch_raw<C, C::kPanelQ, C::kPanelsQ>(p.k_pool, tile_of<C::kN>(span(), w.t0), smem_addr(s.raw_k), head, here.k, here.live, warp, lane);
  }
#pragma unroll 1
  for (int i = 0; i <= count; ++i) {
    RowSet next{};
    if constexpr (C::kFp8) {
      if (i < count) {
        // Groups in flight: this K, then V of the tile before (none yet at first).
        if (i == 0) cp_async_wait<0>();
        else cp_async_wait<1>();
        load_k<C>(p, s, w, tile_of<C::kN>(span(), w.t0 + i), head, here, live, bad, k_ring, warp, lane);
      }
      bool next_live = false, next_bad = false;
      if (i + 1 < count) {
        const Tile ahead = tile_of<C::kN>(span(), w.t0 + i + 1);
        next = locate_rows<C>(p, w, span(), ahead, slot, warp, lane, next_live, next_bad);
        if (i + 2 < count) slot = read_slot<C>(p, w, span(), w.t0 + i + 2, warp, lane);
        prefetch_raw<C, C::kPanelQ, C::kPanelsQ>(p.k_pool, ahead, smem_addr(s.raw_k), head, next.k, next.live, warp, lane);
      } else {
        cp_async_commit();
      }
      live = next_live, bad = next_bad;
    } else if (i < count) {
      const Span now = span();
      const Tile tile = tile_of<C::kN>(now, w.t0 + i);
      here = locate_rows<C>(p, w, now, tile, slot, warp, lane, live, bad);
      if (i + 1 < count) slot = read_slot<C>(p, w, now, w.t0 + i + 1, warp, lane);
      load_k<C>(p, s, w, tile, head, here, live, bad, k_ring, warp, lane);
    }
    if (i == 0) {
      s.q_empty.wait(q_parity ^ 1);
      load_q<C>(p, s, w, head, warp, lane);
      q_parity ^= 1;
    } else {
      if constexpr (C::kFp8) cp_async_wait<1>();  // all but K of the next tile
      load_v<C>(p, s, w, tile_of<C::kN>(span(), w.t0 + i - 1), head, behind, v_ring, warp, lane);
    }
    if constexpr (C::kFp8) {
      if (i < count)
        prefetch_raw<C, C::kPanelV, C::kPanelsV>(p.v_pool, tile_of<C::kN>(span(), w.t0 + i), smem_addr(s.raw_v), head, here.v, here.live, warp, lane);
    }
    behind = here;
    if constexpr (C::kFp8) here = next;
  }
}

template <class C>
__device__ __forceinline__ void run_loader(const Params& p, Smem<C>& s) {
  const int lane = threadIdx.x & 31, warp = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0) - kConsumerWarps;
  const bool first = warp == 0 && lane == 0;
  RingState<C::kStages> k_ring, v_ring;
  RingState<2> unit_ring;
  uint32_t q_parity = 0;
  int next = blockIdx.x;
  if (first) publish_unit<C>(p, s, next, 0);
  for (;;) {
    s.unit_full[unit_ring.index].wait(unit_ring.parity);
    const int head = s.head[unit_ring.index];
    if (head < 0) break;
    if (first) next = atomicAdd(&p.header->next, 1);  // in flight while the unit loads
    load_unit<C>(p, s, s.unit[unit_ring.index], head, k_ring, v_ring, q_parity, warp, lane);
    release(s.unit_empty[unit_ring.index], lane);
    unit_ring.advance();
    if (first) {
      s.unit_empty[unit_ring.index].wait(unit_ring.parity ^ 1);
      publish_unit<C>(p, s, next, unit_ring.index);
    }
  }
  // Copies still in flight must land before the block's shared memory goes to another one.
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace hyla::extend::sm90_fa
