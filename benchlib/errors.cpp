#include "benchlib/errors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/numeric.h"

namespace hyla::bench {

void ErrorSum::add(double got, double want) {
  if (!std::isfinite(got) || !std::isfinite(want)) {
    not_finite += !(got == want);
    return;
  }
  const double difference = std::abs(got - want);
  difference2 += difference * difference, reference2 += want * want;
  max_abs = std::max(max_abs, difference), max_scaled = std::max(max_scaled, difference / std::max(1.0, std::abs(want)));
}

double ErrorSum::rel_l2() const {
  if (not_finite > 0) return std::numeric_limits<double>::infinity();
  if (difference2 == 0) return 0;
  return reference2 > 0 ? std::sqrt(difference2 / reference2) : std::numeric_limits<double>::infinity();
}

std::vector<double> as_doubles(const TensorView& t) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(t.numel()));
  std::array<int64_t, TensorView::kMaxRank> at{};
  for (int64_t i = 0; i < t.numel(); ++i) {
    int64_t offset = 0;
    for (int d = 0; d < t.rank; ++d) offset += at[d] * t.stride[d];
    values.push_back(load_float(t.data, t.dtype, offset));
    for (int d = t.rank - 1; d >= 0 && ++at[d] == t.shape[d]; --d) at[d] = 0;
  }
  return values;
}

ErrorSum compare(const TensorView& got, const double* want) {
  ErrorSum sum;
  for (const double value : as_doubles(got)) sum.add(value, *want++);
  return sum;
}

double kda_tolerance() { return 0.006; }

double extend_tolerance(DType dtype, DType out) {
  switch (out == DType::kFp32 ? DType::kFp32 : dtype) {
    case DType::kBf16:
      return 0.004;
    case DType::kFp16:
      return 0.0006;
    default:
      return 4e-6;
  }
}

}  // namespace hyla::bench
