// What one block of the scan works on, and where its states live.
#pragma once
#include "config.h"
#include "launch.h"
#include "sequence.cuh"

namespace hyla::kda::sm90_chunk {

struct ScanWork {
  int n, head, segment, part;  // part: which V half (or state/transition part) the block starts at
  Sequence seq;
  int64_t first, last;  // chunks [first, last) of the sequence
  int64_t chunks;       // of the whole sequence
  int64_t slot;         // state slot; -1: the sequence is skipped
};

__device__ __forceinline__ ScanWork scan_work(const KernelParams& p, int64_t block, int segments, int parts) {
  ScanWork w;
  w.part = int(block % parts);
  block /= parts;
  w.segment = int(block % segments);
  block /= segments;
  w.head = int(block % p.heads);
  w.n = int(block / p.heads);
  w.seq = sequence_at(p, w.n);
  w.chunks = (w.seq.length + kChunk - 1) / kChunk;
  w.first = int64_t(w.segment) * p.segment_chunks;
  w.last = w.segment == p.segments - 1 ? w.chunks : w.first + p.segment_chunks;
  if (w.last > w.chunks) w.last = w.chunks;
  w.slot = w.n;
  if (p.state_indices.data != nullptr) {
    const int64_t s = load_index(p.state_indices, w.n);
    w.slot = s < p.lowest_slot || s < 0 || s >= p.pool_slots ? -1 : s;
  }
  return w;
}

// The segment that ends the sequence (and writes the final state); an empty sequence has segment 0 only.
__device__ __forceinline__ bool owns_end(const ScanWork& w) {
  return w.last == w.chunks && (w.first < w.last || w.chunks == 0) && (w.segment == 0 || w.first < w.chunks);
}

__device__ __forceinline__ bool has_initial(const KernelParams& p, const ScanWork& w) {
  return p.initial.data != nullptr && (p.has_initial == nullptr || p.has_initial[w.n * p.has_initial_stride] != 0);
}

__device__ __forceinline__ int64_t summary_index(const KernelParams& p, const ScanWork& w, int segment) {
  return (int64_t(w.n) * p.heads + w.head) * (p.segments - 1) + segment;
}

// Where checkpoint row `row` is stored, or -1.
__device__ __forceinline__ int64_t checkpoint_place(const KernelParams& p, int64_t row) {
  if (p.checkpoint_indices.data != nullptr) {
    if (row >= p.checkpoint_index_count) return -1;
    row = load_index(p.checkpoint_indices, row);
    if (row < p.lowest_slot || row < 0) return -1;
  }
  return row < p.checkpoint_rows ? row : -1;
}

// Row of the sequence's first checkpoint when every 64 tokens are stored (a whole warp calls).
__device__ __forceinline__ int64_t checkpoint_base(const KernelParams& p, int n) {
  if (p.cu_seqlens.data == nullptr) return int64_t(n) * (p.tokens / kChunk);
  int64_t sum = 0;
  for (int m = int(threadIdx.x & 31); m < n; m += 32) sum += sequence_at(p, m).length / kChunk;
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  return sum;
}

__device__ __forceinline__ int64_t checkpoint_offset(const KernelParams& p, int n, int i) {
  Indices row = p.checkpoint_offsets;
  row.data = static_cast<const char*>(row.data) + n * row.outer * (row.wide ? 8 : 4);
  return load_index(row, i);
}

// The smallest listed offset beyond `tokens` (a whole warp calls).
__device__ __forceinline__ int64_t next_checkpoint(const KernelParams& p, int n, int64_t tokens) {
  int64_t best = INT64_MAX;
  for (int i = int(threadIdx.x & 31); i < p.checkpoint_slots; i += 32) {
    const int64_t at = checkpoint_offset(p, n, i);
    if (at > tokens && at < best) best = at;
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const int64_t other = __shfl_xor_sync(0xffffffffu, best, o);
    best = other < best ? other : best;
  }
  return best;
}

}  // namespace hyla::kda::sm90_chunk
