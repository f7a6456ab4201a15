#include "ops/extend/problem.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/overlap.h"

namespace hyla::extend {
namespace {

constexpr int64_t kMaxHeadDim = 576, kHeadDimStep = 8;

using hyla::to_string;
using std::to_string;

Status invalid(std::string argument, std::string expected, std::string got) {
  return Status::invalid(std::move(argument), std::move(expected), std::move(got));
}

bool is_fp8(DType t) { return t == DType::kE4m3 || t == DType::kE5m2; }

Status check_dtype(const char* name, const TensorView& t, DType want, const char* source) {
  if (t.dtype == want) return {};
  return invalid(fmt::format("{}.dtype", name), fmt::format("{} (= {})", to_string(want), source), to_string(t.dtype));
}

// A flat index tensor of `length` elements (-1: any length).
Status check_index(const char* name, const TensorView& t, int64_t length, const char* source, Device device) {
  HYLA_RETURN_IF_ERROR(check_rank(name, t, 1, "[length]"));
  if (!is_index(t.dtype)) return invalid(fmt::format("{}.dtype", name), "int32 or int64", to_string(t.dtype));
  if (length >= 0) HYLA_RETURN_IF_ERROR(check_extent(name, t, 0, length, source));
  HYLA_RETURN_IF_ERROR(check_inner(name, t));
  return check_device(name, t, device);
}

Status check_head_dim(const std::string& name, int64_t dim) {
  if (dim >= kHeadDimStep && dim <= kMaxHeadDim && dim % kHeadDimStep == 0) return {};
  return invalid(name, fmt::format("a head dimension that is a multiple of {} from {} to {}", kHeadDimStep, kHeadDimStep, kMaxHeadDim), to_string(dim));
}

Status check_finite(const char* name, float value) { return std::isfinite(value) ? Status{} : invalid(name, "a finite number", fmt::format("{}", value)); }
Status check_scale(const char* name, float value) {
  return std::isfinite(value) && value > 0 ? Status{} : invalid(name, "a finite number > 0", fmt::format("{}", value));
}

Status check_pool(const char* name, const TensorView& t, const Problem& p, int64_t head_dim, const char* dim_source, Device device) {
  HYLA_RETURN_IF_ERROR(check_view(name, t));
  if (t.rank != 3 && t.rank != 4) return invalid(name, fmt::format("rank 3 [slots, Hkv, {0}] or rank 4 [pages, page_size, Hkv, {0}]", head_dim), describe(t));
  if (t.dtype != p.dtype && !is_fp8(t.dtype))
    return invalid(fmt::format("{}.dtype", name), fmt::format("{} (= q.dtype), e4m3 or e5m2", to_string(p.dtype)), to_string(t.dtype));
  HYLA_RETURN_IF_ERROR(check_extent(name, t, t.rank - 2, p.Hkv, "k.shape[1]"));
  HYLA_RETURN_IF_ERROR(check_extent(name, t, t.rank - 1, head_dim, dim_source));
  if (t.rank == 4 && t.shape[1] < 1) return invalid(fmt::format("{}.shape[1]", name), "a page size >= 1", to_string(t.shape[1]));
  HYLA_RETURN_IF_ERROR(check_inner(name, t));
  return check_device(name, t, device);
}

bool same_strides(const TensorView& a, const TensorView& b) {
  for (int i = 0; i + 1 < a.rank; ++i)
    if (a.shape[i] > 1 && a.stride[i] != b.stride[i]) return false;
  return true;
}
bool is_view_of_first_columns(const TensorView& v, const TensorView& k) {
  return v.rank == k.rank && v.shape[v.rank - 1] <= k.shape[k.rank - 1] && (v.numel() == 0 || (v.data == k.data && same_strides(v, k)));
}

bool is_aligned16(const TensorView& t) {
  if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0) return false;
  for (int i = 0; i + 1 < t.rank; ++i)
    if (t.stride[i] % 16 * size_of(t.dtype) % 16 != 0) return false;
  return true;
}

Status check_outputs(const Args& args) {
  if (overlaps_itself(args.out)) return invalid("out.stride", "strides that give every element its own place", describe_strides(args.out));
  if (overlaps_itself(args.lse)) return invalid("lse.stride", "strides that give every element its own place", describe_strides(args.lse));
  const struct {
    const char* name;
    const TensorView& view;
  } inputs[] = {{"q", args.q},
                {"k", args.k},
                {"v", args.v},
                {"k_buffer", args.k_buffer},
                {"v_buffer", args.v_buffer},
                {"qo_indptr", args.qo_indptr},
                {"kv_indptr", args.kv_indptr},
                {"kv_indices", args.kv_indices},
                {"custom_mask", args.custom_mask},
                {"mask_indptr", args.mask_indptr},
                {"window_kv_offsets", args.window_kv_offsets},
                {"sinks", args.sinks}};
  for (const auto& input : inputs) {
    if (overlap(args.out, input.view)) return invalid("out", "memory apart from every input", fmt::format("an overlap with {}", input.name));
    if (overlap(args.lse, input.view)) return invalid("lse", "memory apart from every input", fmt::format("an overlap with {}", input.name));
  }
  if (overlap(args.out, args.lse)) return invalid("lse", "memory apart from out", "an overlap with out");
  return {};
}

}  // namespace

