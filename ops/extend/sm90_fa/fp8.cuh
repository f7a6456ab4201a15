// fp8 pools: rows are read into registers, widened and written to the same swizzled tiles as 16-bit rows.
#pragma once
#include "smem.cuh"

namespace hyla::extend::sm90_fa {

__device__ __forceinline__ uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  uint32_t r;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

// Bytes `first` and `first` + 1 of `x` as two 16-bit values. To bf16: sign, exponent and mantissa are moved into place and the exponents' offset is
// made up by a power of two, which is exact for subnormals too.
template <class Element, Pool kPool, int kFirst>
__device__ __forceinline__ uint32_t widen_pair(uint32_t x) {
  const uint32_t high = __byte_perm(x, 0, kFirst == 0 ? 0x1404 : 0x3424);  // each byte in the upper half of a 16-bit word
  if constexpr (kPool == Pool::kE5m2) {
    if constexpr (std::is_same_v<Element, Fp16>) return high;
    return mul_bf16x2((high & 0x80008000u) | ((high >> 3) & 0x0fe00fe0u), 0x77807780u);  // 2^112
  } else {
    if constexpr (std::is_same_v<Element, Fp16>) {
      uint32_t r;
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(static_cast<uint16_t>(kFirst == 0 ? x : x >> 16)));
      return r;
    }
    return mul_bf16x2((high & 0x80008000u) | ((high >> 4) & 0x07f007f0u), 0x7b807b80u);  // 2^120
  }
}

template <class Element, Pool kPool>
__device__ __forceinline__ uint4 widen8(uint32_t a, uint32_t b) {
  return make_uint4(widen_pair<Element, kPool, 0>(a), widen_pair<Element, kPool, 2>(a), widen_pair<Element, kPool, 0>(b), widen_pair<Element, kPool, 2>(b));
}

__device__ __forceinline__ void store_shared16(uint32_t dst, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(dst), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

__device__ __forceinline__ uint4 load_shared16(uint32_t src) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(src) : "memory");
  return v;
}

// How a warp's rows of one byte an element are dealt out: 16 bytes a thread and load, panels of a row side by side. A thread widens only what it
// fetched itself, so the raw bytes need no barrier.
template <int kPanel, int kPanels, int kRows>
struct RawTile {
  static constexpr int kLanes = kPanel / 32, kStep = 32 / kLanes;  // lanes a row and panel, rows an instruction
  static constexpr int kLoads = kRows / kStep * kPanels;
  static_assert(kRows % kStep == 0);
};

template <int kPanel, int kPanels, int kRows>
__device__ __forceinline__ void fetch_raw(uint32_t raw, const uint8_t* base, uint32_t unit, uint32_t offset, uint32_t live, int warp, int lane) {
  using T = RawTile<kPanel, kPanels, kRows>;
  const int r = lane / T::kLanes, u = lane % T::kLanes;
  raw += (warp * 32 + lane) * 16;
  base += u * 16;
#pragma unroll
  for (int g = 0; g < kRows / T::kStep; ++g) {
    const int row = g * T::kStep + r;
    const uint8_t* src = base + uint64_t(__shfl_sync(0xffffffffu, offset, row)) * unit;
    const bool valid = live >> row & 1;
#pragma unroll
    for (int j = 0; j < kPanels; ++j) cp_async16_zfill(raw + (g * kPanels + j) * 2048, src + j * (kPanel / 2), valid);
  }
}

template <class Element, Pool kPool, int kPanel, int kPanels, int kTileRows, int kRows>
__device__ __forceinline__ void widen_raw(uint32_t tile, uint32_t raw, int warp, int lane) {
  using T = RawTile<kPanel, kPanels, kRows>;
  const int r = lane / T::kLanes, u = lane % T::kLanes;
  raw += (warp * 32 + lane) * 16;
#pragma unroll
  for (int g = 0; g < kRows / T::kStep; ++g) {
    const int at = warp * kRows + g * T::kStep + r;
    const uint32_t swz = kPanel == 128 ? at & 7 : (at >> 1) & 3, dst = tile + at * kPanel;
#pragma unroll
    for (int j = 0; j < kPanels; ++j) {
      const uint4 x = load_shared16(raw + (g * kPanels + j) * 2048);
      store_shared16(dst + j * kTileRows * kPanel + (((2 * u) ^ swz) << 4), widen8<Element, kPool>(x.x, x.y));
      store_shared16(dst + j * kTileRows * kPanel + (((2 * u + 1) ^ swz) << 4), widen8<Element, kPool>(x.z, x.w));
    }
  }
}

}  // namespace hyla::extend::sm90_fa
