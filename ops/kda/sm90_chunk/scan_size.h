// Shared memory of the scan, for the planner; scan_smem.cuh checks it against the struct.
#pragma once
#include <cstdint>

namespace hyla::kda::sm90_chunk {

inline constexpr int kScanStages = 2;
inline constexpr int64_t kScanSmemBytes = 184 * 1024;

}  // namespace hyla::kda::sm90_chunk