PoolLayout pool_layout(const TensorView& pool) {
  if (pool.rank == 4) return {pool.shape[0] * pool.shape[1], pool.shape[1], pool.stride[0], pool.stride[1], pool.stride[2]};
  return {pool.shape[0], 1, pool.stride[0], pool.stride[0], pool.stride[1]};
}

Result<Problem> make_problem(const Args& args) {
  Problem p;
  for (const auto& [name, t] : {std::pair("custom_mask", &args.custom_mask), std::pair("mask_indptr", &args.mask_indptr),
                                std::pair("window_kv_offsets", &args.window_kv_offsets), std::pair("sinks", &args.sinks), std::pair("lse", &args.lse)})
    if (t->rank < 0) return invalid(fmt::format("{}.rank", name), "0 (absent) or more", to_string(t->rank));
  HYLA_RETURN_IF_ERROR(check_rank("q", args.q, 3, "[n, Hq, Lq]"));
  p.device = args.q.device;
  p.n = args.q.shape[0], p.Hq = args.q.shape[1], p.Lq = args.q.shape[2], p.dtype = args.q.dtype;
  const bool cpu = p.device.kind == DeviceKind::kCpu;
  if (p.dtype != DType::kBf16 && p.dtype != DType::kFp16 && !(cpu && p.dtype == DType::kFp32))
    return invalid("q.dtype", cpu ? "bf16, fp16 or fp32" : "bf16 or fp16 (fp32 is computed on the CPU only)", to_string(p.dtype));
  if (p.Hq < 1) return invalid("q.shape[1]", "at least one head", to_string(p.Hq));
  HYLA_RETURN_IF_ERROR(check_head_dim("q.shape[2]", p.Lq));
  HYLA_RETURN_IF_ERROR(check_inner("q", args.q));

  HYLA_RETURN_IF_ERROR(check_rank("k", args.k, 3, "[n, Hkv, Lq]"));
  p.Hkv = args.k.shape[1];
  HYLA_RETURN_IF_ERROR(check_dtype("k", args.k, p.dtype, "q.dtype"));
  HYLA_RETURN_IF_ERROR(check_extent("k", args.k, 0, p.n, "q.shape[0]"));
  if (p.Hkv < 1 || p.Hq % p.Hkv != 0) return invalid("k.shape[1]", fmt::format("a divisor of q.shape[1] = {}", p.Hq), to_string(p.Hkv));
  HYLA_RETURN_IF_ERROR(check_extent("k", args.k, 2, p.Lq, "q.shape[2]"));
  HYLA_RETURN_IF_ERROR(check_inner("k", args.k));
  HYLA_RETURN_IF_ERROR(check_device("k", args.k, p.device));

  HYLA_RETURN_IF_ERROR(check_rank("v", args.v, 3, "[n, Hkv, Lv]"));
  p.Lv = args.v.shape[2];
  HYLA_RETURN_IF_ERROR(check_dtype("v", args.v, p.dtype, "q.dtype"));
  HYLA_RETURN_IF_ERROR(check_extent("v", args.v, 0, p.n, "q.shape[0]"));
  HYLA_RETURN_IF_ERROR(check_extent("v", args.v, 1, p.Hkv, "k.shape[1]"));
  HYLA_RETURN_IF_ERROR(check_head_dim("v.shape[2]", p.Lv));
  HYLA_RETURN_IF_ERROR(check_inner("v", args.v));
  HYLA_RETURN_IF_ERROR(check_device("v", args.v, p.device));

  HYLA_RETURN_IF_ERROR(check_pool("k_buffer", args.k_buffer, p, p.Lq, "q.shape[2]", p.device));
  HYLA_RETURN_IF_ERROR(check_pool("v_buffer", args.v_buffer, p, p.Lv, "v.shape[2]", p.device));
  p.pool = args.k_buffer.dtype;
  HYLA_RETURN_IF_ERROR(check_dtype("v_buffer", args.v_buffer, p.pool, "k_buffer.dtype"));
  if (args.v_buffer.rank != args.k_buffer.rank)
    return invalid("v_buffer", fmt::format("rank {} (= k_buffer.rank)", args.k_buffer.rank), describe(args.v_buffer));
  for (int dim = 0; dim + 2 < args.k_buffer.rank; ++dim)
    HYLA_RETURN_IF_ERROR(check_extent("v_buffer", args.v_buffer, dim, args.k_buffer.shape[dim], dim == 0 ? "k_buffer.shape[0]" : "k_buffer.shape[1]"));
  const PoolLayout layout = pool_layout(args.k_buffer);
  p.slots = layout.slots, p.page_size = layout.page_size;

  HYLA_RETURN_IF_ERROR(check_index("qo_indptr", args.qo_indptr, -1, "", p.device));
  if (args.qo_indptr.shape[0] < 1) return invalid("qo_indptr.shape[0]", "batch + 1 >= 1", to_string(args.qo_indptr.shape[0]));
  p.batch = args.qo_indptr.shape[0] - 1;
  HYLA_RETURN_IF_ERROR(check_index("kv_indptr", args.kv_indptr, p.batch + 1, "qo_indptr.shape[0]", p.device));
  HYLA_RETURN_IF_ERROR(check_index("kv_indices", args.kv_indices, -1, "", p.device));
  p.prefix_capacity = args.kv_indices.shape[0];

  if (args.max_extend < 0) return invalid("max_extend", "a bound >= 0 (0: unknown)", to_string(args.max_extend));
  if (args.max_prefix < 0) return invalid("max_prefix", "a bound >= 0 (0: unknown)", to_string(args.max_prefix));
  p.max_extend = args.max_extend == 0 ? p.n : std::min(args.max_extend, p.n);
  p.max_prefix = args.max_prefix == 0 ? p.prefix_capacity : std::min(args.max_prefix, p.prefix_capacity);

  p.has_mask = args.custom_mask.defined();
  if (p.has_mask) {
    HYLA_RETURN_IF_ERROR(check_rank("custom_mask", args.custom_mask, 1, "[elements]"));
    if (args.custom_mask.dtype != DType::kU8 && args.custom_mask.dtype != DType::kBool)
      return invalid("custom_mask.dtype", "u8 or bool", to_string(args.custom_mask.dtype));
    HYLA_RETURN_IF_ERROR(check_inner("custom_mask", args.custom_mask));
    HYLA_RETURN_IF_ERROR(check_device("custom_mask", args.custom_mask, p.device));
    if (!args.mask_indptr.defined()) return invalid("mask_indptr", fmt::format("int32 or int64 [{}] beside custom_mask", p.batch + 1), "absent");
    HYLA_RETURN_IF_ERROR(check_index("mask_indptr", args.mask_indptr, p.batch + 1, "qo_indptr.shape[0]", p.device));
    p.skip_prefix_custom_mask = args.skip_prefix_custom_mask;
  } else if (args.mask_indptr.defined()) {
    return invalid("custom_mask", "u8 or bool [elements] beside mask_indptr", "absent");
  }
  if (args.window_kv_offsets.defined()) {
    HYLA_RETURN_IF_ERROR(check_index("window_kv_offsets", args.window_kv_offsets, p.batch, "qo_indptr.shape[0] - 1", p.device));
    p.has_window_offsets = p.has_mask;  // they displace mask columns only
  }
  p.has_sinks = args.sinks.defined();
  if (p.has_sinks) {
    HYLA_RETURN_IF_ERROR(check_rank("sinks", args.sinks, 1, "[Hq]"));
    if (args.sinks.dtype != DType::kFp32 && args.sinks.dtype != DType::kBf16) return invalid("sinks.dtype", "fp32 or bf16", to_string(args.sinks.dtype));
    HYLA_RETURN_IF_ERROR(check_extent("sinks", args.sinks, 0, p.Hq, "q.shape[1]"));
    HYLA_RETURN_IF_ERROR(check_inner("sinks", args.sinks));
    HYLA_RETURN_IF_ERROR(check_device("sinks", args.sinks, p.device));
  }

  HYLA_RETURN_IF_ERROR(check_rank("out", args.out, 3, "[n, Hq, Lv]"));
  p.out = args.out.dtype;
  if (p.out != p.dtype && !(cpu && p.out == DType::kFp32))
    return invalid("out.dtype", fmt::format("{} (= q.dtype){}", to_string(p.dtype), cpu ? " or fp32" : ""), to_string(p.out));
  HYLA_RETURN_IF_ERROR(check_extent("out", args.out, 0, p.n, "q.shape[0]"));
  HYLA_RETURN_IF_ERROR(check_extent("out", args.out, 1, p.Hq, "q.shape[1]"));
  HYLA_RETURN_IF_ERROR(check_extent("out", args.out, 2, p.Lv, "v.shape[2]"));
  HYLA_RETURN_IF_ERROR(check_inner("out", args.out));
  HYLA_RETURN_IF_ERROR(check_device("out", args.out, p.device));
  p.has_lse = args.lse.defined();
  if (p.has_lse) {
    HYLA_RETURN_IF_ERROR(check_rank("lse", args.lse, 2, "[n, Hq]"));
    if (args.lse.dtype != DType::kFp32) return invalid("lse.dtype", "fp32", to_string(args.lse.dtype));
    HYLA_RETURN_IF_ERROR(check_extent("lse", args.lse, 0, p.n, "q.shape[0]"));
    HYLA_RETURN_IF_ERROR(check_extent("lse", args.lse, 1, p.Hq, "q.shape[1]"));
    HYLA_RETURN_IF_ERROR(check_device("lse", args.lse, p.device));
  }
  HYLA_RETURN_IF_ERROR(check_outputs(args));

  HYLA_RETURN_IF_ERROR(check_finite("sm_scale", args.sm_scale));
  HYLA_RETURN_IF_ERROR(check_finite("logit_cap", args.logit_cap));
  HYLA_RETURN_IF_ERROR(check_scale("k_scale", args.k_scale));
  HYLA_RETURN_IF_ERROR(check_scale("v_scale", args.v_scale));
  p.sm_scale = args.sm_scale != 0 ? args.sm_scale : static_cast<float>(1 / std::sqrt(static_cast<double>(p.Lq)));
  p.logit_cap = std::max(args.logit_cap, 0.0f);
  p.k_scale = args.k_scale, p.v_scale = args.v_scale;
  constexpr int64_t kFarthest = int64_t{1} << 48;  // no position is farther: larger numbers mean the same, and could overflow
  p.sliding_window = std::min(args.sliding_window, kFarthest);
  p.xai_temperature_len = args.xai_temperature_len <= 0 ? -1 : std::min(args.xai_temperature_len, kFarthest);
  p.causal = args.causal && !p.has_mask;
  p.skip_prefix = args.skip_prefix, p.skip_extend = args.skip_extend;
  p.v_aliases_k = is_view_of_first_columns(args.v, args.k) && is_view_of_first_columns(args.v_buffer, args.k_buffer);
  p.aligned16 = is_aligned16(args.q) && is_aligned16(args.k) && is_aligned16(args.v) && is_aligned16(args.k_buffer) && is_aligned16(args.v_buffer) &&
                is_aligned16(args.out);
  HYLA_RETURN_IF_ERROR(check_problem(p));
  return p;
}

