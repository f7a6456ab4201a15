// Tiles of the portable variant: the one place that planner, launcher and kernel read. Pure constexpr.
#pragma once
#include <algorithm>
#include <cstdint>

namespace hyla::extend::sm80_mma {

constexpr int kWarps = 8, kThreads = 32 * kWarps;

// Warps form a grid of row groups (16 query rows each) by column groups. A column group computes the scores of its share of the keys and the
// output of its share of the value columns; weights pass through shared memory.
struct Tile {
  int row_groups, n, max_columns;  // query rows / 16; keys; widest Lv (the accumulators' registers)
  constexpr int m() const { return 16 * row_groups; }
  constexpr int column_groups() const { return kWarps / row_groups; }
  constexpr int keys_per_warp() const { return n / column_groups(); }
  constexpr int columns_per_warp() const { return max_columns / column_groups(); }
};

// Few instantiations: a narrow, a middle and a wide one, and a small one for chips with 99 KB of shared memory and wide heads.
constexpr Tile kTiles[] = {{4, 64, 128}, {4, 64, 256}, {4, 32, 512}, {2, 32, 576}};
constexpr int kTileCount = 4;

constexpr int kPad = 8;  // elements behind each row: an odd number of 16-byte units, so that ldmatrix meets no bank twice
constexpr int pad16(int64_t columns) { return static_cast<int>((columns + 15) / 16 * 16); }

// Bytes of shared memory with `buffers` tiles of K or V (they take turns in one ring).
constexpr int64_t buffer_elements(Tile t, int64_t Lq, int64_t Lv) { return int64_t(t.n) * (std::max(pad16(Lq), pad16(Lv)) + kPad); }
constexpr int64_t smem_bytes(Tile t, int64_t Lq, int64_t Lv, int buffers) {
  const int64_t q = int64_t(t.m()) * (pad16(Lq) + kPad) * 2, p = int64_t(t.m()) * (t.n + kPad) * 2;
  const int64_t stats = int64_t(t.column_groups()) * t.m() * 4, slots = int64_t(t.n) * 8 * buffers, seen = t.n;
  return q + buffers * buffer_elements(t, Lq, Lv) * 2 + p + stats + slots + seen;
}
constexpr int kMaxBuffers = 4;

}  // namespace hyla::extend::sm80_mma
