// Extend attention: new tokens attend to a paged KV prefix and to themselves, in one softmax.
//
// For request i with P_i prefix keys and n_i new tokens, query q (0 <= q < n_i) stands at position P_i + q. Its keys are the prefix slots
// kv_indices[kv_indptr[i] .. kv_indptr[i+1]) at positions 0 .. P_i - 1, then the new tokens at P_i + 0 .. P_i + n_i - 1:
//   s = sm_scale * q.k  (prefix: * k_scale);  s = cap * tanh(s / cap) if logit_cap > 0;  s *= temperature(position);  mask;
//   o = sum softmax(s) v (prefix: * v_scale);  LSE = log(sum exp s [+ exp sink]), natural log.
// A row with no allowed key gives output 0 and LSE -inf (with a sink: output 0 and LSE = the sink's logit).
// Argument meanings follow sglang's extend_attention_fwd. The full contract: ops/extend/README.md.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "hyla/device.h"
#include "hyla/plan.h"
#include "hyla/status.h"
#include "hyla/tensor.h"

namespace hyla::extend {

// Innermost dimensions are contiguous; token, head, slot and page strides are free. Query head h uses KV head h / (Hq / Hkv).
// Lq and Lv are multiples of 8 up to 576. An absent optional tensor has rank 0. Inputs are never written.
struct Args {
  TensorView q;            // [n, Hq, Lq] bf16 or fp16 (CPU: also fp32): new tokens of all requests, packed
  TensorView k;            // [n, Hkv, Lq] same dtype: keys of the new tokens
  TensorView v;            // [n, Hkv, Lv] same dtype; may be a view of k's first Lv columns (latent attention)
  TensorView k_buffer;     // prefix pool: [slots, Hkv, Lq], or [pages, page_size, Hkv, Lq] with any page and token strides; dtype of q, e4m3 or e5m2
  TensorView v_buffer;     // [slots, Hkv, Lv] or [pages, page_size, Hkv, Lv]; may be a view of k_buffer
  TensorView qo_indptr;    // [batch + 1] int32 or int64: rows of request i are qo_indptr[i] .. qo_indptr[i+1); the last value may be less than n:
                           // rows past it are not touched
  TensorView kv_indptr;    // [batch + 1] int32 or int64
  TensorView kv_indices;   // [total prefix] int32 or int64: token slots, page * page_size + offset. A slot outside the pool is never read: its key
                           // counts as masked.
  int64_t max_extend = 0;  // host-known upper bound of n_i, for planning; 0: n
  int64_t max_prefix = 0;  // host-known upper bound of P_i, for planning; 0: unknown (kv_indices.shape[0])

  TensorView custom_mask;  // u8/bool, flat: row q of request i starts at mask_indptr[i] + q * row, row = P_i + n_i + offset_i; nonzero allows. It replaces
                           // causality for the new keys; the window still applies.
  TensorView mask_indptr;  // [batch + 1] int64 or int32, with custom_mask
  bool skip_prefix_custom_mask = true;  // the prefix is fully visible and only columns P_i + offset_i .. of the mask are read
  TensorView window_kv_offsets;  // [batch] int32/int64, optional: offset_i, the columns of the mask in front of the listed prefix (the window's left part that
                                 // kv_indices leaves out). Positions stay relative to the listed prefix.
  TensorView sinks;              // [Hq] fp32 or bf16, optional: a raw logit in the denominator, neither scaled nor capped
  TensorView out;                // [n, Hq, Lv] dtype of q (CPU: or fp32)
  TensorView lse;                // [n, Hq] fp32, optional: natural log, sink counted

  bool causal = true;                    // new keys at positions > the query's are masked (ignored with custom_mask)
  int64_t sliding_window = -1;           // W >= 0: keys at positions >= p - W (W + 1 keys with the query itself); without causality also new keys at
                                         // positions <= p + W (not with a custom mask, which alone decides upwards); -1: off
  float sm_scale = 0.0f;                 // 0: Lq^-1/2
  float logit_cap = 0.0f;                // > 0: on
  float k_scale = 1.0f, v_scale = 1.0f;  // prefix part only
  int64_t xai_temperature_len = -1;      // L > 0: queries at position p > L scale their (capped) logits by log2(p) / log2(L), others by 1
  bool skip_prefix = false;              // leave out the prefix keys (positions unchanged)
  bool skip_extend = false;              // leave out the new keys
};

struct Problem {
  int64_t n = 0, batch = 0, Hq = 0, Hkv = 0, Lq = 0, Lv = 0;
  int64_t slots = 0, page_size = 1;        // page_size 1: a 3-D pool
  int64_t prefix_capacity = 0;             // kv_indices.shape[0]
  int64_t max_extend = 0, max_prefix = 0;  // resolved bounds
  DType dtype = DType::kBf16, pool = DType::kBf16, out = DType::kBf16;
  float sm_scale = 0.0f, logit_cap = 0.0f, k_scale = 1.0f, v_scale = 1.0f;  // sm_scale resolved
  int64_t sliding_window = -1, xai_temperature_len = -1;
  bool causal = true, has_mask = false, skip_prefix_custom_mask = true, has_window_offsets = false, has_sinks = false, has_lse = false;
  bool skip_prefix = false, skip_extend = false;
  bool v_aliases_k = false;  // both new v and v_buffer are the first Lv columns of k and k_buffer (same pointer and strides)
  bool aligned16 = true;     // q, k, v, pools, out: base and all strides are multiples of 16 bytes
  Device device{};
  bool operator==(const Problem&) const = default;
  std::string str() const;  // one line
};

struct Plan {
  Problem problem;
  DeviceCaps caps;
  std::string variant;
  int tile_m = 0, tile_n = 0;  // query rows (token x packed heads) and keys of a tile
  int stages = 0;
  int splits = 1;  // most parts a request's KV is cut into
  int64_t smem_bytes = 0;
  int threads = 0;              // CPU: worker threads
  std::vector<int64_t> tuning;  // further numbers of the variant, in its own order
  size_t workspace_bytes = 0;
  double modelled_us = 0;
  std::string why;
  std::vector<Candidate> candidates;
  std::string str() const;
};

Result<Problem> make_problem(const Args& args);
Status can_run(const Args& args, const DeviceCaps& caps, const PlanOptions& options = {});
Result<Plan> plan(const Args& args, const DeviceCaps& caps, const PlanOptions& options = {});
Result<Plan> plan(const Problem& problem, const DeviceCaps& caps, const PlanOptions& options = {});
// As hyla::kda::run: enqueues, never allocates or synchronises, writes nothing unless all checks pass.
Status run(const Plan& plan, const Args& args, Workspace workspace, Stream stream = {});
// Reads indptrs and indices (CPU-readable arguments only): monotone, within n and kv_indices, slots inside the pool, mask long enough.
Status check_contents(const Args& args);
std::vector<std::string> variants();

}  // namespace hyla::extend
