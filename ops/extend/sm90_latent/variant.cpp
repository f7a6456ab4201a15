#include "ops/extend/sm90_latent/variant.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "ops/extend/sm90_latent/launch.h"
#include "ops/extend/work.h"

namespace hyla::extend::sm90_latent {
namespace {

constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();

std::optional<Shape> shape_of(const Problem& p) {
  if (p.Lv != kLv) return {};
  if (p.v_aliases_k && p.Lq == 576) return Shape::kMla576;
  if (p.v_aliases_k && p.Lq == 512) return Shape::kMla512;
  if (p.Lq == 512) return Shape::kD512;
  if (p.Lq == 576) return Shape::kD576;
  return {};
}

Status can_run(const Problem& p, const DeviceCaps& caps) {
  if (caps.kind != DeviceKind::kCuda) return Status::unsupported("device", "a CUDA device", caps.name);
  if (caps.compute_capability != 90) return Status::unsupported("device.compute_capability", "90 (wgmma of sm_90a)", std::to_string(caps.compute_capability));
  const auto shape = shape_of(p);
  if (!shape) return Status::unsupported("Lq, Lv", "512/512 or 576/512", fmt::format("{}/{}", p.Lq, p.Lv));
  if (const int64_t need = config_of(*shape).smem_bytes(); caps.smem_per_block < need)
    return Status::unsupported("device.smem_per_block", std::to_string(need), std::to_string(caps.smem_per_block));
  if (p.dtype != DType::kBf16 && p.dtype != DType::kFp16) return Status::unsupported("q.dtype", "bf16 or fp16", to_string(p.dtype));
  if (p.pool != p.dtype) return Status::unsupported("k_buffer.dtype", fmt::format("{} (= q.dtype)", to_string(p.dtype)), to_string(p.pool));
  if (p.out != p.dtype) return Status::unsupported("out.dtype", fmt::format("{} (= q.dtype)", to_string(p.dtype)), to_string(p.out));
  if (p.has_mask) return Status::unsupported("custom_mask", "absent", "given");
  if (!p.aligned16) return Status::unsupported("alignment", "q, k, v, pools, out: base and strides multiples of 16 bytes", "not aligned");
  if (p.sm_scale <= 0) return Status::unsupported("sm_scale", "> 0", fmt::format("{}", p.sm_scale));
  // Row numbers, work items and positions are 32-bit; byte offsets are not.
  if (p.n > kMost32 / (p.Hq + kTileM)) return Status::unsupported("n * Hq", "below 2^31", fmt::format("{} * {}", p.n, p.Hq));
  if (p.batch > kMost32 / p.Hq / 2) return Status::unsupported("batch * Hq", "below 2^31", fmt::format("{} * {}", p.batch, p.Hq));
  if (p.slots > kMost32 || p.prefix_capacity > kMost32 - p.n)
    return Status::unsupported("slots, kv_indices.shape[0]", "below 2^31", fmt::format("{}, {}", p.slots, p.prefix_capacity));
  return {};
}

// Modelled time: clocks measured for a pair of 64-key tiles, over the multiprocessors, and what each item and each launch adds.
double modelled_us(const Problem& p, const DeviceCaps& caps, Shape shape) {
  const double pair_clocks = config_of(shape).shared_v ? 6500 : 9200;
  const double tiles = estimated_pairs(p) * double(p.Hq) / (kTileM * kTileN);
  const double items = double(max_row_tiles(p.n, p.batch, p.Hq / p.Hkv) * p.Hkv);
  const double work = tiles + items * (kItemCostTiles + 1);  // an odd walk ends with an empty tile; half a tile is lost on the diagonal
  const double longest = work / std::max(items, double(caps.sm_count));
  const double waves = std::max(work / caps.sm_count, longest);
  return 12 + waves * pair_clocks / 2 / (caps.clock_ghz * 1e3);
}

// Parts of a row tile by the rule of the device's list, for requests of even lengths.
int expected_parts(const Problem& p, const DeviceCaps& caps) {
  const int64_t group = p.Hq / p.Hkv;
  const double row_tiles = double(p.batch) * std::ceil(double(p.n) / std::max<double>(1, double(p.batch)) * double(group) / kTileM) * double(p.Hkv);
  const double tiles = estimated_pairs(p) * double(p.Hq) / (kTileM * kTileN), each = tiles / std::max(1.0, row_tiles);
  if (row_tiles >= kMaxWaves * caps.sm_count) return 1;
  return std::max(1, int(each / std::max<double>(kMinPartTiles, tiles / caps.sm_count)));
}

// tuning: {chunks of the ring, parts asked for (0: as the lengths ask)}.
Plan propose(const Problem& p, const DeviceCaps& caps, const PlanOptions& options, std::string& config) {
  const Shape shape = *shape_of(p);
  const Config c = config_of(shape);
  Plan plan;
  plan.tile_m = kTileM, plan.tile_n = kTileN, plan.stages = std::max(1, c.stages());
  plan.smem_bytes = c.smem_bytes();
  plan.splits = options.splits > 0 ? options.splits : expected_parts(p, caps);
  plan.tuning = {c.ring_chunks(), options.splits};
  WorkspaceLayout layout;
  place_buffers(layout, p, caps.sm_count, options.splits);
  plan.workspace_bytes = layout.bytes();
  plan.modelled_us = modelled_us(p, caps, shape);
  config = fmt::format("tile={}x{} ring={} chunks", kTileM, kTileN, c.ring_chunks());
  plan.why = fmt::format("{} query rows x pairs of {}-key tiles{}, cut along the keys on the device when rows are few", kTileM, kTileN,
                         c.shared_v ? ", V a view of K" : "");
  return plan;
}

Status run(const Plan& plan, const Args& args, Workspace workspace, Stream stream) {
#if HYLA_WITH_CUDA
  return launch(plan, *shape_of(plan.problem), args, workspace, stream);
#else
  (void)plan, (void)args, (void)workspace, (void)stream;
  return Status::unsupported("device", "a build with CUDA kernels", "a build without");
#endif
}

}  // namespace

Buffers place_buffers(WorkspaceLayout& layout, const Problem& p, int sm_count, int forced_parts) {
  Buffers b;
  const int64_t row_tiles = max_row_tiles(p.n, p.batch, p.Hq / p.Hkv) * p.Hkv, parts = part_capacity(row_tiles, sm_count, forced_parts);
  b.list.item_capacity = int(row_tiles + parts), b.list.part_capacity = int(parts);
  b.list.items = layout.take<WorkItem>(row_tiles + parts);
  b.list.merges = layout.take<MergeItem>(parts);
  b.list.counts = layout.take<int>(4);
  b.part_out = layout.take<float>(parts * kTileM * kLv);
  b.part_lse = layout.take<float>(parts * kTileM);
  return b;
}

Variant variant() { return {"sm90_latent", can_run, propose, run}; }

}  // namespace hyla::extend::sm90_latent
