#include "ops/extend/tiles.h"

#include <fmt/format.h>

#include <algorithm>

namespace hyla::extend {
namespace {

constexpr int64_t kKiB = 1024;
constexpr double kSmemBytesPerClock = 128, kMufuPerClock = 16, kLanesPerClock = 128;
// L2 to shared memory per multiprocessor beside a busy tensor pipe, measured on an H200 (36-43 when nothing else runs).
constexpr double kL2BytesPerClock = 28;
// mma.sync reaches this share of the tensor peak on Hopper, whose full rate needs wgmma; older chips reach it whole.
constexpr double kMmaSyncShareOnHopper = 0.62;

constexpr int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

int64_t control_bytes(const TileConfig& t) {
  const int64_t slot_ring = int64_t{t.stages} * t.n * 4;
  if (t.mma == Mma::kMmaSync) return std::max(kKiB, round_up(slot_ring, kKiB));
  const int64_t barriers = 16 * (2 * t.stages + 2 * t.stages + 6), row_scales = t.column_splits > 1 ? int64_t{3} * t.m * 4 : 0;
  return std::max(2 * kKiB, round_up(barriers + slot_ring + row_scales, kKiB));
}

}  // namespace

std::string TileConfig::str() const { return fmt::format("{}x{} stages={}", m, n, stages); }

SmemUse smem_use(const TileConfig& t) {
  SmemUse s;
  s.stages = t.stages;
  s.q = t.q_in_registers ? 0 : int64_t{t.m} * t.Lq * t.element_bytes;
  s.k = int64_t{t.n} * t.Lq * t.element_bytes;
  s.v = t.v_aliases_k ? 0 : int64_t{t.n} * t.Lv * t.element_bytes;
  s.raw = t.fp8_pool ? int64_t{t.n} * (t.Lq + (t.v_aliases_k ? 0 : t.Lv)) : 0;
  s.p = int64_t{t.p_buffers} * t.m * t.n * 2;
  // The output is staged where Q or the stages were.
  if (t.mma == Mma::kWgmma) s.out = std::max<int64_t>(0, int64_t{t.m} * t.Lv * 2 - std::max(s.q, t.stages * (s.k + s.v)));
  s.misc = control_bytes(t);
  return s;
}

int max_stages(TileConfig t, int64_t limit) {
  int stages = 0;
  for (t.stages = 1; t.stages <= 8 && smem_use(t).total() <= limit; ++t.stages) stages = t.stages;
  return stages;
}

RegisterUse register_use(const TileConfig& t) {
  RegisterUse r;
  r.out = t.Lv / (2 * t.column_splits);
  r.scores = t.n / 2;
  r.weights = t.p_buffers > 0 ? 0 : t.n / 4;
  r.q = t.q_in_registers ? t.Lq / 4 : 0;
  r.fixed = 40 + (t.window ? 8 : 0) + (t.cap ? 8 : 0) + (t.mask ? 16 : 0);
  return r;
}

int register_limit(Mma mma) { return mma == Mma::kWgmma ? 240 : 255; }

double Bounds::worst() const { return std::max({tensor, smem, mufu, alu, l2}); }

const char* Bounds::limiter() const {
  const double top = worst();
  return top == tensor ? "tensor cores" : top == smem ? "shared memory" : top == mufu ? "exponentials" : top == l2 ? "L2" : "FP32 lanes";
}

Bounds clocks_per_tile(const TileConfig& t, const DeviceCaps& caps) {
  const double m = t.m, n = t.n, lq = t.Lq, lv = t.Lv, c = t.column_splits, e = t.element_bytes;
  const double loaded = n * (lq + (t.v_aliases_k ? 0 : lv)) * e;
  Bounds b;
  b.tensor = 2 * m * n * (lq + lv) / std::max(caps.tensor_flop_per_clock, 1.0);
  if (t.mma == Mma::kWgmma) {
    b.smem = m / 64 * (lq / 16) * (n / 4 + 16) + m / 64 * c * (n / 16) * (lv / (4 * c) + (t.p_buffers > 0 ? 16 : 0)) + loaded / kSmemBytesPerClock;
  } else {
    if (caps.compute_capability == 90) b.tensor /= kMmaSyncShareOnHopper;
    // Every 16-row warp reads the whole of K and its share of V's columns.
    b.smem = (m / 16 * c * n * (lq + lv / c) * e + loaded) / kSmemBytesPerClock;
  }
  b.mufu = m * n / kMufuPerClock * (t.cap ? 3 : 1);
  b.alu = (6 * m * n + m * lv) / kLanesPerClock;
  b.l2 = loaded / kL2BytesPerClock;
  return b;
}

double bound_tflops(const TileConfig& t, const DeviceCaps& caps) {
  const double flop = 2.0 * t.m * t.n * (t.Lq + t.Lv);
  return flop / clocks_per_tile(t, caps).worst() * caps.clock_ghz * 1e9 * caps.sm_count * 1e-12;
}

Status check_tile(const TileConfig& t, const DeviceCaps& caps) {
  const SmemUse smem = smem_use(t);
  if (smem.total() > caps.smem_per_block)
    return Status::unsupported("smem_per_block", fmt::format("{} bytes for a tile of {} at head dims {}/{}", smem.total(), t.str(), t.Lq, t.Lv),
                               fmt::format("{} on {}", caps.smem_per_block, caps.name));
  const RegisterUse registers = register_use(t);
  if (registers.total() > register_limit(t.mma))
    return Status::unsupported("registers", fmt::format("{} a thread for a tile of {} at head dims {}/{}", registers.total(), t.str(), t.Lq, t.Lv),
                               std::to_string(register_limit(t.mma)));
  return {};
}

Result<TileConfig> choose_mma_sync_tile(const Problem& p, const DeviceCaps& caps) {
  constexpr int kRows[] = {128, 64, 32, 16}, kKeys[] = {128, 64, 32, 16};
  TileConfig best;
  double best_bound = 0;
  Status refusal;
  for (const int m : kRows)
    for (const int n : kKeys)
      for (int stages = 3; stages >= 1; --stages)
        for (const int columns : {1, 2, 4}) {
          TileConfig t{.mma = Mma::kMmaSync,
                       .Lq = static_cast<int>(p.Lq),
                       .Lv = static_cast<int>(p.Lv),
                       .v_aliases_k = p.v_aliases_k,
                       .fp8_pool = size_of(p.pool) == 1,
                       .m = m,
                       .n = n,
                       .stages = stages,
                       .column_splits = columns};
          t.window = p.sliding_window >= 0, t.cap = p.logit_cap > 0, t.mask = p.has_mask;
          if (m / 16 * columns > 16) continue;  // warps of a block
          if (Status status = check_tile(t, caps); !status.ok()) {
            refusal = std::move(status);
            continue;
          }
          // One stage waits for its load; more than two gain little (measured).
          const double bound = bound_tflops(t, caps) * (stages == 1 ? 0.6 : 1) * (1 + 0.01 * stages);
          if (bound > best_bound) best = t, best_bound = bound;
        }
  if (best_bound == 0) return refusal;
  return best;
}

}  // namespace hyla::extend
