// One work item: part of V of one value head of one sequence. Every length and index is read here, on the device, and bounded.
#pragma once
#include <cstdint>

#include "params.h"

namespace hyla::kda::sm80_recurrent {

__device__ __forceinline__ int64_t read_index(const Indices& i, int64_t at) {
  return i.wide ? static_cast<const int64_t*>(i.data)[at * i.stride] : static_cast<const int32_t*>(i.data)[at * i.stride];
}

struct Item {
  int sequence, batch, first, length;  // `first`: token offset in the batch row. 32 bits: can_run bounds tokens, sequences and slots
  int initial_slot, final_slot;        // -1: absent
  int head, split;
  bool skipped;
};

__device__ __forceinline__ void sequence_bounds(const Params& p, int n, int& first, int& length) {
  first = 0, length = static_cast<int>(p.T);
  if (p.cu_seqlens.data == nullptr) return;
  const int64_t begin = read_index(p.cu_seqlens, n), end = read_index(p.cu_seqlens, n + 1);
  first = static_cast<int>(min(max(begin, int64_t{0}), p.T));
  length = max(static_cast<int>(min(max(end, int64_t{0}), p.T)) - first, 0);
}

__device__ __forceinline__ Item read_item(const Params& p, unsigned index, int splits) {
  Item item;
  item.split = static_cast<int>(index % splits);
  const unsigned state = index / splits;
  item.head = static_cast<int>(state % p.HV);
  item.sequence = static_cast<int>(state / p.HV);
  item.batch = p.cu_seqlens.data != nullptr ? 0 : item.sequence;
  sequence_bounds(p, item.sequence, item.first, item.length);
  int64_t slot = item.sequence;
  item.skipped = false;
  if (p.state_indices.data != nullptr) {
    slot = read_index(p.state_indices, item.sequence);
    const int64_t count = p.initial.data != nullptr ? p.initial.count : p.final.count;
    item.skipped = slot < max(p.lowest_slot, int64_t{0}) || ((p.initial.data != nullptr || p.final.data != nullptr) && slot >= count);
  }
  const bool fresh = p.flags != nullptr && p.flags[item.sequence * p.flags_stride] == 0;
  item.initial_slot = p.initial.data != nullptr && !fresh ? static_cast<int>(slot) : -1;
  item.final_slot = p.final.data != nullptr && slot < p.final.count ? static_cast<int>(slot) : -1;
  return item;
}

}  // namespace hyla::kda::sm80_recurrent
