// Differences of results from float64, and what they may be.
#pragma once
#include <cstdint>
#include <vector>

#include "hyla/tensor.h"

namespace hyla::bench {

struct ErrorSum {
  double difference2 = 0, reference2 = 0, max_abs = 0, max_scaled = 0;
  int64_t not_finite = 0;  // values that are NaN or infinite and differ from the reference
  void add(double got, double want);
  double rel_l2() const;  // infinity when a value is not finite
};

// All elements of a tensor (any strides) against values in row-major order.
ErrorSum compare(const TensorView& got, const double* want);
std::vector<double> as_doubles(const TensorView& t);  // row-major

// Largest allowed relative L2 error. Rounding a result to its type costs about 0.0017 (bf16) or 0.0002 (fp16); the rest is for 16-bit operands of the
// tensor cores, about as much as the peers' kernels show on the same inputs.
double kda_tolerance();
double extend_tolerance(DType dtype, DType out);
constexpr double kLseTolerance = 1e-5;  // |got - want| / max(1, |want|)

}  // namespace hyla::bench
