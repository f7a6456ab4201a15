// Arguments in host memory, with the memory they point to.
#pragma once
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "hyla/extend.h"
#include "hyla/kda.h"

namespace hyla::bench {

template <class Args>
struct HostCase {
  Args args;
  std::vector<std::shared_ptr<void>> memory;

  // A contiguous tensor of new memory, aligned to 256 bytes; `fill` in every byte. Empty tensors get an address too.
  TensorView add(DType dtype, std::initializer_list<int64_t> shape, int fill = 0) { return add(dtype, shape.begin(), static_cast<int>(shape.size()), fill); }
  TensorView add(DType dtype, const int64_t* shape, int rank, int fill = 0) {
    TensorView t = contiguous(nullptr, dtype, shape, rank);
    const size_t bytes = static_cast<size_t>(t.numel() * size_of(dtype));
    void* data = std::aligned_alloc(256, (bytes + 511) / 256 * 256);
    if (data == nullptr) std::abort();
    std::memset(data, fill, bytes);
    memory.emplace_back(data, std::free);
    t.data = data;
    return t;
  }
};
using KdaCase = HostCase<kda::Args>;
using ExtendCase = HostCase<extend::Args>;

// Every tensor of the arguments, with its name and whether a run writes it.
template <class F>
void for_each_tensor(kda::Args& a, F&& f) {
  f("q", a.q, false), f("k", a.k, false), f("v", a.v, false), f("g", a.g, false), f("beta", a.beta, false), f("A_log", a.A_log, false);
  f("dt_bias", a.dt_bias, false), f("cu_seqlens", a.cu_seqlens, false), f("initial_state", a.initial_state, false);
  f("state_indices", a.state_indices, false), f("has_initial_state", a.has_initial_state, false), f("checkpoint_offsets", a.checkpoint_offsets, false);
  f("checkpoint_indices", a.checkpoint_indices, false), f("out", a.out, true), f("final_state", a.final_state, true), f("checkpoints", a.checkpoints, true);
}
template <class F>
void for_each_tensor(extend::Args& a, F&& f) {
  f("q", a.q, false), f("k", a.k, false), f("v", a.v, false), f("k_buffer", a.k_buffer, false), f("v_buffer", a.v_buffer, false);
  f("qo_indptr", a.qo_indptr, false), f("kv_indptr", a.kv_indptr, false), f("kv_indices", a.kv_indices, false), f("custom_mask", a.custom_mask, false);
  f("mask_indptr", a.mask_indptr, false), f("window_kv_offsets", a.window_kv_offsets, false), f("sinks", a.sinks, false), f("out", a.out, true);
  f("lse", a.lse, true);
}

// Bytes from the first to the last element; 0 for an empty tensor.
inline int64_t extent_bytes(const TensorView& t) {
  if (t.numel() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < t.rank; ++i) last += (t.shape[i] - 1) * t.stride[i];
  return (last + 1) * size_of(t.dtype);
}

}  // namespace hyla::bench
