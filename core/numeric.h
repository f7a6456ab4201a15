// Conversions of the storage types to and from fp32: bf16, fp16, fp8 e4m3 (fn) and e5m2. Rounding is to nearest even.
// OCP "8-bit Floating Point Specification" for the fp8 forms.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hyla/tensor.h"

namespace hyla {

inline float bf16_to_float(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

inline uint16_t float_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16) | 0x40;  // NaN stays NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

// Any small float format with `kExp` exponent and `kMan` mantissa bits; kFinite: no infinities, all-ones is NaN (e4m3fn).
template <int kExp, int kMan, bool kFinite>
struct SmallFloat {
  static constexpr int kBits = 1 + kExp + kMan, kBias = (1 << (kExp - 1)) - 1, kExpMask = (1 << kExp) - 1, kManMask = (1 << kMan) - 1;

  static float to_float(uint32_t x) {
    const uint32_t sign = (x >> (kBits - 1)) & 1, exponent = (x >> kMan) & kExpMask, mantissa = x & kManMask;
    float value;
    if (exponent == 0) {
      value = std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMan);
    } else if (exponent == kExpMask && (!kFinite || mantissa == kManMask)) {
      value = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    } else {
      value = std::bit_cast<float>(((exponent - kBias + 127) << 23) | (mantissa << (23 - kMan)));
    }
    return sign ? -value : value;
  }

  // Overflow goes to infinity (to NaN for the finite form, as in PyTorch's conversion).
  static uint32_t from_float(float x) {
    const uint32_t sign = std::signbit(x) ? 1u << (kBits - 1) : 0;
    const uint32_t nan = sign | (kExpMask << kMan) | kManMask, inf = kFinite ? nan : sign | (kExpMask << kMan);
    if (std::isnan(x)) return nan;
    const float a = std::fabs(x);
    if (std::isinf(a)) return inf;
    if (a == 0) return sign;
    int exponent;
    std::frexp(a, &exponent);                                    // a = f * 2^exponent, f in [0.5, 1)
    const int scale = std::max(exponent - 1, 1 - kBias) - kMan;  // weight of the last mantissa bit
    const uint64_t units = static_cast<uint64_t>(std::nearbyint(std::ldexp(static_cast<double>(a), -scale)));
    // `units` carries into the exponent by itself when rounding overflows the mantissa.
    const int64_t stored = static_cast<int64_t>(scale + kMan + kBias - 1) * (int64_t{1} << kMan) + static_cast<int64_t>(units);
    const int64_t limit = kFinite ? (int64_t{kExpMask} << kMan) + kManMask : int64_t{kExpMask} << kMan;
    if (stored >= limit) return inf;
    return sign | static_cast<uint32_t>(stored);
  }
};
using Half = SmallFloat<5, 10, false>;
using E4m3 = SmallFloat<4, 3, true>;
using E5m2 = SmallFloat<5, 2, false>;

inline float fp16_to_float(uint16_t x) {
#ifdef __FLT16_MAX__
  return static_cast<float>(std::bit_cast<_Float16>(x));
#else
  return Half::to_float(x);
#endif
}
inline uint16_t float_to_fp16(float x) {
#ifdef __FLT16_MAX__
  return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
#else
  return static_cast<uint16_t>(Half::from_float(x));
#endif
}

// Element `index` of a floating tensor's memory as fp32, and back.
inline float load_float(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kBf16:
      return bf16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kFp16:
      return fp16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kFp32:
      return static_cast<const float*>(data)[index];
    case DType::kE4m3:
      return E4m3::to_float(static_cast<const uint8_t*>(data)[index]);
    case DType::kE5m2:
      return E5m2::to_float(static_cast<const uint8_t*>(data)[index]);
    default:
      return std::numeric_limits<float>::quiet_NaN();
  }
}
inline void store_float(void* data, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kBf16:
      static_cast<uint16_t*>(data)[index] = float_to_bf16(value);
      break;
    case DType::kFp16:
      static_cast<uint16_t*>(data)[index] = float_to_fp16(value);
      break;
    case DType::kFp32:
      static_cast<float*>(data)[index] = value;
      break;
    case DType::kE4m3:
      static_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(E4m3::from_float(value));
      break;
    case DType::kE5m2:
      static_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(E5m2::from_float(value));
      break;
    default:
      break;
  }
}
// Element `index` of an int32 or int64 tensor.
inline int64_t load_index(const void* data, DType dtype, int64_t index) {
  return dtype == DType::kI64 ? static_cast<const int64_t*>(data)[index] : static_cast<const int32_t*>(data)[index];
}

}  // namespace hyla
