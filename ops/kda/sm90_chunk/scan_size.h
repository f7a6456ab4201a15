// Stages and shared memory of the scan, for the planner; scan_smem.cuh checks them against the struct.
#pragma once
#include <cstdint>

namespace hyla::kda::sm90_chunk {

// A group of 48 KB takes longer from L2 than a chunk of the chain with half of V: two stages leave that chain waiting, three do not.
constexpr int scan_stages(bool output, int warpgroups) { return !output ? 3 : warpgroups == 1 ? 3 : 2; }
inline constexpr int64_t kScanSmemBytes = 227 * 1024;

}  // namespace hyla::kda::sm90_chunk
