// Tiles, records and shared-memory sizes of the chunked KDA kernels. Pure constexpr: read by planner, launcher and kernels.
#pragma once
#include <cstdint>

namespace hyla::kda::sm90_chunk {

inline constexpr int kChunk = 64;    // tokens a chunk
inline constexpr int kDim = 128;     // K = V
inline constexpr int kHalf = 64;     // V columns of one warpgroup

// What `prepare` leaves for one chunk of one value head, in the order of the scan's bulk copies. 16-bit tiles have 128-byte rows in
// 128-byte swizzle, in panels of 64 columns.
struct Record {
  static constexpr uint32_t kKe = 0;           // beta k e^G                [64][128]
  static constexpr uint32_t kQe = 16384;       // scale q e^G               [64][128]
  static constexpr uint32_t kKd = 32768;       // k e^(G_C - G)             [64][128]
  static constexpr uint32_t kT = 49152;        // (I + A_kk)^-1             [64][64]
  static constexpr uint32_t kA = 57344;        // scale A_qk                [64][64]
  static constexpr uint32_t kDecay = 65536;    // e^G_C fp32                [128]
  static constexpr uint32_t kBeta = 66048;     // beta fp32                 [64]
  static constexpr uint32_t kBytes = 66304;
};

// What the first pass of a segmented run leaves for one segment of one value head.
struct Summary {
  static constexpr int64_t kStateBytes = kDim * kDim * 4;       // h: the state from zero, fp32, in the accumulators' order
  static constexpr int64_t kTransitionBytes = kDim * kDim * 2;  // M - diag(d), 16-bit, [K in][K out] in two swizzled panels
  static constexpr int64_t kDecayBytes = kDim * 4;              // d: the product of the decays
};

struct PrepareConfig {
  static constexpr int kThreads = 256;   // two warps a 16-token block
  static constexpr int kBlocksPerSm = 2; // two blocks hide each other's barriers: 43 against 53 ns a chunk with one
};

// Log decays are clamped here before the cumulative sum: exponents anchored in the middle of 16 tokens stay within +-80.
inline constexpr float kLogDecayFloor = -10.0f;

}  // namespace hyla::kda::sm90_chunk
