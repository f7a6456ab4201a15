#include "ops/kda/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/overlap.h"

namespace hyla::kda {
namespace {

using hyla::to_string;
using std::to_string;

Status invalid(std::string argument, std::string expected, std::string got) {
  return Status::invalid(std::move(argument), std::move(expected), std::move(got));
}

Status check_type(const char* name, const TensorView& t, std::initializer_list<DType> taken) {
  std::string names;
  for (DType type : taken) {
    if (t.dtype == type) return {};
    names += (names.empty() ? "" : " or ") + std::string(to_string(type));
  }
  return invalid(fmt::format("{}.dtype", name), names, to_string(t.dtype));
}

// A [B, T, heads, dim] tensor.
Status check_rows(const char* name, const TensorView& t, const Problem& p, int64_t heads, const char* heads_source, int64_t dim, const char* dim_source) {
  HYLA_RETURN_IF_ERROR(check_rank(name, t, 4, "[B, T, heads, dim]"));
  HYLA_RETURN_IF_ERROR(check_extent(name, t, 0, p.B, "q.shape[0]"));
  HYLA_RETURN_IF_ERROR(check_extent(name, t, 1, p.T, "q.shape[1]"));
  if (heads > 0) HYLA_RETURN_IF_ERROR(check_extent(name, t, 2, heads, heads_source));
  if (dim > 0) HYLA_RETURN_IF_ERROR(check_extent(name, t, 3, dim, dim_source));
  HYLA_RETURN_IF_ERROR(check_inner(name, t));
  return check_device(name, t, p.device);
}

Status check_index(const char* name, const TensorView& t, int rank, int64_t length, const char* source, Device device) {
  HYLA_RETURN_IF_ERROR(check_rank(name, t, rank, rank == 1 ? "[length]" : "[N, P]"));
  if (!is_index(t.dtype)) return invalid(fmt::format("{}.dtype", name), "int32 or int64", to_string(t.dtype));
  if (length >= 0) HYLA_RETURN_IF_ERROR(check_extent(name, t, 0, length, source));
  HYLA_RETURN_IF_ERROR(check_inner(name, t));
  return check_device(name, t, device);
}

// A [rows, HV, K, V] (or V-first) tensor of states; `rows` < 0: any number.
Status check_states(const char* name, const TensorView& t, const Problem& p, int64_t rows, const char* source) {
  const bool k_first = p.state_layout == StateLayout::kKFirst;
  HYLA_RETURN_IF_ERROR(check_rank(name, t, 4, k_first ? "[rows, HV, K, V]" : "[rows, HV, V, K]"));
  HYLA_RETURN_IF_ERROR(check_type(name, t, {DType::kFp32, DType::kBf16}));
  if (rows >= 0) HYLA_RETURN_IF_ERROR(check_extent(name, t, 0, rows, source));
  HYLA_RETURN_IF_ERROR(check_extent(name, t, 1, p.HV, "v.shape[2]"));
  HYLA_RETURN_IF_ERROR(check_extent(name, t, 2, k_first ? p.K : p.V, k_first ? "q.shape[3]" : "v.shape[3]"));
  HYLA_RETURN_IF_ERROR(check_extent(name, t, 3, k_first ? p.V : p.K, k_first ? "v.shape[3]" : "q.shape[3]"));
  HYLA_RETURN_IF_ERROR(check_inner(name, t));
  return check_device(name, t, p.device);
}

bool is_aligned16(const TensorView& t) {
  if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0) return false;
  for (int i = 0; i + 1 < t.rank; ++i)
    if (t.shape[i] > 1 && t.stride[i] % 16 * size_of(t.dtype) % 16 != 0) return false;
  return true;
}

bool same_view(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && a.rank == b.rank && a.shape == b.shape && a.stride == b.stride;
}

Status check_gate(const Args& a, Problem& p) {
  p.gate = a.gate;
  p.has_A_log = a.A_log.defined(), p.has_dt_bias = a.dt_bias.defined();
  switch (a.gate) {
    case Gate::kBounded:
      if (!(a.lower_bound >= -5.0f && a.lower_bound < 0.0f)) return invalid("lower_bound", "a number in [-5, 0)", fmt::format("{}", a.lower_bound));
      p.lower_bound = a.lower_bound;
      break;
    case Gate::kUnbounded:
      if (!p.has_A_log) return invalid("A_log", fmt::format("fp32 [{}] (the unbounded gate needs it)", p.HV), "absent");
      break;
    case Gate::kGiven:
      if (p.has_A_log) return invalid("A_log", "absent (the log decay is given)", describe(a.A_log));
      if (p.has_dt_bias) return invalid("dt_bias", "absent (the log decay is given)", describe(a.dt_bias));
      break;
    default:
      return invalid("gate", "kBounded, kUnbounded or kGiven", to_string(static_cast<int>(a.gate)));
  }
  if (p.has_A_log) {
    HYLA_RETURN_IF_ERROR(check_rank("A_log", a.A_log, 1, "[HV]"));
    HYLA_RETURN_IF_ERROR(check_type("A_log", a.A_log, {DType::kFp32}));
    HYLA_RETURN_IF_ERROR(check_extent("A_log", a.A_log, 0, p.HV, "v.shape[2]"));
    HYLA_RETURN_IF_ERROR(check_device("A_log", a.A_log, p.device));
  }
  if (p.has_dt_bias) {
    HYLA_RETURN_IF_ERROR(check_view("dt_bias", a.dt_bias));
    const TensorView& t = a.dt_bias;
    const bool flat = t.rank == 1 && t.shape[0] == p.HV * p.K, square = t.rank == 2 && t.shape[0] == p.HV && t.shape[1] == p.K;
    if (!flat && !square) return invalid("dt_bias", fmt::format("[{0}, {1}] or [{0} * {1}]", p.HV, p.K), describe(t));
    HYLA_RETURN_IF_ERROR(check_type("dt_bias", t, {DType::kFp32}));
    HYLA_RETURN_IF_ERROR(check_inner("dt_bias", t));
    HYLA_RETURN_IF_ERROR(check_device("dt_bias", t, p.device));
  }
  return {};
}

Status check_sequences(const Args& a, Problem& p) {
  p.varlen = a.cu_seqlens.defined();
  p.N = p.B;
  if (p.varlen) {
    if (p.B != 1) return invalid("q.shape[0]", "1 (packed sequences with cu_seqlens)", to_string(p.B));
    HYLA_RETURN_IF_ERROR(check_index("cu_seqlens", a.cu_seqlens, 1, -1, "", p.device));
    if (a.cu_seqlens.shape[0] < 1) return invalid("cu_seqlens.shape[0]", "N + 1 >= 1", to_string(a.cu_seqlens.shape[0]));
    p.N = a.cu_seqlens.shape[0] - 1;
  }
  if (a.max_seqlen < 0) return invalid("max_seqlen", "a bound >= 0 (0: unknown)", to_string(a.max_seqlen));
  p.max_seqlen = a.max_seqlen == 0 ? p.T : std::min(a.max_seqlen, p.T);
  return {};
}

Status check_state_arguments(const Args& a, Problem& p) {
  p.state_layout = a.state_layout;
  p.has_pool = a.state_indices.defined();
  p.has_initial_state = a.initial_state.defined(), p.has_final_state = a.final_state.defined();
  if (p.has_pool) {
    HYLA_RETURN_IF_ERROR(check_index("state_indices", a.state_indices, 1, p.N, "the number of sequences", p.device));
    if (!p.has_initial_state && !p.has_final_state) return invalid("state_indices", "absent, or beside an initial_state or final_state pool", "no pool");
  }
  const int64_t rows = p.has_pool ? -1 : p.N;
  if (p.has_initial_state) {
    HYLA_RETURN_IF_ERROR(check_states("initial_state", a.initial_state, p, rows, "the number of sequences"));
    p.initial_state_dtype = a.initial_state.dtype;
  }
  if (p.has_final_state) {
    HYLA_RETURN_IF_ERROR(check_states("final_state", a.final_state, p, rows, "the number of sequences"));
    p.final_state_dtype = a.final_state.dtype;
  }
  if (p.has_pool) {
    p.slots = p.has_initial_state ? a.initial_state.shape[0] : a.final_state.shape[0];
    if (p.has_final_state) HYLA_RETURN_IF_ERROR(check_extent("final_state", a.final_state, 0, p.slots, "initial_state.shape[0]"));
  }
  p.has_state_flags = a.has_initial_state.defined();
  if (p.has_state_flags) {
    HYLA_RETURN_IF_ERROR(check_rank("has_initial_state", a.has_initial_state, 1, "[N]"));
    HYLA_RETURN_IF_ERROR(check_type("has_initial_state", a.has_initial_state, {DType::kBool, DType::kU8}));
    HYLA_RETURN_IF_ERROR(check_extent("has_initial_state", a.has_initial_state, 0, p.N, "the number of sequences"));
    HYLA_RETURN_IF_ERROR(check_device("has_initial_state", a.has_initial_state, p.device));
  }
  if (a.lowest_valid_slot < 0) return invalid("lowest_valid_slot", "a slot >= 0", to_string(a.lowest_valid_slot));
  return {};
}

Status check_checkpoints(const Args& a, Problem& p) {
  p.has_checkpoints = a.checkpoints.defined(), p.has_checkpoint_indices = a.checkpoint_indices.defined();
  if (!p.has_checkpoints) {
    if (a.checkpoint_offsets.defined()) return invalid("checkpoints", "a tensor beside checkpoint_offsets", "absent");
    if (p.has_checkpoint_indices) return invalid("checkpoints", "a tensor beside checkpoint_indices", "absent");
    return {};
  }
  HYLA_RETURN_IF_ERROR(check_states("checkpoints", a.checkpoints, p, -1, ""));
  p.checkpoint_dtype = a.checkpoints.dtype;
  p.checkpoint_rows = a.checkpoints.shape[0];
  if (a.checkpoint_offsets.defined()) {
    HYLA_RETURN_IF_ERROR(check_index("checkpoint_offsets", a.checkpoint_offsets, 2, p.N, "the number of sequences", p.device));
    p.checkpoint_slots_per_seq = a.checkpoint_offsets.shape[1];
    if (p.checkpoint_slots_per_seq < 1) return invalid("checkpoint_offsets.shape[1]", "at least 1", "0");
    if (!p.has_checkpoint_indices && p.checkpoint_rows < p.N * p.checkpoint_slots_per_seq)
      return invalid("checkpoints.shape[0]", fmt::format("at least {} (N * checkpoint_offsets.shape[1])", p.N * p.checkpoint_slots_per_seq),
                     to_string(p.checkpoint_rows));
  } else if (!p.varlen && !p.has_checkpoint_indices && p.checkpoint_rows < p.B * (p.T / kChunk)) {
    return invalid("checkpoints.shape[0]", fmt::format("at least {} (B * (T / {}))", p.B * (p.T / kChunk), kChunk), to_string(p.checkpoint_rows));
  }
  if (p.has_checkpoint_indices) HYLA_RETURN_IF_ERROR(check_index("checkpoint_indices", a.checkpoint_indices, 1, -1, "", p.device));
  return {};
}

// What is written lies apart from everything that is read, and from each other. A pool passed as both states is the one exception.
Status check_outputs(const Args& a) {
  struct Named {
    const char* name;
    const TensorView& view;
  };
  const Named outputs[] = {{"out", a.out}, {"final_state", a.final_state}, {"checkpoints", a.checkpoints}};
  const Named inputs[] = {{"q", a.q},
                          {"k", a.k},
                          {"v", a.v},
                          {"g", a.g},
                          {"beta", a.beta},
                          {"A_log", a.A_log},
                          {"dt_bias", a.dt_bias},
                          {"cu_seqlens", a.cu_seqlens},
                          {"initial_state", a.initial_state},
                          {"state_indices", a.state_indices},
                          {"has_initial_state", a.has_initial_state},
                          {"checkpoint_offsets", a.checkpoint_offsets},
                          {"checkpoint_indices", a.checkpoint_indices}};
  for (const Named& o : outputs) {
    if (!o.view.defined()) continue;
    if (overlaps_itself(o.view)) return invalid(fmt::format("{}.stride", o.name), "strides that give every element its own place", describe_strides(o.view));
    for (const Named& i : inputs) {
      const bool in_place = &o.view == &a.final_state && &i.view == &a.initial_state && same_view(a.final_state, a.initial_state);
      if (!in_place && overlap(o.view, i.view)) return invalid(o.name, "memory apart from every input", fmt::format("an overlap with {}", i.name));
    }
    for (const Named& other : outputs)
      if (&other < &o && overlap(o.view, other.view)) return invalid(o.name, fmt::format("memory apart from {}", other.name), "an overlap");
  }
  return {};
}

}  // namespace

