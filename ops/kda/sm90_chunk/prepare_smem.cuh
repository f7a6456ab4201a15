// Shared memory of `prepare`, as byte offsets: the inputs of an item become its record in place.
#pragma once
#include "config.h"

namespace hyla::kda::sm90_chunk {

struct PrepareSmem {
  // k, q, g as read; then ke, qe, kd written over them, followed by T, A_qk, decay, beta: one record, two bulk stores.
  static constexpr uint32_t kRecord = 0;
  static constexpr uint32_t kBias = 66560;            // dt_bias fp32 [128] of the item's head
  static constexpr uint32_t kMeta = kBias + 512;      // ItemMeta
  static constexpr uint32_t kColumns = kMeta + 512;   // B fragments of blocks 0..2: k e^(G_end - G)
  static constexpr uint32_t kFactors = kColumns + 12288;  // float4 [4 blocks][128]; later sums of the diagonal blocks, halves of a warp pair
  static constexpr uint32_t kTotals = kFactors + 8192;    // float2 [4][128]: (G at the anchor, G from there to the block's end)
  static constexpr uint32_t kSpans = kTotals + 4096;      // decay over the whole of blocks 1 and 2
  static constexpr uint32_t kRows = kSpans + 1024;        // A fragments exchanged within a pair of warps; later T_II, row-major and transposed
  static constexpr uint32_t kDiagonal = kRows + 12288;    // diagonal blocks of A_kk fp32
  static constexpr uint32_t kBelow = kDiagonal + 4096;    // blocks of A_kk below the diagonal, fp16 B fragments
  static constexpr uint32_t kNorms = kBelow + 3072;       // sums of squares [64][2 warps][k, q]
  static constexpr uint32_t kBytes = kNorms + 1024;
};
static_assert(PrepareSmem::kBytes <= 113 * 1024, "two blocks must fit on a multiprocessor");

}  // namespace hyla::kda::sm90_chunk
