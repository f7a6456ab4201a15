// Which sequence a chunk record belongs to, found on the device from cu_seqlens, so that a graph replays with other lengths.
#pragma once
#include "config.h"
#include "launch.h"

namespace hyla::kda::sm90_chunk {

__device__ __forceinline__ int64_t load_index(const Indices& x, int64_t i) {
  return x.wide ? static_cast<const int64_t*>(x.data)[i * x.stride] : static_cast<const int32_t*>(x.data)[i * x.stride];
}

struct Sequence {
  int64_t batch = 0, start = 0;  // row of the first token: batch entry and token
  int64_t length = 0;
  int64_t slot = 0;  // record of its first chunk
};

// Bounds hold whatever cu_seqlens contains.
__device__ __forceinline__ int64_t boundary(const KernelParams& p, int n) {
  const int64_t x = load_index(p.cu_seqlens, n);
  return x < 0 ? 0 : x > p.tokens ? p.tokens : x;
}

// Records are placed at start / 64 + n: ascending, never overlapping, and needing no prefix sum.
__device__ __forceinline__ Sequence sequence_at(const KernelParams& p, int n) {
  Sequence s;
  if (p.cu_seqlens.data == nullptr) {
    s.batch = n;
    s.length = p.tokens;
    s.slot = int64_t(n) * ((p.tokens + kChunk - 1) / kChunk);
  } else {
    s.start = boundary(p, n);
    const int64_t end = boundary(p, n + 1);
    s.length = end > s.start ? end - s.start : 0;
    s.slot = s.start / kChunk + n;
  }
  return s;
}

// The sequence whose records include `slot` (a whole warp calls; 32 probes a step).
__device__ __forceinline__ int find_sequence(const KernelParams& p, int slot) {
  if (p.cu_seqlens.data == nullptr) return slot / int((p.tokens + kChunk - 1) / kChunk);
  int lo = 0, hi = p.sequences;
  while (hi - lo > 1) {
    const int step = (hi - lo + 31) / 32, probe = lo + int(threadIdx.x & 31) * step;
    const bool below = probe < hi && boundary(p, probe) / kChunk + probe <= slot;
    const int found = 31 - __clz(__ballot_sync(0xffffffffu, below) | 1u);
    lo += found * step;
    hi = min(hi, lo + step);
  }
  return lo;
}

}  // namespace hyla::kda::sm90_chunk
