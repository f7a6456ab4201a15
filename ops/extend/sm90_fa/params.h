// What crosses from host to device: plain pointers, byte strides and numbers. Also the records the planning kernel leaves in the workspace.
#pragma once
#include <cstdint>

namespace hyla::extend::sm90_fa {

// One piece of work: the query rows of some tokens of one request against a range of key tiles, for any KV head.
struct alignas(64) Unit {
  int64_t q_row;      // row of the first token in q
  int64_t kv_begin;   // position of the request's prefix in kv_indices
  int64_t new_row;    // row of the request's first new token in k and v
  int32_t q0;         // the first token's index within the request
  int32_t tokens;     // tokens of this tile
  int32_t n, prefix;  // the request's new tokens and prefix keys
  int32_t t0, t1;     // key tiles: new tokens from the diagonal down, then prefix from its end down
  int32_t slot;       // first partial result of this part (head 0), or -1: write the output directly
  int32_t parts;      // parts this tile's keys are cut into
};
static_assert(sizeof(Unit) == 64);

// A tile cut into parts, for the combining kernel. Partial of (head, part) lies at slot + head * parts + part.
struct SplitTile {
  int64_t q_row;
  int32_t tokens, slot, parts, unused;
};

struct Request {
  int64_t q_row, kv_begin;
  int32_t n, prefix, first_tile, unused;
};

// Written by the planning kernel, read by the others.
struct Header {
  int32_t next;        // the next work index to hand out
  int32_t units;       // entries of the unit list
  int32_t head_group;  // heads that run together, so that their keys stay in L2
  int32_t splits;      // entries of the split list
};

// A tensor of rows x heads x columns. Byte offsets of rows are counted in `unit` bytes (a divisor of every stride), so that a row is found by one
// 32 x 32 bit multiplication and the reach is that of the pool, not 4 GB.
struct Matrix {
  const void* data;
  int64_t head;  // bytes between heads
  uint32_t unit, per_row, per_page;
};

struct alignas(64) TensorMap {  // CUtensorMap
  uint64_t opaque[16];
};

struct Params {
  TensorMap k_map, v_map;  // new keys and values: {columns, heads, rows}
  uint32_t q_per_head;     // units of q between its heads
  Matrix q, k, v, k_pool, v_pool;
  void* out;
  int64_t out_row, out_head;
  float* lse;  // may be null
  int64_t lse_row, lse_head;
  const void* sinks;  // may be null
  const void *qo_indptr, *kv_indptr, *kv_indices;
  int64_t n, kv_capacity;  // rows of q, entries of kv_indices
  int64_t slots;
  int32_t batch, kv_heads, group, tokens_per_tile;
  int32_t page_size, page_shift;  // size 1: slots are evenly spaced; shift -1: not a power of two
  int32_t window;                 // keys before the query's own that it sees; -1: all
  int32_t ahead;                  // new tokens after its own that it sees: 0 when causal
  int32_t xai_length;             // 0: off
  float sm_scale, cap, k_scale, v_scale;
  bool qo64, kv64, indices64;  // index tensors hold int64
  bool sinks_bf16, skip_prefix, skip_new, use_tma;

  // Workspace
  Header* header;
  Request* requests;
  int32_t* costs;   // key tiles of each query tile
  int32_t* owners;  // request of each query tile
  Unit* units;
  SplitTile* split_tiles;
  float* partial_o;    // [slot][row][lv], normalised
  float* partial_lse;  // [slot][row], log2 units
  int32_t tile_capacity, slot_capacity, slot_rows;
  int32_t max_splits;  // 1: never split; 0: the planning kernel's choice; k: cut every tile into k parts
  int32_t grid;        // blocks of the main kernel
  int32_t key_bytes;   // bytes of one key and value of one head
};

}  // namespace hyla::extend::sm90_fa