Result<Problem> make_problem(const Args& a) {
  Problem p;
  for (const auto& [name, t] :
       {std::pair("A_log", &a.A_log), std::pair("dt_bias", &a.dt_bias), std::pair("cu_seqlens", &a.cu_seqlens), std::pair("initial_state", &a.initial_state),
        std::pair("state_indices", &a.state_indices), std::pair("has_initial_state", &a.has_initial_state), std::pair("final_state", &a.final_state),
        std::pair("checkpoints", &a.checkpoints), std::pair("checkpoint_offsets", &a.checkpoint_offsets),
        std::pair("checkpoint_indices", &a.checkpoint_indices)})
    if (t->rank < 0) return invalid(fmt::format("{}.rank", name), "0 (absent) or more", to_string(t->rank));
  HYLA_RETURN_IF_ERROR(check_rank("q", a.q, 4, "[B, T, H, K]"));
  p.device = a.q.device;
  p.B = a.q.shape[0], p.T = a.q.shape[1], p.H = a.q.shape[2], p.K = a.q.shape[3], p.qkv = a.q.dtype;
  HYLA_RETURN_IF_ERROR(check_type("q", a.q, {DType::kBf16, DType::kFp16, DType::kFp32}));
  HYLA_RETURN_IF_ERROR(check_inner("q", a.q));
  if (p.H < 1) return invalid("q.shape[2]", "at least one head", to_string(p.H));
  HYLA_RETURN_IF_ERROR(check_rows("k", a.k, p, p.H, "q.shape[2]", p.K, "q.shape[3]"));
  HYLA_RETURN_IF_ERROR(check_type("k", a.k, {p.qkv}));
  HYLA_RETURN_IF_ERROR(check_rows("v", a.v, p, 0, "", 0, ""));
  HYLA_RETURN_IF_ERROR(check_type("v", a.v, {p.qkv}));
  p.HV = a.v.shape[2], p.V = a.v.shape[3];
  if (p.HV < 1 || p.HV % p.H != 0) return invalid("v.shape[2]", fmt::format("a multiple of q.shape[2] = {}", p.H), to_string(p.HV));
  HYLA_RETURN_IF_ERROR(check_rows("g", a.g, p, p.HV, "v.shape[2]", p.K, "q.shape[3]"));
  HYLA_RETURN_IF_ERROR(check_type("g", a.g, {DType::kBf16, DType::kFp32}));
  p.g = a.g.dtype;
  HYLA_RETURN_IF_ERROR(check_rank("beta", a.beta, 3, "[B, T, HV]"));
  HYLA_RETURN_IF_ERROR(check_extent("beta", a.beta, 0, p.B, "q.shape[0]"));
  HYLA_RETURN_IF_ERROR(check_extent("beta", a.beta, 1, p.T, "q.shape[1]"));
  HYLA_RETURN_IF_ERROR(check_extent("beta", a.beta, 2, p.HV, "v.shape[2]"));
  HYLA_RETURN_IF_ERROR(check_type("beta", a.beta, {DType::kBf16, DType::kFp32}));
  HYLA_RETURN_IF_ERROR(check_device("beta", a.beta, p.device));
  p.beta = a.beta.dtype;
  HYLA_RETURN_IF_ERROR(check_rows("out", a.out, p, p.HV, "v.shape[2]", p.V, "v.shape[3]"));
  if (a.out.dtype != p.qkv && a.out.dtype != DType::kFp32)
    return invalid("out.dtype", fmt::format("{} (= v.dtype) or fp32", to_string(p.qkv)), to_string(a.out.dtype));
  p.out = a.out.dtype;

  HYLA_RETURN_IF_ERROR(check_gate(a, p));
  HYLA_RETURN_IF_ERROR(check_sequences(a, p));
  HYLA_RETURN_IF_ERROR(check_state_arguments(a, p));
  HYLA_RETURN_IF_ERROR(check_checkpoints(a, p));
  if (!std::isfinite(a.scale)) return invalid("scale", "a finite number (0: K^-1/2)", fmt::format("{}", a.scale));
  p.scale = a.scale != 0 ? a.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(p.K)));
  p.qk_l2norm = a.qk_l2norm, p.beta_is_logits = a.beta_is_logits, p.beta_doubled = a.beta_doubled;
  p.aligned16 = is_aligned16(a.q) && is_aligned16(a.k) && is_aligned16(a.v) && is_aligned16(a.g) && is_aligned16(a.out);
  HYLA_RETURN_IF_ERROR(check_problem(p));
  HYLA_RETURN_IF_ERROR(check_outputs(a));
  return p;
}

