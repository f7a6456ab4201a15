// Shared memory of one group of `prepare`, as byte offsets: the inputs of an item become its record in place.
#pragma once
#include "config.h"

namespace hyla::kda::sm90_chunk {

struct PrepareSmem {
  // k, q, g as read; then ke, qe, kd written over them, followed by T, A_qk, decay, beta: one record, two bulk stores.
  static constexpr uint32_t kBias = 62464;              // dt_bias fp32 [128] of the item's head
  static constexpr uint32_t kMeta = kBias + 512;        // two ItemMeta: this item, the next
  static constexpr uint32_t kColumns = kMeta + 512;     // B fragments of blocks 0..2, anchored at the block's end; then block 0 anchored at token 32
  static constexpr uint32_t kRows = kColumns + 16384;   // A fragments of block 3 anchored at token 48 (k, q); later T_II transposed, fp16
  static constexpr uint32_t kFactors = kRows + 8192;    // float4 [4 blocks][128] ...
  static constexpr uint32_t kTotals = kFactors + 8192;  // ... and float2 [4][128]: (G at the anchor, G from there to the block's end)
  static constexpr uint32_t kSums = kFactors;           // later: blocks below the diagonal, exchanged within a pair of warps (12 KB)
  static constexpr uint32_t kSpans = kTotals + 4096;    // fp32 [2][128]: the factors of the second anchors of block 3 (rows) and block 0 (columns)
  static constexpr uint32_t kDiagonal = kSpans + 1024;  // diagonal blocks of A_kk fp32, transposed, columns 20 words apart
  static constexpr uint32_t kBelow = kDiagonal + 5120;  // blocks of A_kk below the diagonal, fp16 B fragments
  static constexpr uint32_t kNorms = kBelow + 3072;     // sums of squares [64][2 warps][k, q]
  static constexpr uint32_t kBytes = kNorms + 1024;     // of a group
};
static_assert(PrepareSmem::kBytes % 1024 == 0);

}  // namespace hyla::kda::sm90_chunk
