#include "ops/extend/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/numeric.h"

namespace hyla::extend {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double element(const TensorView& t, int64_t a, int64_t b, int64_t c) {
  return load_float(t.data, t.dtype, a * t.stride[0] + b * t.stride[1] + c * t.stride[2]);
}
double element(const TensorView& t, int64_t a, int64_t b, int64_t c, int64_t d) {
  return load_float(t.data, t.dtype, a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3]);
}
int64_t index(const TensorView& t, int64_t i) { return load_index(t.data, t.dtype, i * t.stride[0]); }

// Value `c` of token slot `slot` in a pool of either rank.
double pool_element(const TensorView& pool, int64_t slot, int64_t head, int64_t c) {
  if (pool.rank == 3) return element(pool, slot, head, c);
  const int64_t page_size = pool.shape[1];
  return element(pool, slot / page_size, slot % page_size, head, c);
}
int64_t pool_slots(const TensorView& pool) { return pool.rank == 3 ? pool.shape[0] : pool.shape[0] * pool.shape[1]; }

struct Row {
  int64_t request, query;  // the query's index within its request
  int64_t first_row, rows, first_listed, prefix;
};

Row row_at(const Args& a, int64_t request, int64_t query) {
  Row row{request, query, index(a.qo_indptr, request), 0, index(a.kv_indptr, request), 0};
  row.rows = index(a.qo_indptr, request + 1) - row.first_row;
  row.prefix = index(a.kv_indptr, request + 1) - row.first_listed;
  return row;
}

// Whether the key at position `key` (prefix positions first, then new tokens) may be seen.
bool allowed(const Args& a, const Row& r, int64_t key) {
  const int64_t position = r.prefix + r.query;
  const bool in_prefix = key < r.prefix;
  if (in_prefix ? a.skip_prefix : a.skip_extend) return false;
  if (in_prefix) {
    const int64_t slot = index(a.kv_indices, r.first_listed + key);
    if (slot < 0 || slot >= pool_slots(a.k_buffer)) return false;
  }
  const bool masked = a.custom_mask.defined();
  if (masked && !(in_prefix && a.skip_prefix_custom_mask)) {
    const int64_t offset = a.window_kv_offsets.defined() ? index(a.window_kv_offsets, r.request) : 0;
    const int64_t columns = offset + r.prefix + r.rows;
    if (a.custom_mask.as<const uint8_t>()[index(a.mask_indptr, r.request) + r.query * columns + offset + key] == 0) return false;
  }
  if (!masked && a.causal && key > position) return false;
  if (a.sliding_window >= 0) {
    if (position - key > a.sliding_window) return false;
    if (!masked && !a.causal && key - position > a.sliding_window) return false;
  }
  return true;
}

// Keys and values of one request and KV head, exact in fp32, by position; a slot outside the pool leaves zeros that no row may use.
struct Keys {
  std::vector<float> k, v;
  std::vector<double> k_norm;
};
Keys gather(const Args& a, const Row& r, int64_t kv_head) {
  const int64_t Lq = a.q.shape[2], Lv = a.v.shape[2], count = r.prefix + r.rows;
  Keys keys{std::vector<float>(static_cast<size_t>(count * Lq)), std::vector<float>(static_cast<size_t>(count * Lv)),
            std::vector<double>(static_cast<size_t>(count))};
  for (int64_t key = 0; key < count; ++key) {
    float* k = keys.k.data() + key * Lq;
    float* v = keys.v.data() + key * Lv;
    if (key >= r.prefix) {
      const int64_t token = r.first_row + key - r.prefix;
      for (int64_t c = 0; c < Lq; ++c) k[c] = element(a.k, token, kv_head, c);
      for (int64_t c = 0; c < Lv; ++c) v[c] = element(a.v, token, kv_head, c);
    } else if (const int64_t slot = index(a.kv_indices, r.first_listed + key); slot >= 0 && slot < pool_slots(a.k_buffer)) {
      for (int64_t c = 0; c < Lq; ++c) k[c] = pool_element(a.k_buffer, slot, kv_head, c);
      for (int64_t c = 0; c < Lv; ++c) v[c] = pool_element(a.v_buffer, slot, kv_head, c);
    }
    keys.k_norm[static_cast<size_t>(key)] = std::sqrt(std::inner_product(k, k + Lq, k, 0.0));
  }
  return keys;
}

