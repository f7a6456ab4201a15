// The list of work, made on the device because lengths live there: row tiles of all requests, longest first, cut along the keys when there
// are too few of them; and the exact merge of what was cut.
#pragma once
#include <cstdint>

#include "config.h"
#include "params.h"

namespace hyla::extend::sm90_latent {

// Row tile whose parts [first_part, first_part + parts) must be merged.
struct MergeItem {
  int32_t request, head, m_tile, first_part, parts;
};

struct WorkList {
  WorkItem* items;
  MergeItem* merges;
  int* counts;                       // [0] items, [1] next item, [2] merges
  int item_capacity, part_capacity;  // more come of broken indptr arrays only
};

constexpr int kMaxWaves = 2;       // cuts aim at this many parts a multiprocessor at most
constexpr int kMinPartTiles = 8;   // a part shorter than this costs more in its merge than it saves
constexpr int kItemCostTiles = 3;  // Q load, pipeline fill and store, in key tiles

constexpr int64_t max_parts(int sm_count) { return int64_t(kMaxWaves) * sm_count; }
// Row tiles of a batch whose lengths are unknown: each request has at most one that is not full.
constexpr int64_t max_row_tiles(int64_t rows, int64_t batch, int64_t group) { return (rows * group + kTileM - 1) / kTileM + batch; }
// Parts with partial results; `forced_parts` of every row tile when asked for.
constexpr int64_t part_capacity(int64_t row_tiles, int sm_count, int forced_parts) {
  return forced_parts > 1 ? row_tiles * forced_parts : forced_parts == 1 ? 0 : max_parts(sm_count);
}

}  // namespace hyla::extend::sm90_latent
