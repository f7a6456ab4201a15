// Which key tiles a tile of queries visits. Plain integer functions, the same for planner, loader and consumers.
#pragma once
#include "params.h"

#if defined(__CUDACC__)
#define HYLA_HD __host__ __device__ __forceinline__
#else
#define HYLA_HD inline
#endif

namespace hyla::extend::sm90_fa {

// Tiles of new tokens hang from the last visible key (so that one tile holds the whole diagonal); tiles of the prefix are aligned from its start.
struct Span {
  int new_hi;  // one past the last visible new token
  int new_lo;  // first new token inside the window
  int new_tiles;
  int prefix_lo;   // first prefix key inside the window
  int prefix_end;  // one past the last prefix tile
  int prefix_tiles;
  HYLA_HD int tiles() const { return new_tiles + prefix_tiles; }
};

HYLA_HD int lower(int a, int b) { return a < b ? a : b; }
HYLA_HD int upper(int a, int b) { return a > b ? a : b; }

template <int kN>
HYLA_HD Span span_of(int n, int prefix, int q0, int tokens, int window, int ahead, bool skip_prefix, bool skip_new) {
  Span s;
  s.new_hi = lower(n, q0 + tokens + ahead);
  s.new_lo = window < 0 ? 0 : upper(0, q0 - window);
  s.new_tiles = skip_new ? 0 : (upper(0, s.new_hi - s.new_lo) + kN - 1) / kN;
  s.prefix_lo = window < 0 ? 0 : upper(0, prefix + q0 - window);
  s.prefix_end = (prefix + kN - 1) / kN;
  s.prefix_tiles = skip_prefix || s.prefix_lo >= prefix ? 0 : s.prefix_end - s.prefix_lo / kN;
  return s;
}

struct Tile {
  bool prefix;
  int first;  // key index within its segment; negative when a tile of new tokens hangs over the start
};

template <int kN>
HYLA_HD Tile tile_of(const Span& s, int t) {
  if (t < s.new_tiles) return {false, s.new_hi - (t + 1) * kN};
  return {true, (s.prefix_end - 1 - (t - s.new_tiles)) * kN};
}

// A whole tile of new tokens of one request can be fetched by the copy engine; anything else is gathered with zero fill.
template <int kN>
HYLA_HD bool whole_new_tile(const Tile& t, int n) {
  return !t.prefix && t.first >= 0 && t.first + kN <= n;
}

}  // namespace hyla::extend::sm90_fa
