// Shared memory, registers and the five-bound model of attention tiles: pure arithmetic over head dimensions, tile, stages and a chip's limits.
// Planners choose by it and tests hold its numbers; README.md lists the formulas.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "hyla/device.h"
#include "hyla/extend.h"

namespace hyla::extend {

enum class Mma : uint8_t { kWgmma, kMmaSync };

struct TileConfig {
  Mma mma = Mma::kWgmma;
  int Lq = 128, Lv = 128;
  bool v_aliases_k = false;  // V is a view of K: one load serves both
  int element_bytes = 2;     // of the multiplied type
  bool fp8_pool = false;     // a raw stage beside the converted ones
  int m = 128, n = 128;      // query rows and keys
  int stages = 2;
  int column_splits = 1;        // warpgroups (wgmma) or warps (mma.sync) that share a row block's output columns
  int p_buffers = 0;            // weights kept in shared memory; 0: in registers
  bool q_in_registers = false;  // mma.sync only
  bool window = false, cap = false, mask = false;
  std::string str() const;  // "128x128 stages=2"
};

struct SmemUse {
  int64_t q = 0, k = 0, v = 0, raw = 0;  // k, v, raw: of one stage (raw has one stage in all)
  int64_t p = 0;
  int64_t out = 0;   // what the staged output needs beyond the buffers it reuses
  int64_t misc = 0;  // barriers, slot ring, row scales, in whole KB
  int stages = 0;
  int64_t tiles() const { return q + stages * (k + v) + raw + p; }
  int64_t total() const { return tiles() + out + misc; }
};
SmemUse smem_use(const TileConfig& t);
// Most stages that fit `limit` bytes; 0 when not even one does.
int max_stages(TileConfig t, int64_t limit);

// 32-bit registers of a thread that multiplies.
struct RegisterUse {
  int out = 0, scores = 0, weights = 0, q = 0, fixed = 0;
  int total() const { return out + scores + weights + q + fixed; }
};
RegisterUse register_use(const TileConfig& t);
int register_limit(Mma mma);

// Clocks of one key tile in one block, by resource.
struct Bounds {
  double tensor = 0, smem = 0, mufu = 0, alu = 0, l2 = 0;
  double worst() const;
  const char* limiter() const;
  double efficiency() const { return tensor / worst(); }  // of the tensor peak
};
Bounds clocks_per_tile(const TileConfig& t, const DeviceCaps& caps);
// TFLOP/s of the whole chip when nothing but these bounds counts.
double bound_tflops(const TileConfig& t, const DeviceCaps& caps);

// OK, or which limit of the chip the tile exceeds, by name and number.
Status check_tile(const TileConfig& t, const DeviceCaps& caps);

// The mma.sync tile with the best bound that fits the chip; the chip's shared memory may be capped in `caps`. Fails with the smallest tile's reason.
Result<TileConfig> choose_mma_sync_tile(const Problem& problem, const DeviceCaps& caps);

}  // namespace hyla::extend