Status check_problem(const Problem& p) {
  const struct {
    const char* name;
    int64_t value;
  } counts[] = {
      {"n", p.n}, {"batch", p.batch}, {"slots", p.slots}, {"prefix_capacity", p.prefix_capacity}, {"max_extend", p.max_extend}, {"max_prefix", p.max_prefix}};
  for (const auto& count : counts)
    if (count.value < 0) return invalid(count.name, "a count >= 0", to_string(count.value));
  if (p.page_size < 1) return invalid("page_size", "a page size >= 1", to_string(p.page_size));
  if (p.Hq < 1) return invalid("Hq", "at least one head", to_string(p.Hq));
  if (p.Hkv < 1 || p.Hq % p.Hkv != 0) return invalid("Hkv", fmt::format("a divisor of Hq = {}", p.Hq), to_string(p.Hkv));
  HYLA_RETURN_IF_ERROR(check_head_dim("Lq", p.Lq));
  HYLA_RETURN_IF_ERROR(check_head_dim("Lv", p.Lv));
  const int64_t rows[] = {p.n, p.Hq, kMaxHeadDim, 8};
  HYLA_RETURN_IF_ERROR(checked_numel("n * Hq", rows, 4).status());
  if (p.sliding_window < -1) return invalid("sliding_window", "a number of keys >= 0, or -1 (off)", to_string(p.sliding_window));
  if (p.xai_temperature_len == 1) return invalid("xai_temperature_len", "a length >= 2 (log2 of it divides), or -1 (off)", "1");
  if (p.v_aliases_k && p.Lv > p.Lq) return invalid("v_aliases_k", "Lv <= Lq where V is a view of K", fmt::format("Lv={} Lq={}", p.Lv, p.Lq));
  if (p.dtype != DType::kBf16 && p.dtype != DType::kFp16 && p.dtype != DType::kFp32) return invalid("dtype", "bf16, fp16 or fp32", to_string(p.dtype));
  if (p.pool != p.dtype && !is_fp8(p.pool)) return invalid("pool", fmt::format("{} (= dtype), e4m3 or e5m2", to_string(p.dtype)), to_string(p.pool));
  if (p.out != p.dtype && p.out != DType::kFp32) return invalid("out", fmt::format("{} (= dtype) or fp32", to_string(p.dtype)), to_string(p.out));
  HYLA_RETURN_IF_ERROR(check_finite("sm_scale", p.sm_scale));
  HYLA_RETURN_IF_ERROR(check_finite("logit_cap", p.logit_cap));
  HYLA_RETURN_IF_ERROR(check_scale("k_scale", p.k_scale));
  return check_scale("v_scale", p.v_scale);
}

