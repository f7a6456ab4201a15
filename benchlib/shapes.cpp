#include "benchlib/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <functional>
#include <map>
#include <numeric>

namespace hyla::bench {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Status read_int(const std::string& key, const std::string& text, int64_t least, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > kMost)
    return Status::invalid("--shape " + key, fmt::format("a whole number of at least {}", least), "'" + text + "'");
  return {};
}

using Setter = std::function<Status(const std::string& key, const std::string& value)>;
using Setters = std::map<std::string, Setter>;

Setter integer(int64_t& field, int64_t least) {
  return [&field, least](const std::string& key, const std::string& value) { return read_int(key, value, least, field); };
}
Setter flag(bool& field) {
  return [&field](const std::string& key, const std::string& value) {
    if (value != "0" && value != "1") return Status::invalid("--shape " + key, "0 or 1", "'" + value + "'");
    field = value == "1";
    return Status();
  };
}
template <class T>
Setter choice(T& field, std::map<std::string, T> values) {
  return [&field, values](const std::string& key, const std::string& value) {
    const auto found = values.find(value);
    if (found != values.end()) {
      field = found->second;
      return Status();
    }
    std::vector<std::string> names;
    for (const auto& [name, unused] : values) names.push_back(name);
    return Status::invalid("--shape " + key, fmt::format("{}", fmt::join(names, " or ")), "'" + value + "'");
  };
}

Status read_pairs(const std::string& text, const Setters& setters) {
  for (const std::string& part : split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const auto found = setters.find(key);
    if (equals == std::string::npos || found == setters.end()) {
      std::vector<std::string> names;
      for (const auto& [name, unused] : setters) names.push_back(name);
      return Status::invalid("--shape", fmt::format("key=value pairs with keys {}", fmt::join(names, ", ")), "'" + part + "'");
    }
    HYLA_RETURN_IF_ERROR(found->second(key, part.substr(equals + 1)));
  }
  return {};
}

const char* gate_name(kda::Gate gate) { return gate == kda::Gate::kBounded ? "bounded" : gate == kda::Gate::kUnbounded ? "unbounded" : "given"; }

}  // namespace

Result<KdaShape> parse_kda_shape(const std::string& text) {
  KdaShape s;
  int64_t checkpoints = 0;
  const Setter lengths = [&](const std::string& key, const std::string& value) -> Status {
    for (const std::string& part : split(value, '+')) HYLA_RETURN_IF_ERROR(read_int(key, part, 0, s.seqlens.emplace_back()));
    return {};
  };
  HYLA_RETURN_IF_ERROR(read_pairs(
      text, {{"B", integer(s.B, 1)},
             {"T", integer(s.T, 0)},
             {"H", integer(s.H, 1)},
             {"HV", integer(s.HV, 1)},
             {"D", integer(s.D, 1)},
             {"seqlens", lengths},
             {"gate", choice<kda::Gate>(s.gate, {{"bounded", kda::Gate::kBounded}, {"unbounded", kda::Gate::kUnbounded}, {"given", kda::Gate::kGiven}})},
             {"state", choice<bool>(s.bf16_state, {{"fp32", false}, {"bf16", true}})},
             {"checkpoints", integer(checkpoints, 0)}}));
  if (checkpoints != 0 && checkpoints != 64) return Status::invalid("--shape checkpoints", "0 or 64", std::to_string(checkpoints));
  s.checkpoints = checkpoints != 0;
  if (s.HV == 0) s.HV = s.H;
  if (!s.seqlens.empty()) {
    if (s.B != 1) return Status::invalid("--shape B", "1 with seqlens", std::to_string(s.B));
    s.T = std::accumulate(s.seqlens.begin(), s.seqlens.end(), int64_t{0});
  }
  return s;
}

