// Kernel parameters: plain pointers, int64 strides in elements, numbers.
#pragma once
#include <cstdint>

namespace hyla::extend::sm80_mma {

enum class PoolType : int { kSame, kE4m3, kE5m2 };

struct Indices {
  const void* data;
  bool wide;  // int64
};

struct Params {
  const void *q, *k, *v, *k_buffer, *v_buffer;
  void* out;
  float* lse;  // null: not asked
  Indices qo_indptr, kv_indptr, kv_indices, mask_indptr, window_offsets;
  const uint8_t* mask;
  int64_t mask_size;
  const void* sinks;
  bool sinks_bf16;
  int64_t q_token, q_head, k_token, k_head, v_token, v_head, out_token, out_head, lse_token, lse_head;
  int64_t k_page, k_slot, k_pool_head, v_page, v_slot, v_pool_head;
  int64_t page_size, slots, rows, prefix_capacity;  // rows: q.shape[0]
  int Hkv, group, Lq, Lv, batch;
  PoolType pool;
  bool aliased;    // V is K's first columns: one load serves both
  bool aligned16;  // 16-byte copies
  bool causal, skip_prefix_mask, skip_prefix, skip_extend;
  int64_t window, temperature_len;   // -1: off
  float scale_extend, scale_prefix;  // to log2 units, or to the cap's argument when cap > 0
  float cap_log2;                    // cap * log2(e); 0: off
  float v_scale;
  int buffers, splits;
  int64_t m_tiles;     // per request and KV head, from max_extend
  float* partial_out;  // [rows * heads, splits, Lv]
  float* partial_lse;  // [rows * heads, splits], log2 units
};

}  // namespace hyla::extend::sm80_mma