std::string Problem::str() const {
  std::string s = fmt::format("n={} batch={} Hq={} Hkv={} ", n, batch, Hq, Hkv);
  s += Lq == Lv ? fmt::format("D={}", Lq) : fmt::format("Lq={} Lv={}", Lq, Lv);
  if (v_aliases_k) s += " V=K";
  s += fmt::format(" {}", to_string(dtype));
  if (out != dtype) s += fmt::format(" out={}", to_string(out));
  s += fmt::format(" pool={}x{}", slots, to_string(pool));
  if (page_size != 1) s += fmt::format(" page={}", page_size);
  s += fmt::format(" prefix={}", prefix_capacity);
  if (max_extend != n) s += fmt::format(" max_extend={}", max_extend);
  if (max_prefix != prefix_capacity) s += fmt::format(" max_prefix={}", max_prefix);
  s += has_mask ? (skip_prefix_custom_mask ? " mask(new)" : " mask(all)") : causal ? " causal" : " full";
  if (has_window_offsets) s += " offsets";
  if (sliding_window >= 0) s += fmt::format(" window={}", sliding_window);
  if (logit_cap > 0) s += fmt::format(" cap={:g}", logit_cap);
  if (has_sinks) s += " sinks";
  if (xai_temperature_len > 0) s += fmt::format(" temperature={}", xai_temperature_len);
  if (k_scale != 1 || v_scale != 1) s += fmt::format(" k_scale={:g} v_scale={:g}", k_scale, v_scale);
  if (has_lse) s += " lse";
  if (skip_prefix) s += " skip_prefix";
  if (skip_extend) s += " skip_extend";
  if (!aligned16) s += " unaligned";
  return s + fmt::format(" scale={:.4g} {}", sm_scale, to_string(device));
}

