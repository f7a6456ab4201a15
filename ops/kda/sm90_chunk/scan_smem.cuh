// Shared memory and barriers of the scan.
#pragma once
#include "config.h"
#include "cuda/device/barrier.cuh"
#include "scan_size.h"

namespace hyla::kda::sm90_chunk {

inline constexpr int kStages = kScanStages;

// Two rings: group A (v, ke, beta) is free once x is computed, group B (qe, kd, T, A_qk, decay) once o is. A step of the combine uses
// group B only, with a segment's transition in place of qe and kd.
template <int kWarpgroups>
struct ScanSmem {
  uint8_t ke[kStages][16384];
  uint8_t v[kStages][kWarpgroups][8192];
  uint8_t b[kStages][50176];  // qe | kd | T | A_qk | decay: one bulk copy
  uint8_t o[kWarpgroups][8192];
  float beta[kStages][kChunk];
  dev::Barrier full_a[kStages], empty_a[kStages], full_b[kStages], empty_b[kStages], full_o[kWarpgroups], empty_o[kWarpgroups];
};
static_assert(sizeof(ScanSmem<2>) <= kScanSmemBytes);

enum class GroupB : uint32_t { kQe = 0, kKd = 16384, kT = 32768, kA = 40960, kDecay = 49152, kBytes = 49664 };

}  // namespace hyla::kda::sm90_chunk
