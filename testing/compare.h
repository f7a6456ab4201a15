// How a result differs from what it should be. Non-finite values compare by kind: a NaN meets only a NaN, an infinity only the same infinity.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>

namespace hyla::testing {

struct Difference {
  double rel_l2 = 0;           // |got - want| / |want|; of an all-zero `want`: |got|
  double max_abs = 0;          // largest |got - want|
  double max_over_rms = 0;     // max_abs / rms(want); of an all-zero `want`: max_abs
  size_t worst = 0;            // where max_abs is
  size_t kind_mismatches = 0;  // NaN or infinity on one side only
  bool within(double rel_l2_limit, double max_over_rms_limit) const {
    return kind_mismatches == 0 && rel_l2 <= rel_l2_limit && max_over_rms <= max_over_rms_limit;
  }
  std::string str() const {
    return "rel_l2 " + std::to_string(rel_l2) + ", max/rms " + std::to_string(max_over_rms) + ", worst at " + std::to_string(worst) + ", " +
           std::to_string(kind_mismatches) + " non-finite mismatches";
  }
};

template <class Got, class Want>
Difference compare(std::span<const Got> got, std::span<const Want> want) {
  Difference d;
  if (got.size() != want.size()) {
    d.rel_l2 = d.max_abs = d.max_over_rms = std::numeric_limits<double>::infinity();
    return d;
  }
  double error = 0, norm = 0;
  size_t finite = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double a = static_cast<double>(got[i]), b = static_cast<double>(want[i]);
    if (!std::isfinite(a) || !std::isfinite(b)) {
      d.kind_mismatches += !(std::isnan(a) && std::isnan(b)) && a != b;
      continue;
    }
    ++finite;
    error += (a - b) * (a - b), norm += b * b;
    if (std::abs(a - b) > d.max_abs) d.max_abs = std::abs(a - b), d.worst = i;
  }
  d.rel_l2 = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
  d.max_over_rms = norm > 0 ? d.max_abs / std::sqrt(norm / static_cast<double>(std::max<size_t>(finite, 1))) : d.max_abs;
  return d;
}

}  // namespace hyla::testing