double dot(const double* q, const float* k, int64_t count) {  // count is a multiple of 8
  double part[4] = {};
  for (int64_t c = 0; c < count; c += 4)
    for (int64_t lane = 0; lane < 4; ++lane) part[lane] += q[c + lane] * static_cast<double>(k[c + lane]);
  return part[0] + part[1] + part[2] + part[3];
}

// One row: scores, softmax with the sink in the denominator, weighted sum.
void attend_row(const Args& a, const Row& row, int64_t head, const Keys& keys, double* out, double& lse, double& score_size) {
  const int64_t Lq = a.q.shape[2], Lv = a.v.shape[2], token = row.first_row + row.query, position = row.prefix + row.query;
  const double scale = a.sm_scale != 0 ? static_cast<double>(a.sm_scale) : 1 / std::sqrt(static_cast<double>(Lq));
  const double cap = static_cast<double>(a.logit_cap);
  double temperature = 1;
  if (a.xai_temperature_len > 0 && position > a.xai_temperature_len)
    temperature = std::log2(static_cast<double>(position)) / std::log2(static_cast<double>(a.xai_temperature_len));
  std::vector<double> q(static_cast<size_t>(Lq));
  for (int64_t c = 0; c < Lq; ++c) q[static_cast<size_t>(c)] = element(a.q, token, head, c);

  const double q_norm = std::sqrt(std::inner_product(q.begin(), q.end(), q.begin(), 0.0));
  score_size = 0;
  std::vector<std::pair<int64_t, double>> seen;  // key, score
  double top = -kInf;
  for (int64_t key = 0; key < row.prefix + row.rows; ++key) {
    if (!allowed(a, row, key)) continue;
    const double factor = scale * (key < row.prefix ? static_cast<double>(a.k_scale) : 1);
    double s = dot(q.data(), keys.k.data() + key * Lq, Lq) * factor;
    score_size = std::max(score_size, q_norm * keys.k_norm[static_cast<size_t>(key)] * std::abs(factor) * temperature);
    if (cap > 0) s = cap * std::tanh(s / cap);
    s *= temperature;
    seen.emplace_back(key, s);
    top = std::isnan(s) || s > top ? s : top;
  }
  const double sink = a.sinks.defined() ? load_float(a.sinks.data, a.sinks.dtype, head * a.sinks.stride[0]) : -kInf;
  top = sink > top ? sink : top;
  std::fill(out, out + Lv, 0.0);
  lse = -kInf;
  if (top == -kInf) return;
  double sum = std::exp(sink - top);
  for (const auto& [key, s] : seen) sum += std::exp(s - top);
  lse = top + std::log(sum);
  for (const auto& [key, s] : seen) {
    const double weight = std::exp(s - top) / sum * (key < row.prefix ? static_cast<double>(a.v_scale) : 1);
    const float* v = keys.v.data() + key * Lv;
    for (int64_t c = 0; c < Lv; ++c) out[c] += weight * static_cast<double>(v[c]);
  }
}

}  // namespace

bool key_allowed(const Args& a, int64_t request, int64_t query, int64_t key) { return allowed(a, row_at(a, request, query), key); }

ReferenceResult reference(const Args& a) {
  const int64_t n = a.q.shape[0], Hq = a.q.shape[1], Lv = a.v.shape[2], Hkv = a.k.shape[1], group = Hq / Hkv;
  ReferenceResult result;
  result.out.assign(static_cast<size_t>(n * Hq * Lv), std::numeric_limits<double>::quiet_NaN());
  result.lse.assign(static_cast<size_t>(n * Hq), std::numeric_limits<double>::quiet_NaN());
  result.score_size.assign(static_cast<size_t>(n * Hq), 0.0);
  for (int64_t i = 0; i + 1 < a.qo_indptr.shape[0]; ++i) {
    Row row = row_at(a, i, 0);
    if (row.rows == 0) continue;
    for (int64_t kv_head = 0; kv_head < Hkv; ++kv_head) {
      const Keys keys = gather(a, row, kv_head);
      for (row.query = 0; row.query < row.rows; ++row.query)
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          const int64_t at = (row.first_row + row.query) * Hq + head;
          attend_row(a, row, head, keys, result.out.data() + at * Lv, result.lse[static_cast<size_t>(at)], result.score_size[static_cast<size_t>(at)]);
        }
    }
  }
  return result;
}

}  // namespace hyla::extend