Result<ExtendShape> parse_extend_shape(const std::string& text) {
  ExtendShape s;
  const Setter dim = [&](const std::string& key, const std::string& value) {
    const Status status = read_int(key, value, 1, s.Lq);
    s.Lv = s.Lq;
    return status;
  };
  const Setter cap = [&](const std::string& key, const std::string& value) -> Status {
    int64_t whole = 0;
    HYLA_RETURN_IF_ERROR(read_int(key, value, 0, whole));
    s.cap = static_cast<double>(whole);
    return {};
  };
  HYLA_RETURN_IF_ERROR(read_pairs(text, {{"batch", integer(s.batch, 1)},
                                         {"n", integer(s.n, 0)},
                                         {"prefix", integer(s.prefix, 0)},
                                         {"Hq", integer(s.Hq, 1)},
                                         {"Hkv", integer(s.Hkv, 1)},
                                         {"D", dim},
                                         {"Lq", integer(s.Lq, 1)},
                                         {"Lv", integer(s.Lv, 1)},
                                         {"page_size", integer(s.page_size, 1)},
                                         {"window", integer(s.window, -1)},
                                         {"dtype", choice<DType>(s.dtype, {{"bf16", DType::kBf16}, {"fp16", DType::kFp16}})},
                                         {"sinks", flag(s.sinks)},
                                         {"latent", flag(s.latent)},
                                         {"cap", cap}}));
  if (s.Lv == 0) s.Lv = s.Lq;
  if (s.latent && s.Lv > s.Lq) return Status::invalid("--shape Lv", fmt::format("at most Lq = {} with latent=1", s.Lq), std::to_string(s.Lv));
  return s;
}

std::string name_of(const KdaShape& s) {
  std::string text = s.seqlens.empty() ? fmt::format("B={} T={} H={}", s.B, s.T, s.H) : fmt::format("{} sequences T={} H={}", s.seqlens.size(), s.T, s.H);
  if (s.HV != s.H) text += fmt::format(" HV={}", s.HV);
  if (s.D != 128) text += fmt::format(" D={}", s.D);
  if (s.gate != kda::Gate::kBounded) text += fmt::format(" gate={}", gate_name(s.gate));
  if (s.bf16_state) text += " state=bf16";
  if (s.checkpoints) text += " checkpoints=64";
  return text;
}

std::string name_of(const ExtendShape& s) {
  std::string text = fmt::format("batch={} n={} prefix={} heads={}/{} D={}/{}", s.batch, s.n, s.prefix, s.Hq, s.Hkv, s.Lq, s.Lv);
  if (s.window >= 0) text += fmt::format(" window={}", s.window);
  if (s.page_size > 1) text += fmt::format(" page={}", s.page_size);
  if (s.dtype != DType::kBf16) text += fmt::format(" {}", to_string(s.dtype));
  if (s.sinks) text += " sinks";
  if (s.latent) text += " latent";
  if (s.cap > 0) text += fmt::format(" cap={}", s.cap);
  return text;
}

nlohmann::json to_json(const KdaShape& s) {
  nlohmann::json j = {{"B", s.B},
                      {"T", s.T},
                      {"H", s.H},
                      {"HV", s.HV},
                      {"K", s.D},
                      {"V", s.D},
                      {"seqlens", nullptr},
                      {"gate", gate_name(s.gate)},
                      {"state", s.bf16_state ? "bf16" : "fp32"},
                      {"checkpoints", nullptr}};
  if (!s.seqlens.empty()) j["seqlens"] = s.seqlens;
  if (s.checkpoints) j["checkpoints"] = 64;
  return j;
}

nlohmann::json to_json(const ExtendShape& s) {
  nlohmann::json features = nlohmann::json::array();
  if (s.sinks) features.push_back("sinks");
  if (s.latent) features.push_back("latent");
  if (s.cap > 0) features.push_back(fmt::format("cap {}", s.cap));
  return {{"batch", s.batch},         {"n", s.n},           {"prefix", s.prefix},          {"Hq", s.Hq},          {"Hkv", s.Hkv}, {"Lq", s.Lq}, {"Lv", s.Lv},
          {"page_size", s.page_size}, {"window", s.window}, {"dtype", to_string(s.dtype)}, {"features", features}};
}

}  // namespace hyla::bench
