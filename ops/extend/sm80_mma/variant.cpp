#include "ops/extend/sm80_mma/variant.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hyla/workspace.h"
#include "ops/extend/sm80_mma/config.h"
#if HYLA_WITH_CUDA
#include "cuda/host/launch.h"
#include "ops/extend/sm80_mma/launch.h"
#endif

namespace hyla::extend::sm80_mma {
namespace {

constexpr const char* kName = "sm80_mma";
// Fraction of the tensor peak that the kernel reaches on full grids, by tile; NOTES.md has the runs.
constexpr double kEfficiency[kTileCount] = {0.20, 0.18, 0.13, 0.09};
constexpr double kLaunchUs = 4.0, kMergeUs = 3.0;
constexpr int kMaxSplits = 64;

struct Choice {
  int tile = -1, buffers = 0, splits = 1;
  int64_t smem = 0, m_tiles = 0, blocks = 0;
};

int64_t group_of(const Problem& p) { return p.Hq / p.Hkv; }
int64_t row_tiles(const Problem& p, int m) { return std::max<int64_t>(1, (p.max_extend * group_of(p) + m - 1) / m); }

// The widest tile that fits with the most buffers; one buffer is enough (K and V take turns), more of them overlap loads with arithmetic.
Choice choose(const Problem& p, const DeviceCaps& caps, int forced_splits) {
  Choice best;
  for (int tile = 0; tile < kTileCount; ++tile) {
    if (kTiles[tile].max_columns < pad16(p.Lv)) continue;
    int buffers = 0;
    while (buffers < kMaxBuffers && smem_bytes(kTiles[tile], p.Lq, p.Lv, buffers + 1) <= caps.smem_per_block) ++buffers;
    if (buffers == 0 || (best.tile >= 0 && best.buffers >= 2)) continue;
    if (best.tile >= 0 && buffers <= best.buffers) continue;
    best = {tile, buffers, 1, smem_bytes(kTiles[tile], p.Lq, p.Lv, buffers), 0, 0};
  }
  if (best.tile < 0) return best;
  best.m_tiles = row_tiles(p, kTiles[best.tile].m());
  // Requests have at most max_extend rows each and n rows together: about this many row tiles do work.
  const int64_t working = std::min<int64_t>(p.batch * best.m_tiles, p.n * group_of(p) / kTiles[best.tile].m() + p.batch) * p.Hkv;
  const int64_t key_tiles = (std::max<int64_t>(p.max_prefix, 0) + p.max_extend) / kTiles[best.tile].n;
  const int64_t fill = 2 * std::max<int64_t>(1, caps.sm_count) / std::max<int64_t>(1, working);
  best.splits = static_cast<int>(std::clamp<int64_t>(forced_splits > 0 ? forced_splits : std::min(fill, key_tiles / 8), 1, kMaxSplits));
  best.blocks = best.m_tiles * p.batch * p.Hkv * best.splits;
  return best;
}

Status can_run_here(const Problem& p, const DeviceCaps& caps) {
  if (caps.kind != DeviceKind::kCuda) return Status::unsupported("device", "a CUDA device", caps.name);
  if (caps.compute_capability != 90)
    return Status::unsupported("device.compute_capability", "90 (the kernels are compiled for sm_90a)", std::to_string(caps.compute_capability));
  if (p.dtype != DType::kBf16 && p.dtype != DType::kFp16) return Status::unsupported("q.dtype", "bf16 or fp16", to_string(p.dtype));
  if (p.out != p.dtype) return Status::unsupported("out.dtype", fmt::format("{} (q's)", to_string(p.dtype)), to_string(p.out));
  if (p.n * p.Hq > INT32_MAX) return Status::unsupported("q", "at most 2^31 - 1 rows times heads", std::to_string(p.n * p.Hq));
  const Choice c = choose(p, caps, 0);
  if (c.tile < 0)
    return Status::unsupported("Lq, Lv", fmt::format("a tile within the {} bytes of shared memory of {}", caps.smem_per_block, caps.name),
                               fmt::format("{} bytes at least for {}/{}", smem_bytes(kTiles[kTileCount - 1], p.Lq, p.Lv, 1), p.Lq, p.Lv));
  if (c.blocks > INT32_MAX) return Status::unsupported("batch", "at most 2^31 - 1 blocks", std::to_string(c.blocks));
  return {};
}

double modelled_us(const Problem& p, const DeviceCaps& caps, const Choice& c) {
  const Tile& t = kTiles[c.tile];
  const double group = static_cast<double>(group_of(p)), requests = static_cast<double>(std::max<int64_t>(1, p.batch));
  const double used = static_cast<double>(p.n) / requests;  // mean new tokens
  double keys = static_cast<double>(p.max_prefix) + (p.causal && !p.has_mask ? used / 2 : used);
  if (p.sliding_window >= 0) keys = std::min(keys, static_cast<double>(p.sliding_window) + t.m() / group + t.n);
  const double row_tile_count = requests * p.Hkv * std::ceil(used * group / t.m());
  const double flop_per_tile = 2.0 * t.m() * keys * static_cast<double>(pad16(p.Lq) + pad16(p.Lv));
  const double rate = caps.tensor_flop_per_clock * caps.clock_ghz * 1e3 * kEfficiency[c.tile];  // FLOP per us and SM
  const double parallel = std::min<double>(row_tile_count * c.splits, caps.sm_count);
  const double waves = std::max(1.0, row_tile_count * c.splits / caps.sm_count);
  const double compute = row_tile_count * flop_per_tile / (parallel * rate) * (std::ceil(waves) / waves);
  const double bytes = requests * p.Hkv * static_cast<double>(p.max_prefix) * static_cast<double>((p.Lq + (p.v_aliases_k ? 0 : p.Lv)) * size_of(p.pool)) +
                       static_cast<double>(p.n * p.Hq * (p.Lq + p.Lv)) * 2;
  return std::max(compute, bytes / (caps.copy_tbs * 1e6)) + kLaunchUs + (c.splits > 1 ? kMergeUs : 0.0);
}

// Places the parts of split rows; with a null base it counts the bytes.
size_t place(const Problem& p, int splits, void* base, float** out, float** lse) {
  WorkspaceLayout layout(base);
  if (splits > 1) {
    float* partial_out = layout.take<float>(p.n * p.Hq * splits * p.Lv);
    float* partial_lse = layout.take<float>(p.n * p.Hq * splits);
    if (out != nullptr) *out = partial_out, *lse = partial_lse;
  }
  return layout.bytes();
}

// tuning: {tile, blocks, row tiles per request}.
Plan propose_here(const Problem& p, const DeviceCaps& caps, const PlanOptions& options, std::string& config) {
  const Choice c = choose(p, caps, options.splits);
  Plan plan;
  plan.problem = p, plan.caps = caps, plan.variant = kName;
  plan.tile_m = kTiles[c.tile].m(), plan.tile_n = kTiles[c.tile].n, plan.stages = c.buffers, plan.splits = c.splits, plan.smem_bytes = c.smem;
  plan.tuning = {c.tile, c.blocks, c.m_tiles};
  plan.workspace_bytes = place(p, c.splits, nullptr, nullptr, nullptr);
  plan.modelled_us = modelled_us(p, caps, c);
  plan.why = "portable mma.sync: the whole contract";
  config = fmt::format("{}x{} buffers={} splits={}", plan.tile_m, plan.tile_n, c.buffers, c.splits);
  return plan;
}

#if HYLA_WITH_CUDA
Indices indices_of(const TensorView& t) { return {t.data, t.dtype == DType::kI64}; }

Params params_of(const Plan& plan, const Args& a) {
  const Problem& p = plan.problem;
  constexpr double kLog2e = 1.4426950408889634;
  Params x{};
  x.q = a.q.data, x.k = a.k.data, x.v = a.v.data, x.k_buffer = a.k_buffer.data, x.v_buffer = a.v_buffer.data, x.out = a.out.data;
  x.lse = a.lse.as<float>();
  x.qo_indptr = indices_of(a.qo_indptr), x.kv_indptr = indices_of(a.kv_indptr), x.kv_indices = indices_of(a.kv_indices);
  x.mask = a.custom_mask.as<uint8_t>(), x.mask_size = a.custom_mask.numel(), x.mask_indptr = indices_of(a.mask_indptr);
  x.window_offsets = indices_of(a.window_kv_offsets);
  x.sinks = a.sinks.data, x.sinks_bf16 = a.sinks.dtype == DType::kBf16;
  x.q_token = a.q.stride[0], x.q_head = a.q.stride[1], x.k_token = a.k.stride[0], x.k_head = a.k.stride[1];
  x.v_token = a.v.stride[0], x.v_head = a.v.stride[1], x.out_token = a.out.stride[0], x.out_head = a.out.stride[1];
  x.lse_token = a.lse.stride[0], x.lse_head = a.lse.stride[1];
  const auto pool = [](const TensorView& t, int64_t& page, int64_t& slot, int64_t& head) {
    page = t.stride[0], slot = t.rank == 4 ? t.stride[1] : 0, head = t.stride[t.rank - 2];
  };
  pool(a.k_buffer, x.k_page, x.k_slot, x.k_pool_head);
  pool(a.v_buffer, x.v_page, x.v_slot, x.v_pool_head);
  x.page_size = a.k_buffer.rank == 4 ? a.k_buffer.shape[1] : 1;
  x.slots = p.slots, x.rows = p.n, x.prefix_capacity = p.prefix_capacity;
  x.Hkv = static_cast<int>(p.Hkv), x.group = static_cast<int>(p.Hq / p.Hkv), x.Lq = static_cast<int>(p.Lq), x.Lv = static_cast<int>(p.Lv);
  x.batch = static_cast<int>(p.batch);
  x.pool = p.pool == DType::kE4m3 ? PoolType::kE4m3 : p.pool == DType::kE5m2 ? PoolType::kE5m2 : PoolType::kSame;
  x.aliased = p.v_aliases_k, x.aligned16 = p.aligned16, x.causal = p.causal, x.skip_prefix_mask = p.skip_prefix_custom_mask;
  x.skip_prefix = p.skip_prefix, x.skip_extend = p.skip_extend, x.window = p.sliding_window, x.temperature_len = p.xai_temperature_len;
  const double to_log2 = p.logit_cap > 0 ? 1.0 / p.logit_cap : kLog2e;
  x.scale_extend = static_cast<float>(p.sm_scale * to_log2);
  x.scale_prefix = static_cast<float>(static_cast<double>(p.sm_scale) * p.k_scale * to_log2);
  x.cap_log2 = p.logit_cap > 0 ? static_cast<float>(p.logit_cap * kLog2e) : 0.0f;
  x.v_scale = p.v_scale, x.buffers = plan.stages, x.splits = plan.splits, x.m_tiles = plan.tuning[2];
  return x;
}

Status run_here(const Plan& plan, const Args& args, Workspace workspace, Stream stream) {
  cuda::DeviceGuard guard(plan.problem.device);
  HYLA_RETURN_IF_ERROR(guard.status());
  Params params = params_of(plan, args);
  place(plan.problem, plan.splits, workspace.data, &params.partial_out, &params.partial_lse);
  return launch(params, static_cast<int>(plan.tuning[0]), plan.problem.dtype == DType::kFp16, plan.tuning[1], plan.smem_bytes, plan.problem.n * plan.problem.Hq,
                stream);
}
#else
Status run_here(const Plan&, const Args&, Workspace, Stream) { return Status::unsupported("variant", "a library built with CUDA", kName); }
#endif

}  // namespace

Variant variant() { return {kName, can_run_here, propose_here, run_here}; }

}  // namespace hyla::extend::sm80_mma
