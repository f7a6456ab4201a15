// Tiles, records and shared-memory sizes of the chunked KDA kernels. Pure constexpr: read by planner, launcher and kernels.
#pragma once
#include <cstdint>

namespace hyla::kda::sm90_chunk {

inline constexpr int kChunk = 64;  // tokens a chunk
inline constexpr int kDim = 128;   // K = V
inline constexpr int kHalf = 64;   // V columns of one warpgroup

// What `prepare` leaves for one chunk of one value head, in the order of the scan's bulk copies. 16-bit tiles. ke, qe, kd have 128-byte
// rows in 128-byte swizzle, in panels of 64 columns. T and A_qk are lower triangular: panels of 32 columns with 64-byte rows in 64-byte
// swizzle, of which the second leaves out its first 32 rows, which are zero.
struct Record {
  static constexpr uint32_t kKe = 0;         // beta k e^G                [64][128]
  static constexpr uint32_t kQe = 16384;     // scale q e^G               [64][128]
  static constexpr uint32_t kKd = 32768;     // k e^(G_C - G)             [64][128]
  static constexpr uint32_t kT = 49152;      // (I + A_kk)^-1             columns 0..31
  static constexpr uint32_t kA = 53248;      // scale A_qk                columns 0..31
  static constexpr uint32_t kTLow = 57344;   // T                         columns 32..63, rows 32..63
  static constexpr uint32_t kALow = 59392;   // A_qk                      the same
  static constexpr uint32_t kDecay = 61440;  // e^G_C fp32                [128]
  static constexpr uint32_t kBeta = 61952;   // beta fp32                 [64]
  static constexpr uint32_t kBytes = 62208;
  // Place of 16 bytes of T (0) or A_qk (1); chunks 4..7 exist for rows 32..63 only.
  static constexpr uint32_t tile(uint32_t which, uint32_t row, uint32_t chunk) {
    const uint32_t at = row * 64 + (((chunk & 3) ^ ((row >> 1) & 3)) << 4);
    return chunk < 4 ? kT + which * 4096 + at : kTLow - 2048 + which * 2048 + at;
  }
};

// What the first pass of a segmented run leaves for one segment of one value head.
struct Summary {
  static constexpr int64_t kStateBytes = kDim * kDim * 4;       // h: the state from zero, fp32, in the accumulators' order
  static constexpr int64_t kTransitionBytes = kDim * kDim * 2;  // M - diag(d), 16-bit, [K in][K out] in two swizzled panels
  static constexpr int64_t kDecayBytes = kDim * 4;              // d: the product of the decays
};

struct PrepareConfig {
  static constexpr int kGroup = 256;  // threads that share an item: two warps a 16-token block
  static constexpr int kGroups = 2;   // groups of a block; they hide each other's barriers: 43 against 53 ns a chunk with one
  static constexpr int kThreads = kGroup * kGroups;
};

// Log decays are clamped here before the cumulative sum: exponents anchored in the middle of 16 tokens stay within +-80.
inline constexpr float kLogDecayFloor = -10.0f;

}  // namespace hyla::kda::sm90_chunk
