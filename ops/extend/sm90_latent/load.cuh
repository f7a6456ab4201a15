// The producer warpgroup: takes work items, gathers Q rows and K/V rows chunk by chunk into swizzled shared memory.
//
// Warp w owns rows 16 w .. 16 w + 15 of every chunk; one instruction copies 4 rows x 128 bytes. Rows that no query of the item may see,
// and slots outside the pool, are written as zeros, so that nothing foreign (NaN) reaches P V.
#pragma once
#include "cuda/device/copy.cuh"
#include "smem.cuh"
#include "traits.cuh"

namespace hyla::extend::sm90_latent {

constexpr uint32_t kAllLanes = 0xffffffffu;

// Addresses of the four rows a lane copies from, and which of them exist.
struct RowSources {
  const uint8_t* row[4];
  uint32_t valid;  // bit g
};

// Each lane below (or above) 16 brings the address of one row; `upper` picks the half.
__device__ __forceinline__ RowSources spread_rows(const uint8_t* mine, bool valid, int upper, int lane) {
  RowSources r;
  const uint32_t votes = __ballot_sync(kAllLanes, valid) >> (16 * upper);
  r.valid = 0;
#pragma unroll
  for (int g = 0; g < 4; ++g) {
    const int source = 4 * g + (lane >> 3);
    r.row[g] = reinterpret_cast<const uint8_t*>(__shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(mine), source + 16 * upper)) + (lane & 7) * 16;
    r.valid |= ((votes >> source) & 1) << g;
  }
  return r;
}

// Destination of a lane within a chunk: row 4 g + lane / 8 of the warp's 16, 16-byte unit lane % 8, 128-byte swizzle.
struct ChunkTarget {
  uint32_t even, odd;
  __device__ __forceinline__ ChunkTarget(uint32_t base, int warp, int lane) {
    const int row = lane >> 3, unit = lane & 7;
    even = base + warp * 2048 + row * 128 + ((unit ^ row) << 4);
    odd = base + warp * 2048 + row * 128 + ((unit ^ (row + 4)) << 4);
  }
};

__device__ __forceinline__ void copy_chunk(ChunkTarget target, uint32_t chunk, const RowSources& r, int64_t column_bytes) {
#pragma unroll
  for (int g = 0; g < 4; ++g)
    dev::cp_async16_zfill(((g & 1) ? target.odd : target.even) + chunk * kChunkBytes + g * 512, r.row[g] + column_bytes, (r.valid >> g) & 1);
}

template <class T>
struct Producer {
  const KernelParams& p;
  SharedStorage<T>& s;
  int warp, lane;
  ChunkTarget ring_target;
  RingPlace<T::kSlots> place;
  uint32_t tiles_sent = 0;

  __device__ __forceinline__ Producer(const KernelParams& p, SharedStorage<T>& s, int warp, int lane)
      : p(p), s(s), warp(warp), lane(lane), ring_target(dev::smem_addr(s.ring), warp, lane) {}

  __device__ __forceinline__ void load_q(const Item& item, uint32_t parity) {
    const int r = warp * 16 + (lane & 15);
    const bool valid = r < item.rows;
    const int row = item.first_row + (valid ? r : 0);
    const int token = row / p.group;
    const RowSources rows =
        spread_rows(p.q + (item.q_row + token) * p.q_stride.token + (int64_t(item.head) * p.group + row - token * p.group) * p.q_stride.head, valid, 0, lane);
    const ChunkTarget target(dev::smem_addr(s.q), warp, lane);
    s.q_empty.wait(parity ^ 1);
#pragma unroll
    for (int c = 0; c < T::kScoreChunks; ++c) copy_chunk(target, c, rows, c * 128);
    s.q_full.arrive_on_cp_async();
  }

  // Slot of this lane's row (lanes 0-15: tile j, 16-31: tile j + 1); -1: no such key, or a new token.
  __device__ __forceinline__ int64_t fetch_slot(const Item& item, int j) const {
    j += lane >> 4;
    if (j >= item.end) return -1;
    const KeyTile tile = key_tile(item, j);
    const int key = tile.first + warp * 16 + (lane & 15);
    if (!tile.prefix || key < item.key_lo || key >= item.prefix) return -1;
    return load_index(p.kv_indices, p.kv_indices64, item.kv_index + key);
  }