Status check_problem(const Problem& p) {
  const struct {
    const char* name;
    int64_t value;
  } counts[] = {{"B", p.B},
                {"T", p.T},
                {"N", p.N},
                {"max_seqlen", p.max_seqlen},
                {"slots", p.slots},
                {"checkpoint_rows", p.checkpoint_rows},
                {"checkpoint_slots_per_seq", p.checkpoint_slots_per_seq}};
  for (const auto& count : counts)
    if (count.value < 0) return invalid(count.name, "a count >= 0", to_string(count.value));
  if (p.H < 1) return invalid("H", "at least one head", to_string(p.H));
  if (p.HV < 1 || p.HV % p.H != 0) return invalid("HV", fmt::format("a multiple of H = {}", p.H), to_string(p.HV));
  if (!(p.K == p.V && (p.K == 64 || p.K == 128))) return invalid("K, V", "K = V = 128 or K = V = 64", fmt::format("K={}, V={}", p.K, p.V));
  const int64_t rows[] = {p.B, p.T, p.HV, p.K, 8}, states[] = {std::max(p.N, p.slots), p.HV, p.K, p.V, 8};
  HYLA_RETURN_IF_ERROR(checked_numel("B * T * HV * K", rows, 5).status());
  HYLA_RETURN_IF_ERROR(checked_numel("N * HV * K * V", states, 5).status());
  if (p.gate == Gate::kBounded && !(p.lower_bound >= -5.0f && p.lower_bound < 0.0f))
    return invalid("lower_bound", "a number in [-5, 0)", fmt::format("{}", p.lower_bound));
  if (!std::isfinite(p.scale) || p.scale == 0) return invalid("scale", "a finite number other than 0", fmt::format("{}", p.scale));
  return {};
}

