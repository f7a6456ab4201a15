#include "cli/case_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>

namespace hyla::cli {
namespace {

using nlohmann::json;

// Looks up a case's tensors and scalars; the first error stays.
class Reader {
 public:
  Reader(const SafetensorsFile& file, std::string path, std::string name, json scalars)
      : file_(file), path_(std::move(path)), name_(std::move(name)), scalars_(std::move(scalars)) {}

  bool has(const char* tensor) const { return file_.contains(name_ + "/" + tensor); }
  TensorView tensor(const char* tensor) {
    auto found = file_.tensor(name_ + "/" + tensor);
    if (found.ok()) return found.value();
    keep(found.status());
    return {};
  }
  TensorView optional(const char* name) { return has(name) ? tensor(name) : TensorView{}; }
  bool flag(const char* key, bool otherwise) {
    if (!present(key)) return otherwise;
    if (!scalars_[key].is_boolean()) return wrong(key, "true or false"), otherwise;
    return scalars_[key].get<bool>();
  }
  double number(const char* key, double otherwise) {
    if (!present(key)) return otherwise;
    if (!scalars_[key].is_number() || !std::isfinite(scalars_[key].get<double>())) return wrong(key, "a number"), otherwise;
    return scalars_[key].get<double>();
  }
  int64_t integer(const char* key, int64_t otherwise) {
    if (!present(key)) return otherwise;
    if (!scalars_[key].is_number_integer()) return wrong(key, "a whole number"), otherwise;
    return scalars_[key].get<int64_t>();
  }
  std::string text(const char* key, const char* otherwise) {
    if (!present(key)) return otherwise;
    if (!scalars_[key].is_string()) return wrong(key, "a string"), otherwise;
    return scalars_[key].get<std::string>();
  }
  bool present(const char* key) const { return scalars_.contains(key) && !scalars_[key].is_null(); }
  void wrong(const std::string& what, const std::string& expected) {
    keep(Status(Code::kIo, fmt::format("{}: {}: {}", path_, name_, what), expected, scalars_.contains(what) ? scalars_[what].dump() : "none"));
  }
  void wrong_tensor(const char* what, const std::string& expected) {
    keep(Status(Code::kIo, fmt::format("{}: {}/{}", path_, name_, what), expected, describe(optional(what))));
  }
  bool rank_is(const char* what, const TensorView& t, int rank) {
    if (!t.defined() || t.rank == rank) return t.defined();
    wrong_tensor(what, fmt::format("{} dimensions", rank));
    return false;
  }
  void keep(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  const Status& status() const { return status_; }

 private:
  const SafetensorsFile& file_;
  std::string path_, name_;
  json scalars_;
  Status status_;
};

TensorView copy_of(bench::KdaCase& c, const TensorView& t) {
  TensorView copy = c.add(t.dtype, t.shape.data(), t.rank);
  std::memcpy(copy.data, t.data, static_cast<size_t>(bench::extent_bytes(t)));
  return copy;
}

int64_t checkpoint_rows(const kda::Args& a) {
  if (!a.cu_seqlens.defined()) return a.q.shape[0] * (a.q.shape[1] / 64);
  int64_t rows = 0;
  const auto end = [&](int64_t i) { return a.cu_seqlens.dtype == DType::kI64 ? a.cu_seqlens.as<int64_t>()[i] : a.cu_seqlens.as<int32_t>()[i]; };
  for (int64_t n = 0; n + 1 < a.cu_seqlens.shape[0]; ++n) rows += std::max<int64_t>(0, end(n + 1) - end(n)) / 64;
  return rows;
}

bench::KdaCase load_kda(Reader& in) {
  bench::KdaCase c;
  kda::Args& a = c.args;
  a.q = in.tensor("q"), a.k = in.tensor("k"), a.v = in.tensor("v"), a.g = in.tensor("g"), a.beta = in.tensor("beta");
  a.A_log = in.optional("A_log"), a.dt_bias = in.optional("dt_bias"), a.cu_seqlens = in.optional("cu_seqlens");
  a.initial_state = in.optional("initial_state"), a.state_indices = in.optional("state_indices"), a.has_initial_state = in.optional("has_initial_state");
  a.checkpoint_offsets = in.optional("checkpoint_offsets");

  const bool gate_inside = in.flag("use_gate_in_kernel", true), bounded = in.flag("safe_gate", in.present("lower_bound")) && in.present("lower_bound");
  a.gate = !gate_inside ? kda::Gate::kGiven : bounded ? kda::Gate::kBounded : kda::Gate::kUnbounded;
  if (a.gate == kda::Gate::kBounded) a.lower_bound = static_cast<float>(in.number("lower_bound", -5));
  a.scale = static_cast<float>(in.number("scale", 0));
  a.qk_l2norm = in.flag("use_qk_l2norm_in_kernel", true);
  a.beta_is_logits = in.flag("use_beta_sigmoid_in_kernel", false);
  a.beta_doubled = in.flag("allow_neg_eigval", false);
  a.lowest_valid_slot = in.integer("lowest_valid_slot", 0);
  a.max_seqlen = in.integer("max_seqlen", 0);
  const std::string layout = in.text("state_layout", "K,V");
  if (layout != "K,V" && layout != "V,K") in.wrong("state_layout", "\"K,V\" or \"V,K\"");
  a.state_layout = layout == "V,K" ? kda::StateLayout::kVFirst : kda::StateLayout::kKFirst;
  const int64_t every = in.integer("checkpoint_every", 0);
  if (every != 0 && every != 64) in.wrong("checkpoint_every", "64 or none");
  if (!in.status().ok() || !in.rank_is("q", a.q, 4) || !in.rank_is("v", a.v, 4)) return c;
  if (a.cu_seqlens.defined() && (!in.rank_is("cu_seqlens", a.cu_seqlens, 1) || (a.cu_seqlens.dtype != DType::kI32 && a.cu_seqlens.dtype != DType::kI64)))
    return in.wrong_tensor("cu_seqlens", "int32 or int64 in one dimension"), c;

  const int64_t N = a.cu_seqlens.defined() ? a.cu_seqlens.shape[0] - 1 : a.q.shape[0], HV = a.v.shape[2], K = a.q.shape[3], V = a.v.shape[3];
  if (N < 0) return in.wrong_tensor("cu_seqlens", "at least one element"), c;
  const bool v_first = a.state_layout == kda::StateLayout::kVFirst;
  const int64_t rows = v_first ? V : K, columns = v_first ? K : V;
  constexpr int kPoison = 0xFF;  // NaN
  a.out = c.add(a.v.dtype, a.v.shape.data(), 4, kPoison);
  // With a pool the new states go to a copy of it: slots that no sequence uses keep their contents, and the initial states stay readable for a check.
  a.final_state = a.state_indices.defined() && a.initial_state.defined() ? copy_of(c, a.initial_state) : c.add(DType::kFp32, {N, HV, rows, columns}, kPoison);
  if (a.checkpoint_offsets.defined()) {
    if (in.rank_is("checkpoint_offsets", a.checkpoint_offsets, 2))
      a.checkpoints = c.add(DType::kFp32, {a.checkpoint_offsets.shape[0] * a.checkpoint_offsets.shape[1], HV, rows, columns}, kPoison);
  } else if (every == 64) {
    a.checkpoints = c.add(DType::kFp32, {checkpoint_rows(a), HV, rows, columns}, kPoison);
  }
  return c;
}

// The first columns of each row of `whole` hold the same bytes as `part`.
bool is_first_columns(const TensorView& part, const TensorView& whole) {
  if (part.dtype != whole.dtype || part.rank != 3 || whole.rank != 3 || part.shape[0] != whole.shape[0] || part.shape[1] != whole.shape[1] ||
      part.shape[2] >= whole.shape[2])
    return false;
  const int64_t size = size_of(part.dtype);
  for (int64_t row = 0; row < part.shape[0] * part.shape[1]; ++row)
    if (std::memcmp(part.as<char>() + row * part.shape[2] * size, whole.as<char>() + row * whole.shape[2] * size, static_cast<size_t>(part.shape[2] * size)) !=
        0)
      return false;
  return true;
}

bench::ExtendCase load_extend(Reader& in, std::vector<std::string>& notes) {
  bench::ExtendCase c;
  extend::Args& a = c.args;
  a.q = in.tensor("q_extend"), a.k = in.tensor("k_extend"), a.v = in.tensor("v_extend"), a.k_buffer = in.tensor("k_buffer"), a.v_buffer = in.tensor("v_buffer");
  a.qo_indptr = in.tensor("qo_indptr"), a.kv_indptr = in.tensor("kv_indptr"), a.kv_indices = in.tensor("kv_indices");
  a.custom_mask = in.optional("custom_mask"), a.sinks = in.optional("sinks"), a.window_kv_offsets = in.optional("window_kv_offsets");
  if (a.custom_mask.defined()) a.mask_indptr = in.tensor("mask_indptr");
  a.sm_scale = static_cast<float>(in.number("sm_scale", 0));
  a.logit_cap = static_cast<float>(in.number("logit_cap", 0));
  a.k_scale = static_cast<float>(in.number("k_scale", 1)), a.v_scale = static_cast<float>(in.number("v_scale", 1));
  a.sliding_window = in.integer("sliding_window_size", -1);
  a.xai_temperature_len = in.integer("xai_temperature_len", -1);
  a.causal = in.flag("is_causal", true);
  a.skip_prefix_custom_mask = in.flag("skip_prefix_custom_mask", true);
  a.skip_prefix = in.flag("skip_prefix", false), a.skip_extend = in.flag("skip_extend", false);
  const int64_t page = in.integer("page_size", 1);
  if (page < 1) in.wrong("page_size", "at least 1");
  if (!in.status().ok() || !in.rank_is("q_extend", a.q, 3) || !in.rank_is("v_extend", a.v, 3)) return c;

  if (is_first_columns(a.v, a.k) && is_first_columns(a.v_buffer, a.k_buffer)) {
    const int64_t columns = a.v.shape[2];
    a.v = a.k, a.v_buffer = a.k_buffer;
    a.v.shape[2] = a.v_buffer.shape[2] = columns;
    notes.push_back("v taken as a view of k's first columns, which hold the same values");
  }
  if (page > 1)
    for (const auto& [name, buffer] : {std::pair("k_buffer", &a.k_buffer), std::pair("v_buffer", &a.v_buffer)}) {
      if (!in.rank_is(name, *buffer, 3)) return c;
      if (buffer->shape[0] % page != 0) return in.wrong_tensor(name, fmt::format("a multiple of page_size {} slots", page)), c;
      TensorView pages = *buffer;
      pages.rank = 4;
      pages.shape = {buffer->shape[0] / page, page, buffer->shape[1], buffer->shape[2]};
      pages.stride = {page * buffer->stride[0], buffer->stride[0], buffer->stride[1], buffer->stride[2]};
      *buffer = pages;
    }
  constexpr int kPoison = 0xFF;
  a.out = c.add(a.q.dtype, {a.q.shape[0], a.q.shape[1], a.v.shape[2]}, kPoison);
  a.lse = c.add(DType::kFp32, {a.q.shape[0], a.q.shape[1]}, kPoison);
  return c;
}

}  // namespace

Result<std::vector<FileCase>> load_cases(const SafetensorsFile& file, const std::string& path, const std::vector<std::string>& wanted) {
  std::set<std::string> found;
  for (const auto& [name, unused] : file.tensors()) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos) return Status(Code::kIo, path + ": " + name, "tensors named <case>/<tensor>", "a name without a slash");
    found.insert(name.substr(0, slash));
  }
  if (found.empty()) return Status(Code::kIo, path, "at least one case", "none");
  for (const std::string& name : wanted)
    if (found.count(name) == 0) return Status(Code::kIo, path, fmt::format("one of the cases {}", fmt::join(found, ", ")), "'" + name + "'");

