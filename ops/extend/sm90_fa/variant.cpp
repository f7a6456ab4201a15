#include "ops/extend/sm90_fa/variant.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "hyla/workspace.h"
#include "ops/extend/sm90_fa/config.h"
#include "ops/extend/sm90_fa/params.h"
#include "ops/extend/work.h"
#if HYLA_WITH_CUDA
#include "cuda/host/launch.h"
#include "cuda/host/tensor_map.h"
#include "ops/extend/sm90_fa/launch.h"
#endif

namespace hyla::extend::sm90_fa {
namespace {

constexpr const char* kName = "sm90_fa";
constexpr int kMaxSplits = 128;        // parts of one tile, chosen on the device
constexpr int kSlotsPerSm = 2;         // partial results the workspace holds
constexpr int64_t kMaxRows = 1 << 29;  // rows, prefix entries and slots: positions are 32-bit on the device
constexpr double kPlanUs = 4.0, kCombineUs = 2.5;
// Fraction of the tensor peak on full grids by shape; NOTES.md has the runs.
constexpr double kEfficiency[kShapeCount] = {0.44, 0.58, 0.67, 0.74, 0.61};

Pool pool_of(const Problem& p) { return p.pool == DType::kE4m3 ? Pool::kE4m3 : p.pool == DType::kE5m2 ? Pool::kE5m2 : Pool::kSame; }
int64_t group_of(const Problem& p) { return p.Hq / p.Hkv; }
int64_t tokens_per_tile(const Problem& p) { return kTileM / group_of(p); }
int64_t tile_capacity(const Problem& p) { return p.n / tokens_per_tile(p) + p.batch; }

Status can_run_here(const Problem& p, const DeviceCaps& caps) {
  if (caps.kind != DeviceKind::kCuda) return Status::unsupported("device", "a CUDA device", caps.name);
  if (caps.compute_capability != 90) return Status::unsupported("device.compute_capability", "90 (wgmma)", std::to_string(caps.compute_capability));
  const int shape = find_shape(p.Lq, p.Lv);
  if (shape < 0) return Status::unsupported("Lq, Lv", "64/64, 96/96, 128/128, 192/128 or 256/256", fmt::format("{}/{}", p.Lq, p.Lv));
  if (const int64_t bytes = smem_bytes(shape_for(shape, pool_of(p)), pool_of(p)); bytes > caps.smem_per_block)
    return Status::unsupported("device.smem_per_block", fmt::format("at least {} bytes", bytes), std::to_string(caps.smem_per_block));
  if (p.dtype != DType::kBf16 && p.dtype != DType::kFp16) return Status::unsupported("q.dtype", "bf16 or fp16", to_string(p.dtype));
  if (p.out != p.dtype) return Status::unsupported("out.dtype", fmt::format("{} (q's)", to_string(p.dtype)), to_string(p.out));
  if (p.pool != p.dtype && pool_of(p) == Pool::kSame)
    return Status::unsupported("k_buffer.dtype", fmt::format("{} (q's), e4m3 or e5m2", to_string(p.dtype)), to_string(p.pool));
  if (p.has_mask) return Status::unsupported("custom_mask", "no custom mask", "one");
  if (!p.aligned16) return Status::unsupported("tensors", "bases and strides in multiples of 16 bytes", "others");
  if (group_of(p) > kMaxGroup) return Status::unsupported("Hq / Hkv", fmt::format("at most {}", kMaxGroup), std::to_string(group_of(p)));
  for (const auto& [name, value] : {std::pair{"n", p.n}, {"kv_indices.shape[0]", p.prefix_capacity}, {"k_buffer slots", p.slots}})
    if (value > kMaxRows) return Status::unsupported(name, fmt::format("at most {}", kMaxRows), std::to_string(value));
  if (tile_capacity(p) * p.Hkv > kMaxRows)
    return Status::unsupported("batch", fmt::format("at most {} tiles of queries", kMaxRows), std::to_string(tile_capacity(p) * p.Hkv));
  // Maxima are taken of raw scores, so every factor must keep their order; O is kept in units of v_scale.
  const double factor = static_cast<double>(p.sm_scale) * p.k_scale;
  if (!(p.sm_scale > 0) || !std::isfinite(p.sm_scale)) return Status::unsupported("sm_scale", "a positive number", std::to_string(p.sm_scale));
  if (!(factor > 0) || !std::isfinite(factor)) return Status::unsupported("k_scale", "a positive number", std::to_string(p.k_scale));
  if (!(p.v_scale > 1e-30f) || !std::isfinite(p.v_scale)) return Status::unsupported("v_scale", "a positive number", std::to_string(p.v_scale));
  return {};
}

int slot_capacity(const Problem& p, const DeviceCaps& caps, int forced_splits) {
  if (forced_splits == 1) return 0;
  if (forced_splits > 1) return static_cast<int>(std::min<int64_t>(tile_capacity(p) * p.Hkv * forced_splits, kMaxRows));
  return kSlotsPerSm * std::max(1, caps.sm_count);
}

// Places the lists and partial results; with a null base it counts the bytes.
size_t place(const Problem& p, int slots, void* base, Params* out) {
  WorkspaceLayout layout(base);
  const int64_t tiles = tile_capacity(p), rows = std::min(tokens_per_tile(p), std::max<int64_t>(1, p.max_extend)) * group_of(p);
  Params x{};
  x.header = layout.take<Header>(1);
  x.requests = layout.take<Request>(p.batch);
  x.costs = layout.take<int32_t>(tiles);
  x.owners = layout.take<int32_t>(tiles);
  x.units = layout.take<Unit>(tiles + slots);
  x.split_tiles = layout.take<SplitTile>(slots);
  x.partial_o = layout.take<float>(slots * rows * p.Lv);
  x.partial_lse = layout.take<float>(slots * rows);
  if (out != nullptr) {
    out->header = x.header, out->requests = x.requests, out->costs = x.costs, out->owners = x.owners, out->units = x.units;
    out->split_tiles = x.split_tiles, out->partial_o = x.partial_o, out->partial_lse = x.partial_lse;
    out->tile_capacity = static_cast<int32_t>(tiles), out->slot_capacity = slots, out->slot_rows = static_cast<int32_t>(rows);
  }
  return layout.bytes();
}

// What the device would choose for requests of even lengths.
int expected_splits(const Problem& p, const DeviceCaps& caps, int tile_n) {
  const int64_t per_request = std::max<int64_t>(1, p.n / std::max<int64_t>(1, p.batch));
  const int64_t items = std::max<int64_t>(1, p.batch * ((per_request + tokens_per_tile(p) - 1) / tokens_per_tile(p)) * p.Hkv);
  int64_t keys = (p.skip_prefix ? 0 : std::max<int64_t>(0, p.max_prefix)) + (p.skip_extend ? 0 : per_request);
  if (p.sliding_window >= 0) keys = std::min(keys, p.sliding_window + tokens_per_tile(p));
  return static_cast<int>(std::clamp<int64_t>(std::min(caps.sm_count / items, keys / tile_n / 2), 1, kMaxSplits));
}

double modelled_us(const Problem& p, const DeviceCaps& caps, int shape, int splits) {
  const Shape s = shape_for(shape, pool_of(p));
  const int64_t per_request = std::max<int64_t>(1, p.n / std::max<int64_t>(1, p.batch)), tokens = tokens_per_tile(p);
  const int64_t tiles_per_request = (per_request + tokens - 1) / tokens;
  const double m_tiles = static_cast<double>(p.batch * tiles_per_request);
  const double items = m_tiles * static_cast<double>(p.Hkv) * splits;
  // Key tiles of a unit from the pairs that count; a partial tile and the start of a unit cost one each.
  const double pairs_per_row = estimated_pairs(p) / std::max(1.0, static_cast<double>(p.n));
  const double key_tiles = pairs_per_row / s.tile_n / splits + 1.5;
  const double rate = caps.tensor_flop_per_clock * caps.clock_ghz * 1e3 * kEfficiency[shape];  // FLOP per us and SM
  const double unit_us = key_tiles * 2.0 * kTileM * s.tile_n * (s.lq + s.lv) / rate;
  const double waves = std::ceil(items / std::max(1, caps.sm_count));
  const double bytes_us = estimated_bytes(p) / (caps.copy_tbs * 1e6);
  return std::max(waves * unit_us, bytes_us) + kPlanUs + (splits > 1 ? kCombineUs : 0.0);
}

// tuning: {shape, slots, forced splits (0: the device's choice)}.
Plan propose_here(const Problem& p, const DeviceCaps& caps, const PlanOptions& options, std::string& config) {
  const int shape = find_shape(p.Lq, p.Lv);
  const Shape s = shape_for(shape, pool_of(p));
  const int slots = slot_capacity(p, caps, options.splits);
  Plan plan;
  plan.problem = p, plan.caps = caps, plan.variant = kName;
  plan.tile_m = kTileM, plan.tile_n = s.tile_n, plan.stages = s.stages, plan.smem_bytes = smem_bytes(s, pool_of(p));
  plan.splits = options.splits > 0 ? options.splits : expected_splits(p, caps, s.tile_n);
  plan.tuning = {shape, slots, options.splits};
  plan.workspace_bytes = place(p, slots, nullptr, nullptr);
  plan.modelled_us = modelled_us(p, caps, shape, plan.splits);
  plan.why = "warp-specialised wgmma, work list made on the device";
  config = fmt::format("{}x{} stages={} splits={}", plan.tile_m, plan.tile_n, plan.stages, plan.splits);
  return plan;
}

#if HYLA_WITH_CUDA
// Row addressing of `t` ([rows, heads, columns] or [pages, page size, heads, columns]); fails when 32 bits do not reach its last row.
Status matrix_of(const char* name, const TensorView& t, Matrix& m) {
  const int64_t bytes = size_of(t.dtype), row = t.stride[t.rank - 3] * bytes, page = (t.rank == 4 ? t.stride[0] : t.stride[0]) * bytes;
  int64_t unit = std::gcd(row, page);
  if (unit == 0) unit = 16;
  while (unit > UINT32_MAX) unit /= 2;
  m.data = t.data, m.head = t.stride[t.rank - 2] * bytes;
  const int64_t last = (t.rank == 4 ? (t.shape[0] - 1) * page + (t.shape[1] - 1) * row : (t.shape[0] - 1) * row) / unit;
  if (last > UINT32_MAX)
    return Status::unsupported(name, "rows that 32 bits of the strides' common divisor reach", fmt::format("{} units of {} bytes", last, unit));
  m.unit = static_cast<uint32_t>(unit), m.per_row = static_cast<uint32_t>(row / unit), m.per_page = static_cast<uint32_t>(page / unit);
  return {};
}

// Heads of q are rows too.
Status query_matrix(const TensorView& t, Params& x) {
  const int64_t bytes = size_of(t.dtype), row = t.stride[0] * bytes, head = t.stride[1] * bytes;
  int64_t unit = std::gcd(row, head);
  if (unit == 0) unit = 16;
  while (unit > UINT32_MAX) unit /= 2;
  const int64_t last = ((t.shape[0] - 1) * row + (t.shape[1] - 1) * head) / unit;
  if (last > UINT32_MAX)
    return Status::unsupported("q", "rows that 32 bits of the strides' common divisor reach", fmt::format("{} units of {} bytes", last, unit));
  x.q = {t.data, head, static_cast<uint32_t>(unit), static_cast<uint32_t>(row / unit), 0};
  x.q_per_head = static_cast<uint32_t>(head / unit);
  return {};
}

Status map_of(const char* name, const TensorView& t, int tile_n, TensorMap& out) {
  const int panel = panel_bytes(static_cast<int>(t.shape[2]));
  cuda::TensorMapSpec spec;
  spec.argument = name, spec.data = t.data, spec.rank = 3;
  spec.type = t.dtype == DType::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  for (int i = 0; i < 3; ++i) spec.extent[i] = static_cast<uint64_t>(t.shape[2 - i]);
  spec.stride_bytes = {0, static_cast<uint64_t>(t.stride[1] * 2), static_cast<uint64_t>(t.stride[0] * 2)};
  spec.box = {static_cast<uint32_t>(panel / 2), 1, static_cast<uint32_t>(tile_n)};
  spec.swizzle = panel == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
  CUtensorMap map;
  static_assert(sizeof map == sizeof out);
  HYLA_RETURN_IF_ERROR(cuda::make_tensor_map(spec, map));
  std::memcpy(&out, &map, sizeof out);
  return {};
}

int shift_of(int64_t size) {
  int shift = 0;
  while ((int64_t(1) << shift) < size) ++shift;
  return (int64_t(1) << shift) == size ? shift : -1;
}

Status fill_tensors(const Plan& plan, const Args& a, Params& x) {
  const Problem& p = plan.problem;
  HYLA_RETURN_IF_ERROR(query_matrix(a.q, x));
  HYLA_RETURN_IF_ERROR(matrix_of("k", a.k, x.k));
  HYLA_RETURN_IF_ERROR(matrix_of("v", a.v, x.v));
  HYLA_RETURN_IF_ERROR(matrix_of("k_buffer", a.k_buffer, x.k_pool));
  HYLA_RETURN_IF_ERROR(matrix_of("v_buffer", a.v_buffer, x.v_pool));
  x.out = a.out.data, x.out_row = a.out.stride[0] * 2, x.out_head = a.out.stride[1] * 2;
  x.lse = a.lse.defined() ? a.lse.as<float>() : nullptr;
  x.lse_row = a.lse.stride[0], x.lse_head = a.lse.stride[1];
  x.sinks = a.sinks.defined() ? a.sinks.data : nullptr, x.sinks_bf16 = a.sinks.dtype == DType::kBf16;
  x.qo_indptr = a.qo_indptr.data, x.kv_indptr = a.kv_indptr.data, x.kv_indices = a.kv_indices.data;
  x.qo64 = a.qo_indptr.dtype == DType::kI64, x.kv64 = a.kv_indptr.dtype == DType::kI64, x.indices64 = a.kv_indices.dtype == DType::kI64;
  const auto evenly = [](const TensorView& t) { return t.rank == 3 || t.stride[0] == t.shape[1] * t.stride[1]; };
  const bool paged = !evenly(a.k_buffer) || !evenly(a.v_buffer);
  x.page_size = paged ? static_cast<int32_t>(p.page_size) : 1, x.page_shift = shift_of(x.page_size);
  // A tensor map wants non-zero strides, which a single row or head may lack.
  x.use_tma = p.n >= plan.tile_n && a.k.stride[0] > 0 && a.k.stride[1] > 0 && a.v.stride[0] > 0 && a.v.stride[1] > 0;
  if (x.use_tma) {
    HYLA_RETURN_IF_ERROR(map_of("k", a.k, plan.tile_n, x.k_map));
    HYLA_RETURN_IF_ERROR(map_of("v", a.v, plan.tile_n, x.v_map));
  }
  return {};
}

Status run_here(const Plan& plan, const Args& args, Workspace workspace, Stream stream) {
  const Problem& p = plan.problem;
  cuda::DeviceGuard guard(p.device);
  HYLA_RETURN_IF_ERROR(guard.status());
  constexpr int64_t kFar = 1 << 29;
  Params x{};
  HYLA_RETURN_IF_ERROR(fill_tensors(plan, args, x));
  x.n = p.n, x.kv_capacity = p.prefix_capacity, x.slots = p.slots;
  x.batch = static_cast<int32_t>(p.batch), x.kv_heads = static_cast<int32_t>(p.Hkv), x.group = static_cast<int32_t>(group_of(p));
  x.tokens_per_tile = static_cast<int32_t>(tokens_per_tile(p));
  x.window = p.sliding_window < 0 || p.sliding_window > kFar ? -1 : static_cast<int32_t>(p.sliding_window);
  x.ahead = p.causal ? 0 : static_cast<int32_t>(x.window < 0 ? kFar : x.window);
  x.xai_length = p.xai_temperature_len > 0 ? static_cast<int32_t>(std::min<int64_t>(p.xai_temperature_len, INT32_MAX)) : 0;
  x.sm_scale = p.sm_scale, x.cap = p.logit_cap, x.k_scale = p.k_scale, x.v_scale = p.v_scale;
  x.skip_prefix = p.skip_prefix, x.skip_new = p.skip_extend;
  x.max_splits = static_cast<int32_t>(plan.tuning[2]), x.grid = plan.caps.sm_count;
  x.key_bytes = static_cast<int32_t>((p.Lq + p.Lv) * 2);
  place(p, static_cast<int>(plan.tuning[1]), workspace.data, &x);
  return launch(x, static_cast<int>(plan.tuning[0]), pool_of(p), p.dtype == DType::kBf16, 2 * plan.caps.sm_count, stream);
}
#else
Status run_here(const Plan&, const Args&, Workspace, Stream) { return Status::unsupported("variant", "a library built with CUDA", kName); }
#endif

}  // namespace

Variant variant() { return {kName, can_run_here, propose_here, run_here}; }

}  // namespace hyla::extend::sm90_fa