std::string Problem::str() const {
  std::string s = fmt::format("B={} T={} H={} ", B, T, H);
  if (HV != H) s += fmt::format("HV={} ", HV);
  s += fmt::format("D={} {}", K, to_string(qkv));
  if (out != qkv) s += fmt::format(" out={}", to_string(out));
  if (varlen) s += fmt::format(" N={}", N);
  if (max_seqlen != T) s += fmt::format(" max_seqlen={}", max_seqlen);
  s += gate == Gate::kBounded ? fmt::format(" bounded({:g})", lower_bound) : gate == Gate::kUnbounded ? " unbounded" : " given";
  if (g != DType::kBf16) s += fmt::format(" g={}", to_string(g));
  if (beta_is_logits) s += " logits";
  if (beta_doubled) s += " doubled";
  if (!qk_l2norm) s += " no-norm";
  if (has_initial_state) s += fmt::format(" initial={}", to_string(initial_state_dtype));
  if (has_final_state) s += fmt::format(" final={}", to_string(final_state_dtype));
  if (state_layout == StateLayout::kVFirst) s += " v-first";
  if (has_pool) s += fmt::format(" pool={}", slots);
  if (has_state_flags) s += " flags";
  if (has_checkpoints) s += fmt::format(" checkpoints={}x{}", checkpoint_rows, to_string(checkpoint_dtype));
  if (!aligned16) s += " unaligned";
  return s + fmt::format(" scale={:.4g} {}", scale, to_string(device));
}

