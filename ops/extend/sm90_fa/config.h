// Tiles of the wgmma kernels and the shared memory they take: the one source for planner, launcher and kernel.
#pragma once
#include <cstdint>

namespace hyla::extend::sm90_fa {

constexpr int kTileM = 128;        // query rows of a block (token x packed heads): two consumer warpgroups of 64
constexpr int kThreads = 384;      // two consumer warpgroups and a loading one
constexpr int kMaxGroup = kTileM;  // query heads a KV head: all of them are packed into one tile
constexpr int kMaxBadWords = 4;    // one flag word per loading warp

enum class Pool { kSame, kE4m3, kE5m2 };  // element type of the prefix pool

struct Shape {
  int lq, lv;
  int tile_n;         // keys of a tile
  int stages;         // of K and of V
  bool ping_pong;     // the consumers take turns at the tensor cores: pays up to 128 columns of V
  bool late_rescale;  // O is rescaled under the next Q K^T instead of after P V: pays when O is 256 columns wide
};

// clang-format off
constexpr Shape kShapes[] = {
    { 64,  64, 128, 2, true,  false},
    { 96,  96, 128, 2, true,  false},
    {128, 128, 128, 2, true,  false},
    {192, 128, 128, 2, true,  false},
    {256, 256,  64, 2, false, true},
};
// clang-format on
constexpr int kShapeCount = sizeof(kShapes) / sizeof(kShapes[0]);

// fp8 pools need room for the raw bytes of one K and one V tile.
constexpr Shape shape_for(int index, Pool pool) {
  Shape s = kShapes[index];
  if (pool != Pool::kSame && s.lq > 128) s.tile_n = s.lq == 192 ? 96 : 64;
  return s;
}

constexpr int find_shape(int64_t lq, int64_t lv) {
  for (int i = 0; i < kShapeCount; ++i)
    if (kShapes[i].lq == lq && kShapes[i].lv == lv) return i;
  return -1;
}

// Width of a column panel in shared memory, which is also the swizzle: 128 bytes, or 64 where the row is no multiple of that.
constexpr int panel_bytes(int columns) { return columns * 2 % 128 == 0 ? 128 : 64; }

constexpr int64_t tile_bytes(const Shape& s) { return int64_t(kTileM) * s.lq * 2 + int64_t(s.stages) * s.tile_n * (s.lq + s.lv) * 2; }
// Barriers, two work items, per-stage flags of unreadable slots; rounded up.
constexpr int64_t side_bytes(const Shape& s) { return 8 * (4 * s.stages + 6) + 2 * 128 + s.stages * (16 + s.tile_n) + 128; }
constexpr int64_t smem_bytes(const Shape& s, Pool pool) {
  const int64_t raw = pool == Pool::kSame ? 0 : int64_t(s.tile_n) * (s.lq + s.lv);
  return (tile_bytes(s) + raw + side_bytes(s) + 1023) / 1024 * 1024;
}

}  // namespace hyla::extend::sm90_fa
