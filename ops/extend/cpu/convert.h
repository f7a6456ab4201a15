// Rows of storage types to fp32, vectorised.
#pragma once
#include <Eigen/Core>
#include <array>
#include <cstring>

#include "core/numeric.h"

namespace hyla::extend::cpu {

using ConvertRow = void (*)(const void* data, int64_t offset, int64_t count, float* to);  // offset and count in elements

namespace detail {
using FloatArray = Eigen::Map<Eigen::ArrayXf>;

template <class Stored>
void convert_eigen(const void* data, int64_t offset, int64_t count, float* to) {
  FloatArray(to, count) = Eigen::Map<const Eigen::Array<Stored, Eigen::Dynamic, 1>>(static_cast<const Stored*>(data) + offset, count).template cast<float>();
}
// A shift, which the compiler vectorises; Eigen's cast does not.
inline void convert_bf16(const void* data, int64_t offset, int64_t count, float* to) {
  const uint16_t* from = static_cast<const uint16_t*>(data) + offset;
  for (int64_t i = 0; i < count; ++i) to[i] = bf16_to_float(from[i]);
}
inline void copy_fp32(const void* data, int64_t offset, int64_t count, float* to) {
  std::memcpy(to, static_cast<const float*>(data) + offset, static_cast<size_t>(count) * sizeof(float));
}
template <class Format>
void convert_fp8(const void* data, int64_t offset, int64_t count, float* to) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> t;
    for (uint32_t i = 0; i < 256; ++i) t[i] = Format::to_float(i);
    return t;
  }();
  const uint8_t* from = static_cast<const uint8_t*>(data) + offset;
  for (int64_t i = 0; i < count; ++i) to[i] = table[from[i]];
}
}  // namespace detail

inline ConvertRow convert_row_of(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return detail::convert_bf16;
    case DType::kFp16:
      return detail::convert_eigen<Eigen::half>;
    case DType::kE4m3:
      return detail::convert_fp8<E4m3>;
    case DType::kE5m2:
      return detail::convert_fp8<E5m2>;
    default:
      return detail::copy_fp32;
  }
}

}  // namespace hyla::extend::cpu
