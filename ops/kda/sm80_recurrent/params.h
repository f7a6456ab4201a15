// What the kernel receives: pointers, strides in elements, flags.
#pragma once
#include <cstdint>

namespace hyla::kda::sm80_recurrent {

constexpr int8_t kGateBounded = 0, kGateUnbounded = 1, kGateGiven = 2;  // hyla::kda::Gate

enum class Element : int8_t { kBf16, kFp16, kFp32 };

struct Rows {  // [B, T, heads, D]
  const void* data;
  int64_t batch, token, head;
};

struct States {  // [count, HV, rows, columns]; data null: absent
  void* data;
  int64_t count, slot, head, row;
  bool bf16;
  bool vec;  // rows without gaps; base and strides are multiples of 16 bytes
};

struct Indices {  // int32 or int64; data null: absent
  const void* data;
  int64_t stride;
  bool wide;
};

struct Params {
  Rows q, k, v, g, beta;  // beta has no D
  Rows out;               // data is written
  const float* A_log;     // stride 1 or A_log_stride
  const float* dt_bias;
  int64_t A_log_stride, bias_head;
  Indices cu_seqlens, state_indices, checkpoint_offsets, checkpoint_indices;
  const uint8_t* flags;
  int64_t flags_stride;
  States initial, final, checkpoints;
  int64_t offsets_per_sequence, offsets_stride;  // checkpoint_offsets [N, P]
  int64_t checkpoint_rows;                       // rows that may be asked: of checkpoints, or of checkpoint_indices
  int64_t lowest_slot;
  int64_t B, T, N;
  int H, HV;
  float lower_bound, scale;
  Element qkv, gate_type, beta_type, out_type;
  int8_t gate;  // kGateBounded, ..
  bool v_first, qk_l2norm, beta_is_logits, beta_doubled;
};

}  // namespace hyla::kda::sm80_recurrent