  std::vector<FileCase> cases;
  for (const std::string& name : wanted.empty() ? std::vector<std::string>(found.begin(), found.end()) : wanted) {
    const auto text = file.metadata().find(name);
    if (text == file.metadata().end()) return Status(Code::kIo, path + ": " + name, "arguments as JSON in the metadata", "none");
    json scalars = json::parse(text->second, nullptr, false);
    if (!scalars.is_object()) return Status(Code::kIo, path + ": " + name, "a JSON object in the metadata", text->second.substr(0, 60));
    Reader in(file, path, name, std::move(scalars));
    FileCase c{.name = name};
    if (in.has("q_extend") || in.has("k_extend") || in.has("qo_indptr")) {
      c.op = load_extend(in, c.notes);
    } else if (in.has("q") || in.has("k") || in.has("g")) {
      c.op = load_kda(in);
    } else {
      return Status(Code::kIo, path + ": " + name, "a KDA case (q, k, v, g, beta) or an extend case (q_extend, k_extend, ...)", "neither");
    }
    if (!in.status().ok()) return in.status();
    for (const auto& [stored, shown] :
         {std::pair("output", "output"), std::pair("final_state", "state"), std::pair("checkpoints", "checkpoints"), std::pair("lse", "lse")})
      if (in.has(stored)) c.stored[shown] = in.tensor(stored);
    for (const auto& [tensor, view] : file.tensors())
      if (tensor.starts_with(name + "/") && tensor.ends_with("_output")) c.other[tensor.substr(name.size() + 1)] = view;
    cases.push_back(std::move(c));
  }
  for (const auto& [name, text] : file.metadata())
    if (wanted.empty() && found.count(name) == 0 && json::parse(text, nullptr, false).is_object())
      return Status(Code::kIo, path + ": " + name, "tensors of this case", "arguments only");
  return cases;
}

}  // namespace hyla::cli
