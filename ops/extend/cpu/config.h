// Tiles of the CPU backend and the one routine that lays out its workspace.
#pragma once
#include <cstddef>
#include <cstdint>

#include "hyla/extend.h"
#include "hyla/workspace.h"

namespace hyla::extend::cpu {

struct Tile {
  int64_t m = 0;  // query rows: token x head of a KV head's group
  int64_t n = 0;  // keys
};

// Q, K, V, S and O of a tile stay in a core's second-level cache (1 MB); scratch memory stays under 64 MB up to 64 threads. The choice depends on the
// head dimensions alone, so that results do not depend on the machine's number of threads.
constexpr Tile tile_of(int64_t Lq, int64_t Lv) {
  const int64_t columns = Lq + Lv;
  if (columns <= 256) return {192, 128};
  if (columns <= 512) return {128, 128};
  return {96, 64};
}

// One worker's buffers, all fp32, rows contiguous.
struct Scratch {
  float* q = nullptr;        // [m, Lq]
  float* k = nullptr;        // [n, Lq]
  float* v = nullptr;        // [n, Lv]
  float* s = nullptr;        // [m, n]: scores, then weights
  float* o = nullptr;        // [m, Lv]
  float* row_max = nullptr;  // [m]
  float* row_sum = nullptr;  // [m]
};

inline Scratch take_scratch(WorkspaceLayout& layout, const Problem& p) {
  const Tile tile = tile_of(p.Lq, p.Lv);
  Scratch s;
  s.q = layout.take<float>(tile.m * p.Lq);
  s.k = layout.take<float>(tile.n * p.Lq);
  s.v = layout.take<float>(tile.n * p.Lv);
  s.s = layout.take<float>(tile.m * tile.n);
  s.o = layout.take<float>(tile.m * p.Lv);
  s.row_max = layout.take<float>(tile.m);
  s.row_sum = layout.take<float>(tile.m);
  return s;
}

// The whole workspace: where each request's row tiles start in the list of work, and every worker's scratch. A null base counts bytes.
struct Buffers {
  int64_t* tile_start = nullptr;  // [batch + 1]
  std::byte* scratch = nullptr;   // [threads][scratch_bytes]
  size_t scratch_bytes = 0;
  size_t bytes = 0;
};

inline Buffers place_buffers(void* base, const Problem& p, int threads) {
  WorkspaceLayout one;
  take_scratch(one, p);
  WorkspaceLayout layout(base);
  Buffers b;
  b.scratch_bytes = one.bytes();
  b.tile_start = layout.take<int64_t>(p.batch + 1);
  b.scratch = layout.take<std::byte>(static_cast<int64_t>(b.scratch_bytes) * threads);
  b.bytes = layout.bytes();
  return b;
}

}  // namespace hyla::extend::cpu
