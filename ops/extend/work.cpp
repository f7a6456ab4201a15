#include "ops/extend/work.h"

#include <algorithm>

namespace hyla::extend {
namespace {

// Mean over queries 0 .. n - 1 of the keys they see, when query q sees min(first + slope * q, limit).
double mean_of_clipped(double first, double slope, double n, double limit) {
  if (n <= 0 || limit <= 0) return 0;
  const double last = first + slope * (n - 1);
  if (last <= limit) return (first + last) / 2;
  if (first >= limit) return limit;
  const double rising = (limit - first) / slope;  // queries below the limit
  return (rising * (first + limit) / 2 + (n - rising) * limit) / n;
}

struct Lengths {
  double n = 0, prefix = 0;  // of a request
};
Lengths mean_lengths(const Problem& p) {
  if (p.batch <= 0) return {};
  const double b = static_cast<double>(p.batch);
  return {std::min<double>(p.n / b, p.max_extend), std::min<double>(p.prefix_capacity / b, p.max_prefix)};
}

}  // namespace

double estimated_pairs(const Problem& p) {
  const Lengths len = mean_lengths(p);
  const double window = p.sliding_window < 0 ? 1e30 : static_cast<double>(p.sliding_window) + 1;
  double keys = 0;  // per query
  if (!p.skip_extend) keys += p.causal ? mean_of_clipped(1, 1, len.n, window) : std::min(len.n, p.has_mask ? len.n : 2 * window - 1);
  if (!p.skip_prefix) {
    const double in_window = p.sliding_window < 0 ? len.prefix : window - mean_of_clipped(1, 1, len.n, window);
    keys += std::min(len.prefix, std::max(0.0, in_window));
  }
  return keys * len.n * static_cast<double>(p.batch);
}

double estimated_flop(const Problem& p) { return 2 * estimated_pairs(p) * static_cast<double>(p.Hq) * static_cast<double>(p.Lq + p.Lv); }

double estimated_bytes(const Problem& p) {
  const Lengths len = mean_lengths(p);
  const double columns = static_cast<double>(p.Lq + (p.v_aliases_k ? 0 : p.Lv)), heads = static_cast<double>(p.Hkv), batch = static_cast<double>(p.batch);
  const double window = p.sliding_window < 0 ? 1e30 : static_cast<double>(p.sliding_window);
  double bytes = static_cast<double>(p.n) * static_cast<double>(p.Hq) * static_cast<double>(p.Lq * size_of(p.dtype) + p.Lv * size_of(p.out));
  if (!p.skip_extend) bytes += len.n * batch * heads * columns * static_cast<double>(size_of(p.dtype));
  if (!p.skip_prefix) bytes += std::min(len.prefix, window) * batch * heads * columns * static_cast<double>(size_of(p.pool));
  return bytes;
}

}  // namespace hyla::extend
