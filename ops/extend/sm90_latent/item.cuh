// A work item with everything derived from the request's lengths, decoded once by the producer and read by all roles from shared memory.
#pragma once
#include "config.h"
#include "params.h"

namespace hyla::extend::sm90_latent {

struct Item {
  int64_t q_row;     // first row of the request in q
  int64_t kv_index;  // first entry of the request in kv_indices
  int n, prefix;     // new tokens, prefix keys
  int first_row;     // 64 m_tile
  int rows;          // valid rows of the tile, 0 ends the kernel
  int head;
  int begin, end;                        // walk
  int new_tiles, new_last, prefix_last;  // walk position j < new_tiles: new tile new_last - j; else prefix tile prefix_last - (j - new_tiles)
  int key_lo, key_hi;                    // positions that some row of the tile may see
  int part;
};

__device__ __forceinline__ int64_t load_index(const void* base, bool is64, int64_t i) {
  return is64 ? __ldg(static_cast<const long long*>(base) + i) : int64_t(__ldg(static_cast<const int*>(base) + i));
}
__device__ __forceinline__ int64_t clamp64(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

// Lengths of a request, kept inside the tensors whatever the indptr arrays hold.
struct Lengths {
  int64_t q_row, kv_index;
  int n, prefix;
};
__device__ __forceinline__ Lengths request_lengths(const KernelParams& p, int request) {
  const int64_t q0 = clamp64(load_index(p.qo_indptr, p.qo_indptr64, request), 0, p.rows);
  const int64_t q1 = clamp64(load_index(p.qo_indptr, p.qo_indptr64, request + 1), q0, p.rows);
  const int64_t k0 = clamp64(load_index(p.kv_indptr, p.kv_indptr64, request), 0, p.indices);
  const int64_t k1 = clamp64(load_index(p.kv_indptr, p.kv_indptr64, request + 1), k0, p.indices);
  return {q0, k0, int(q1 - q0), int(k1 - k0)};
}

// The key tiles of a row tile: bounded by the diagonal, the window and what is skipped.
struct Walk {
  int new_tiles, new_last, prefix_tiles, prefix_last, key_lo, key_hi;
  __device__ __forceinline__ int tiles() const { return new_tiles + prefix_tiles; }
};
__device__ __forceinline__ Walk make_walk(const KernelParams& p, int n, int prefix, int first_token, int last_token) {
  Walk w{};
  const int lo = p.window >= 0 ? max(0, prefix + first_token - p.window) : 0;
  const int hi = prefix + min(n, last_token + 1 + p.ahead);
  w.key_lo = lo;
  w.key_hi = hi;
  if (!p.skip_extend) {
    const int a = max(0, lo - prefix) / kTileN, b = (hi - prefix + kTileN - 1) / kTileN;
    w.new_tiles = max(0, b - a);
    w.new_last = b - 1;
  }
  if (!p.skip_prefix && lo < prefix) {
    const int a = lo / kTileN, b = (prefix + kTileN - 1) / kTileN;
    w.prefix_tiles = b - a;
    w.prefix_last = b - 1;
  }
  return w;
}

__device__ __forceinline__ void decode_item(const KernelParams& p, const WorkItem& work, Item& item) {
  const Lengths len = request_lengths(p, work.request);
  const int first = work.m_tile * kTileM;
  const int rows = int(min(int64_t(kTileM), int64_t(len.n) * p.group - first));
  const Walk w = make_walk(p, len.n, len.prefix, first / p.group, (first + rows - 1) / p.group);
  item.q_row = len.q_row;
  item.kv_index = len.kv_index;
  item.n = len.n;
  item.prefix = len.prefix;
  item.first_row = first;
  item.rows = rows;
  item.head = work.head;
  item.begin = min(work.begin, w.tiles());
  item.end = min(work.end, w.tiles());
  item.new_tiles = w.new_tiles;
  item.new_last = w.new_last;
  item.prefix_last = w.prefix_last;
  item.key_lo = w.key_lo;
  item.key_hi = w.key_hi;
  item.part = work.part;
}

// One key tile of the walk.
struct KeyTile {
  bool prefix;
  int first;     // key within its segment
  int position;  // of that key
};
__device__ __forceinline__ KeyTile key_tile(const Item& item, int j) {
  const bool prefix = j >= item.new_tiles;
  const int first = kTileN * (prefix ? item.prefix_last - (j - item.new_tiles) : item.new_last - j);
  return {prefix, first, prefix ? first : item.prefix + first};
}

}  // namespace hyla::extend::sm90_latent
