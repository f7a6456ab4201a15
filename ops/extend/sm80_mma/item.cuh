// What one block does: which request, KV head, query rows and key range. Lengths are read here, on the device.
#pragma once
#include <cstdint>

#include "params.h"

namespace hyla::extend::sm80_mma {

__device__ __forceinline__ int64_t read(Indices x, int64_t i) {
  return x.wide ? static_cast<const int64_t*>(x.data)[i] : static_cast<const int32_t*>(x.data)[i];
}

struct Item {
  int request, head;                                   // KV head
  int64_t row0, rows;                                  // first packed row (token * group + head in group) and packed rows of the request
  int64_t token0, tokens;                              // first row of q, new tokens
  int64_t prefix0, prefix;                             // first entry of kv_indices, prefix keys
  int64_t prefix_lo, prefix_hi, extend_lo, extend_hi;  // keys that some row of the tile may see
  int64_t prefix_tiles, tiles;                         // key tiles: prefix first, then new keys
  int64_t tile_begin, tile_end;                        // this part's
  int part, parts;
};

__device__ __forceinline__ int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

// Number of parts that the keys of a row tile are cut into: a function of its own lengths alone.
__device__ __forceinline__ int parts_of(int64_t tiles, int splits) {
  constexpr int64_t kMinTiles = 4;
  const int64_t most = tiles / kMinTiles;
  return static_cast<int>(most < 1 ? 1 : most < splits ? most : splits);
}

__device__ inline void find_keys(const Params& p, int m, int n, Item& it) {
  const int64_t first = it.row0 / p.group, end_row = it.row0 + m < it.rows ? it.row0 + m : it.rows, last = (end_row - 1) / p.group;
  it.prefix_lo = 0, it.prefix_hi = p.skip_prefix ? 0 : it.prefix;
  it.extend_lo = 0, it.extend_hi = p.skip_extend ? 0 : it.tokens;
  if (p.mask == nullptr && p.causal && it.extend_hi > last + 1) it.extend_hi = last + 1;
  if (p.window >= 0) {
    it.prefix_lo = clamp(it.prefix + first - p.window, 0, it.prefix_hi);
    it.extend_lo = clamp(first - p.window, 0, it.extend_hi);
    if (p.mask == nullptr && !p.causal && it.extend_hi > last + p.window + 1) it.extend_hi = last + p.window + 1;
  }
  // Tiles start at multiples of n, so that they hold the same keys whatever the rows.
  const int64_t prefix_first = it.prefix_lo / n, extend_first = it.extend_lo / n;
  it.prefix_tiles = it.prefix_hi > it.prefix_lo ? (it.prefix_hi + n - 1) / n - prefix_first : 0;
  it.tiles = it.prefix_tiles + (it.extend_hi > it.extend_lo ? (it.extend_hi + n - 1) / n - extend_first : 0);
}

// The block's row tile on its `lap`-th pass; false when the request has no such rows.
__device__ inline bool find_rows(const Params& p, int m, int64_t lap, Item& it) {
  int64_t b = blockIdx.x;
  it.part = static_cast<int>(b % p.splits), b /= p.splits;
  it.head = static_cast<int>(b % p.Hkv), b /= p.Hkv;
  it.request = static_cast<int>(b % p.batch), b /= p.batch;
  const int64_t m_tile = p.m_tiles - 1 - b + lap * p.m_tiles;  // the longest rows first
  // Indptrs are clamped to the arrays, so that nothing is read or written outside whatever they hold.
  it.token0 = clamp(read(p.qo_indptr, it.request), 0, p.rows);
  it.tokens = clamp(read(p.qo_indptr, it.request + 1), it.token0, p.rows) - it.token0;
  it.row0 = m_tile * m, it.rows = it.tokens * p.group;
  if (it.row0 >= it.rows) return false;
  it.prefix0 = clamp(read(p.kv_indptr, it.request), 0, p.prefix_capacity);
  it.prefix = clamp(read(p.kv_indptr, it.request + 1), it.prefix0, p.prefix_capacity) - it.prefix0;
  return true;
}

// The block's share of the keys; false when the row tile is cut into fewer parts.
__device__ inline bool find_part(const Params& p, int m, int n, Item& it) {
  find_keys(p, m, n, it);
  it.parts = parts_of(it.tiles, p.splits);
  if (it.part >= it.parts) return false;
  it.tile_begin = it.tiles * it.part / it.parts;
  it.tile_end = it.tiles * (it.part + 1) / it.parts;
  return true;
}

struct KeyTile {
  bool prefix;
  int64_t first, lo, hi;  // first key; keys outside [lo, hi) are not loaded (zeros stand for them)
};
__device__ __forceinline__ KeyTile key_tile(const Item& it, int64_t tile, int n) {
  if (tile < it.prefix_tiles) return {true, (it.prefix_lo / n + tile) * n, it.prefix_lo, it.prefix_hi};
  return {false, (it.extend_lo / n + tile - it.prefix_tiles) * n, it.extend_lo, it.extend_hi};
}

}  // namespace hyla::extend::sm80_mma