  struct KeyRow {
    const uint8_t *k, *v;
    bool valid;
  };
  __device__ __forceinline__ KeyRow key_row(const Item& item, int j, int64_t slot) const {
    const bool exists = j + (lane >> 4) < item.end;
    const KeyTile tile = key_tile(item, exists ? j + (lane >> 4) : j);
    const int row = warp * 16 + (lane & 15);
    if (!tile.prefix) {
      const int position = tile.position + row;
      const bool valid = exists && position >= item.key_lo && position < item.key_hi;
      const int64_t token = item.q_row + (valid ? tile.first + row : 0);
      return {p.k + token * p.k_stride.token + item.head * p.k_stride.head, p.v + token * p.v_stride.token + item.head * p.v_stride.head, valid};
    }
    const bool valid = exists && slot >= 0 && slot < p.slots;
    int64_t page = 0, token = valid ? slot : 0;
    if (p.page_size > 1) {
      page = uint32_t(token) / uint32_t(p.page_size);  // can_run keeps slots below 2^31
      token -= page * p.page_size;
    }
    return {p.k_pool + page * p.k_pool_stride.page + token * p.k_pool_stride.token + item.head * p.k_pool_stride.head,
            p.v_pool + page * p.v_pool_stride.page + token * p.v_pool_stride.token + item.head * p.v_pool_stride.head, valid};
  }

  __device__ __forceinline__ void send(int position, const RowSources& rows, int64_t column_bytes) {
    const auto at = place.after(position);
    s.empty[at.slot].wait(at.parity ^ 1);
    copy_chunk(ring_target, at.slot, rows, column_bytes);
    s.full[at.slot].arrive_on_cp_async();
  }
  // The keys that exist, for the softmax; a masked row of scores costs nothing when all do.
  __device__ __forceinline__ void send_info(uint32_t votes) {
    if (lane == 0) {
      s.key_mask[tiles_sent % kTileInfos][warp] = uint16_t(votes);
      s.info_full[tiles_sent % kTileInfos].arrive();
    }
    ++tiles_sent;
  }
  __device__ __forceinline__ void send_scores(const RowSources& rows) {
#pragma unroll
    for (int j = 0; j < T::kScoreChunks; ++j) send(j, rows, T::score_chunk(j) * 128);
    place = place.after(T::kScoreChunks);
  }
  __device__ __forceinline__ void send_values(const RowSources& rows) {
#pragma unroll
    for (int j = 0; j < kVChunks; ++j) send(j, rows, T::value_chunk(j) * 128);
    place = place.after(kVChunks);
  }

  __device__ __forceinline__ void load_tiles(const Item& item) {
    int64_t slot = fetch_slot(item, item.begin);
#pragma unroll 1
    for (int j = item.begin; j < item.end; j += 2) {
      const KeyRow mine = key_row(item, j, slot);
      const uint32_t votes = __ballot_sync(kAllLanes, mine.valid);
      slot = fetch_slot(item, j + 2);
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        const RowSources rows = spread_rows(mine.k, mine.valid, half, lane);
        // The mask's slot is free once the ring has room for this tile: its last reader released a chunk before it.
        s.empty[place.slot].wait(place.parity ^ 1);
        send_info(votes >> (16 * half));
        send_scores(rows);
      }
      if constexpr (!T::kSharedV) {
#pragma unroll 1
        for (int half = 0; half < 2; ++half) send_values(spread_rows(mine.v, mine.valid, half, lane));
      }
    }
  }

  __device__ __forceinline__ void run() {
    uint32_t count = 0, q_count = 0;
    while (true) {
      const int at = count & 1;
      const uint32_t parity = (count >> 1) & 1;
      Item& item = s.item[at];
      if (warp == 0) {
        if (lane == 0) {
          s.item_empty[at].wait(parity ^ 1);
          const int next = atomicAdd(p.item_next, 1);
          if (next < *p.item_count) decode_item(p, p.items[next], item);
          else item.rows = 0;
          s.item_full[at].arrive();
        }
        __syncwarp();
      }
      s.item_full[at].wait(parity);
      if (item.rows == 0) break;
      if (item.begin < item.end) {
        load_q(item, q_count & 1);
        ++q_count;
        load_tiles(item);
      }
      __syncwarp();
      if (warp != 0 && lane == 0) s.item_empty[at].arrive();
      ++count;
    }
    dev::cp_async_wait_all();
  }
};

}  // namespace hyla::extend::sm90_latent
