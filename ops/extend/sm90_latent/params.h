// What the kernels read: plain pointers, byte strides, integers. Filled on the host, passed by value.
#pragma once
#include <cstdint>

namespace hyla::extend::sm90_latent {

// Rows [64 m_tile, 64 m_tile + 64) of one request and KV head, row = token * group + head in group, over the key tiles [begin, end) of the
// item's walk: new-token tiles from the diagonal down, then prefix tiles from the last down.
struct WorkItem {
  int32_t request, head, m_tile, begin, end;
  int32_t part;  // row block of the partial results, or -1: write the output
};

struct TokenStrides {
  int64_t token = 0, head = 0;  // bytes
};
struct PoolStrides {
  int64_t page = 0, token = 0, head = 0;  // bytes; page is unused at page size 1
};

struct KernelParams {
  const uint8_t *q, *k, *v, *k_pool, *v_pool;
  uint8_t* out;
  float* lse;  // may be null
  TokenStrides q_stride, k_stride, v_stride, out_stride, lse_stride;
  PoolStrides k_pool_stride, v_pool_stride;
  const void *qo_indptr, *kv_indptr, *kv_indices;
  bool qo_indptr64, kv_indptr64, kv_indices64;
  const void* sinks;  // may be null
  bool sinks_bf16;
  int64_t rows;     // n
  int64_t slots;    // of the pool
  int64_t indices;  // length of kv_indices
  int page_size;
  int group;   // query heads of a KV head
  int window;  // -1: off; W: keys from p - W
  int ahead;   // keys behind the query's own position that it sees: 0 when causal, W in a window, else as good as all
  bool skip_prefix, skip_extend;
  float scale_new, scale_prefix;  // to base-2 logits; with a cap to the argument of tanh
  float cap_log2e;                // 0: no cap
  float v_scale, v_scale_inverse;
  int temperature_len;       // <= 0: off
  float temperature_factor;  // 1 / log2(temperature_len)
  const WorkItem* items;
  const int* item_count;
  int* item_next;     // zero before the launch
  float* part_out;    // [part][64][512]
  float* part_lse;    // [part][64], base 2
  uint32_t zero = 0;  // see second_warpgroup
};

}  // namespace hyla::extend::sm90_latent