std::optional<FieldDifference> first_difference(const Problem& a, const Problem& b) {
  std::optional<FieldDifference> found;
  const auto text = [](const auto& value) -> std::string {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, DType> || std::is_same_v<T, Device>) return to_string(value);
    else return fmt::format("{}", value);
  };
  const auto compare = [&](const char* name, const auto& x, const auto& y) {
    if (!found && !(x == y)) found = FieldDifference{name, text(x), text(y)};
  };
#define HYLA_COMPARE(field) compare(#field, a.field, b.field)
  HYLA_COMPARE(device), HYLA_COMPARE(n), HYLA_COMPARE(batch), HYLA_COMPARE(Hq), HYLA_COMPARE(Hkv), HYLA_COMPARE(Lq), HYLA_COMPARE(Lv);
  HYLA_COMPARE(slots), HYLA_COMPARE(page_size), HYLA_COMPARE(prefix_capacity), HYLA_COMPARE(max_extend), HYLA_COMPARE(max_prefix);
  HYLA_COMPARE(dtype), HYLA_COMPARE(pool), HYLA_COMPARE(out);
  HYLA_COMPARE(sm_scale), HYLA_COMPARE(logit_cap), HYLA_COMPARE(k_scale), HYLA_COMPARE(v_scale);
  HYLA_COMPARE(sliding_window), HYLA_COMPARE(xai_temperature_len);
  HYLA_COMPARE(causal), HYLA_COMPARE(has_mask), HYLA_COMPARE(skip_prefix_custom_mask), HYLA_COMPARE(has_window_offsets), HYLA_COMPARE(has_sinks);
  HYLA_COMPARE(has_lse), HYLA_COMPARE(skip_prefix), HYLA_COMPARE(skip_extend), HYLA_COMPARE(v_aliases_k), HYLA_COMPARE(aligned16);
#undef HYLA_COMPARE
  if (!found && !(a == b)) found = FieldDifference{"problem", a.str(), b.str()};
  return found;
}

}  // namespace hyla::extend
