// Where the state after a number of tokens goes: checkpoint rows and the final state. Called by whole warps.
#pragma once
#include <cstdint>

#include "item.cuh"

namespace hyla::kda::sm80_recurrent {

constexpr int kCheckpointTokens = 64;

// First row of a sequence: the checkpoints of all sequences before it.
__device__ __forceinline__ int64_t first_checkpoint_row(const Params& p, int sequence, int lane) {
  if (p.cu_seqlens.data == nullptr) return sequence * (p.T / kCheckpointTokens);
  int64_t rows = 0;
  for (int n = lane; n < sequence; n += 32) {
    int first, length;
    sequence_bounds(p, n, first, length);
    rows += length / kCheckpointTokens;
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) rows += __shfl_xor_sync(~0u, rows, mask);
  return rows;
}

// Walks over the places where a state is due: rows of the checkpoints, then the final state. One caller, one store in the code.
struct Destinations {
  const Params& p;
  const Item& item;
  int64_t first_row;

  // False: no state is due after `tokens` tokens.
  __device__ __forceinline__ bool possible(int tokens) const { return tokens % kCheckpointTokens == 0 || tokens >= item.length; }
  // The place after `cursor` (0 to begin with) of the state after `tokens` tokens; false when there is none left.
  __device__ __forceinline__ bool next(int tokens, int& cursor, const States*& states, int64_t& slot) const {
    const int rows = checkpoints_at(tokens);
    while (cursor < rows) {
      const int64_t row = row_of(tokens, cursor++);
      if (row < 0 || row >= p.checkpoint_rows) continue;
      slot = p.checkpoint_indices.data != nullptr ? read_index(p.checkpoint_indices, row) : row;
      const int64_t lowest = p.checkpoint_indices.data != nullptr ? max(p.lowest_slot, int64_t{0}) : 0;
      if (slot < lowest || slot >= p.checkpoints.count) continue;
      states = &p.checkpoints;
      return true;
    }
    if (cursor > rows || tokens < item.length || item.final_slot < 0) return false;
    ++cursor;
    states = &p.final, slot = item.final_slot;
    return true;
  }

 private:
  __device__ __forceinline__ int checkpoints_at(int tokens) const {
    if (p.checkpoints.data == nullptr || tokens == 0 || tokens % kCheckpointTokens != 0) return 0;
    return p.checkpoint_offsets.data != nullptr ? static_cast<int>(p.offsets_per_sequence) : 1;
  }
  __device__ __forceinline__ int64_t row_of(int tokens, int cursor) const {
    if (p.checkpoint_offsets.data == nullptr) return first_row + tokens / kCheckpointTokens - 1;
    const int64_t at = item.sequence * p.offsets_stride + cursor * p.checkpoint_offsets.stride;
    const int64_t asked =
        p.checkpoint_offsets.wide ? static_cast<const int64_t*>(p.checkpoint_offsets.data)[at] : static_cast<const int32_t*>(p.checkpoint_offsets.data)[at];
    return asked == tokens ? item.sequence * p.offsets_per_sequence + cursor : -1;
  }
};

}  // namespace hyla::kda::sm80_recurrent
