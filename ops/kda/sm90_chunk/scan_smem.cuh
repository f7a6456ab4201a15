// Shared memory and barriers of the scan.
#pragma once
#include "config.h"
#include "cuda/device/barrier.cuh"
#include "scan_size.h"
#include "scan_work.cuh"

namespace hyla::kda::sm90_chunk {

enum class Pass {
  kOutput,   // o, checkpoints, final state; with segments, first chains the summaries before it
  kSummary,  // of a segment: the state from zero, and the transition (parts 0, 1: V halves; 2, 3: rows of the transition)
};

// Two rings that go round together: group A (v, ke, beta) is free once x is computed, group B (kd, T, decay; for output qe and A_qk) once o
// is. Before the first chunk the combine uses stages 0 and 1 of group B for transitions, with barriers of its own.
template <Pass kPass, int kWarpgroups>
struct ScanSmem {
  static constexpr int kStages = scan_stages(kPass == Pass::kOutput, kWarpgroups);
  static constexpr bool kOut = kPass == Pass::kOutput;
  // Offsets in group B: what one bulk copy brings, then the second panels of T and A_qk, each behind 2 KB of zeros (their first 32 rows).
  static constexpr uint32_t kQe = 0, kKd = kOut ? 16384 : 0, kT = kKd + 16384, kA = kT + 4096, kFirst = kOut ? kA + 4096 : kA;
  static constexpr uint32_t kZero = kFirst, kTLow = kZero + 2048, kZero2 = kTLow + 2048, kALow = kZero2 + 2048, kBytesB = kOut ? kALow + 2048 : kZero2;
  static constexpr uint32_t kPanel = kZero - kT;  // from a first panel to its second
  static constexpr uint32_t kCopied = kFirst + (kOut ? 4096 : 2048);
  static_assert(!kOut || kZero2 - kA == kPanel);

  uint8_t ke[kStages][16384];
  uint8_t v[kStages][kWarpgroups][8192];
  uint8_t b[kStages][kBytesB];
  uint8_t o[kOut ? kWarpgroups : 1][kOut ? 8192 : 16];
  float decay[kStages][kDim];
  float beta[kStages][kChunk];
  ScanWork work;  // here rather than in registers, which the chain needs
  int64_t checkpoint_base, next_checkpoint[4 * kWarpgroups];
  dev::Barrier full_a[kStages], empty_a[kStages], full_b[kStages], empty_b[kStages], full_o[kWarpgroups], empty_o[kWarpgroups], full_m[2], empty_m[2];
};
static_assert(sizeof(ScanSmem<Pass::kOutput, 1>) <= kScanSmemBytes && sizeof(ScanSmem<Pass::kOutput, 2>) <= kScanSmemBytes &&
              sizeof(ScanSmem<Pass::kSummary, 2>) <= kScanSmemBytes);

}  // namespace hyla::kda::sm90_chunk
