// The boundary between the host adapter and the kernels: plain pointers, strides in elements, integers.
#pragma once
#include <cstdint>

#include "hyla/kda.h"

namespace hyla::kda::sm90_chunk {

struct Strided {
  const void* data = nullptr;
  int64_t b = 0, t = 0, h = 0;  // strides in elements; the innermost is 1
};

struct States {
  void* data = nullptr;       // null: absent
  int64_t row = 0, head = 0;  // strides in elements of a sequence (or slot, or checkpoint row) and of a head
  int64_t inner = 128;        // of the third dimension; the last is contiguous
  bool bf16 = false;
};

struct Indices {
  const void* data = nullptr;     // null: absent
  bool wide = false;              // int64, else int32
  int64_t stride = 1, outer = 0;  // in elements; outer: of the first dimension of a two-dimensional tensor
};

struct KernelParams {
  Strided q, k, v, g, beta, out;
  const float* a_log = nullptr;
  const float* dt_bias = nullptr;
  int64_t a_log_stride = 1, dt_bias_head = 128;
  Indices cu_seqlens;
  int64_t tokens = 0;            // T
  int sequences = 0, heads = 0;  // N, HV
  int group = 1;                 // HV / H
  int first_head = 0;            // of these heads, among all HV: the other pointers are already moved there, q and k are not
  int slots = 0;                 // chunk records a head has room for
  int gate = 0;                  // Gate
  bool g_fp32 = false, beta_fp32 = false, l2norm = true, beta_logits = false, beta_doubled = false;
  float lower_bound = -5, scale = 1;

  States initial, final_, checkpoints;
  bool v_first = false;
  Indices state_indices;
  const uint8_t* has_initial = nullptr;
  int64_t has_initial_stride = 1;
  int64_t pool_slots = 0, lowest_slot = 0;
  int64_t checkpoint_rows = 0;  // rows of the checkpoint tensor
  Indices checkpoint_offsets;
  int checkpoint_slots = 0;  // P
  Indices checkpoint_indices;
  int64_t checkpoint_index_count = 0;

  int segment_chunks = 0;  // chunks a segment; 0: not cut
  int segments = 1;        // segments a sequence has room for; the last one takes whatever is left

  // Not null: the scan runs beside `prepare`, on multiprocessors that it leaves free, and waits for record by record.
  uint32_t* ready = nullptr;  // [slots][heads]
  int prepare_blocks = 0;     // 0: a block on every multiprocessor

  uint8_t* records = nullptr;        // [slots][heads] Record
  uint8_t* summary_state = nullptr;  // [sequences][heads][segments - 1]
  uint8_t* summary_transition = nullptr;
  float* summary_decay = nullptr;
  uint8_t* saved_initial = nullptr;  // [sequences][heads]: the initial state, which an in-place update may overwrite while it is still needed
};

// Each returns OK or what the runtime reported. `sm_count` sizes persistent grids.
Status launch_prepare(const KernelParams& p, int sm_count, Stream stream);
Status launch_summary(const KernelParams& p, Stream stream);
Status launch_scan(const KernelParams& p, int v_split, Stream stream);

}  // namespace hyla::kda::sm90_chunk