std::optional<FieldDifference> first_difference(const Problem& a, const Problem& b) {
  std::optional<FieldDifference> found;
  const auto text = [](const auto& value) -> std::string {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, DType> || std::is_same_v<T, Device>) return to_string(value);
    else if constexpr (std::is_enum_v<T>) return fmt::format("{}", static_cast<int>(value));
    else return fmt::format("{}", value);
  };
  const auto compare = [&](const char* name, const auto& x, const auto& y) {
    if (!found && !(x == y)) found = FieldDifference{name, text(x), text(y)};
  };
#define HYLA_COMPARE(field) compare(#field, a.field, b.field)
  HYLA_COMPARE(device), HYLA_COMPARE(B), HYLA_COMPARE(T), HYLA_COMPARE(H), HYLA_COMPARE(HV), HYLA_COMPARE(K), HYLA_COMPARE(V), HYLA_COMPARE(N);
  HYLA_COMPARE(max_seqlen), HYLA_COMPARE(slots), HYLA_COMPARE(checkpoint_rows), HYLA_COMPARE(checkpoint_slots_per_seq);
  HYLA_COMPARE(qkv), HYLA_COMPARE(g), HYLA_COMPARE(beta), HYLA_COMPARE(out);
  HYLA_COMPARE(initial_state_dtype), HYLA_COMPARE(final_state_dtype), HYLA_COMPARE(checkpoint_dtype);
  HYLA_COMPARE(gate), HYLA_COMPARE(state_layout), HYLA_COMPARE(lower_bound), HYLA_COMPARE(scale);
  HYLA_COMPARE(varlen), HYLA_COMPARE(has_A_log), HYLA_COMPARE(has_dt_bias), HYLA_COMPARE(qk_l2norm), HYLA_COMPARE(beta_is_logits);
  HYLA_COMPARE(beta_doubled), HYLA_COMPARE(has_initial_state), HYLA_COMPARE(has_final_state), HYLA_COMPARE(has_state_flags), HYLA_COMPARE(has_pool);
  HYLA_COMPARE(has_checkpoints), HYLA_COMPARE(has_checkpoint_indices), HYLA_COMPARE(aligned16);
#undef HYLA_COMPARE
  if (!found && !(a == b)) found = FieldDifference{"problem", a.str(), b.str()};
  return found;
}

}  // namespace hyla::kda
