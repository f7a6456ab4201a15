#include "benchlib/model.h"

#include <algorithm>

namespace hyla::bench {

Work work_of(const KdaShape& s) {
  const double tokens = static_cast<double>(s.B) * static_cast<double>(s.T), D = static_cast<double>(s.D);
  const double H = static_cast<double>(s.H), HV = static_cast<double>(s.HV), state = HV * D * D * (s.bf16_state ? 2 : 4);
  const double sequences = s.seqlens.empty() ? static_cast<double>(s.B) : static_cast<double>(s.seqlens.size());
  Work work{6 * tokens * HV * D * D, 2 * tokens * (2 * H * D + 3 * HV * D + HV) + 2 * sequences * state};
  if (s.checkpoints) {
    double rows = 0;
    if (s.seqlens.empty()) rows = static_cast<double>(s.B * (s.T / 64));
    for (const int64_t length : s.seqlens) rows += static_cast<double>(length / 64);
    work.bytes += rows * state;
  }
  return work;
}

int64_t allowed_pairs(int64_t n, int64_t prefix, int64_t window) {
  // Query q sees min(prefix + q + 1, window + 1) keys.
  const int64_t all = n * prefix + n * (n + 1) / 2;
  if (window < 0 || prefix + n <= window + 1) return all;
  const int64_t rising = std::clamp<int64_t>(window + 1 - prefix, 0, n);  // queries that see fewer keys than the window holds, or just as many
  return rising * prefix + rising * (rising + 1) / 2 + (n - rising) * (window + 1);
}

Work work_of(const ExtendShape& s) {
  const double pairs = static_cast<double>(s.batch) * static_cast<double>(allowed_pairs(s.n, s.prefix, s.window));
  const double rows = static_cast<double>(s.batch * s.n), Hq = static_cast<double>(s.Hq), Lq = static_cast<double>(s.Lq), Lv = static_cast<double>(s.Lv);
  const double prefix = s.window < 0 ? static_cast<double>(s.prefix) : static_cast<double>(std::min(s.prefix, s.window));
  const double keys = rows + static_cast<double>(s.batch) * (s.n > 0 ? prefix : 0);
  const double key_bytes = static_cast<double>(s.Hkv) * (Lq + (s.latent ? 0 : Lv)) * 2;
  return {2 * pairs * Hq * (Lq + Lv), rows * Hq * (Lq + Lv) * 2 + keys * key_bytes};
}

std::optional<Work> work_of_row(const std::string& op, const nlohmann::json& shape) {
  const auto read = [&](const char* key, int64_t otherwise) -> std::optional<int64_t> {
    if (!shape.contains(key) || shape[key].is_null()) return otherwise;
    if (!shape[key].is_number_integer()) return std::nullopt;
    return shape[key].get<int64_t>();
  };
  if (op == "kda") {
    const auto B = read("B", 1), T = read("T", 0), H = read("H", 0), HV = read("HV", H.value_or(0)), K = read("K", 128);
    if (!B || !T || !H || !HV || !K) return std::nullopt;
    KdaShape s{.B = *B, .T = *T, .H = *H, .HV = *HV, .D = *K};
    if (shape.contains("seqlens") && shape["seqlens"].is_array())
      for (const auto& length : shape["seqlens"]) s.seqlens.push_back(length.is_number_integer() ? length.get<int64_t>() : 0);
    s.bf16_state = shape.contains("state") && shape["state"] == "bf16";
    s.checkpoints = shape.contains("checkpoints") && !shape["checkpoints"].is_null();
    return work_of(s);
  }
  if (op != "extend") return std::nullopt;
  const auto batch = read("batch", 1), n = read("n", 0), prefix = read("prefix", 0), Hq = read("Hq", 0), Hkv = read("Hkv", 0), Lq = read("Lq", 0),
             Lv = read("Lv", 0);
  const auto window = read("window", -1);
  if (!batch || !n || !prefix || !Hq || !Hkv || !Lq || !Lv || !window) return std::nullopt;
  ExtendShape s{.batch = *batch, .n = *n, .prefix = *prefix, .Hq = *Hq, .Hkv = *Hkv, .Lq = *Lq, .Lv = *Lv, .window = *window};
  if (shape.contains("features"))
    for (const auto& feature : shape["features"]) s.latent = s.latent || feature == "latent";
  return work_of(s);
}

double floor_ms(const Work& work, const DeviceCaps& caps) {
  const double rate = caps.tensor_flop_per_clock * caps.sm_count * caps.clock_ghz * 1e9;
  return std::max(work.bytes / (caps.copy_tbs * 1e12), work.flop / rate) * 1e3;
}

}  // namespace hyla::bench
