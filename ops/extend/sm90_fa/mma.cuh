// The two matrix products of a tile on wgmma: S = Q K^T (both from shared memory) and O += P V (P from registers).
#pragma once
#include <cute/arch/mma_sm90_gmma_ext.hpp>

#include "smem.cuh"

namespace hyla::extend::sm90_fa {

// clang-format off
template <class Element, int kN> struct Atom;
#define HYLA_ATOM(N)                                                                                                              \
  template <> struct Atom<Bf16, N> { using SS = gmma::MMA_64x##N##x16_F32BF16BF16_SS<Major::K, Major::K>;                         \
                                     using RS = gmma::MMA_64x##N##x16_F32BF16BF16_RS<Major::K, Major::MN>; };                     \
  template <> struct Atom<Fp16, N> { using SS = gmma::MMA_64x##N##x16_F32F16F16_SS<Major::K, Major::K>;                           \
                                     using RS = gmma::MMA_64x##N##x16_F32F16F16_RS<Major::K, Major::MN>; };
HYLA_ATOM(64) HYLA_ATOM(80) HYLA_ATOM(96) HYLA_ATOM(128) HYLA_ATOM(192) HYLA_ATOM(256)
#undef HYLA_ATOM
    // clang-format on

    template <int kPanel>
    __device__ __forceinline__ uint64_t panel_desc(uint32_t addr, uint32_t panel_stride) {
  // lbo: distance of column panels (used by the MN-major operand only); sbo: eight rows.
  if constexpr (kPanel == 128) return desc_sw128(addr, panel_stride, 8 * kPanel);
  else return desc_sw64(addr, panel_stride, 8 * kPanel);
}

template <class C>
__device__ __forceinline__ void issue_qk(float (&rS)[C::kN / 2], uint64_t q, uint64_t k) {
  using Op = typename Atom<typename C::Element, C::kN>::SS;
  constexpr int kPerPanel = C::kPanelQ / 32;  // steps of 16 columns
#pragma unroll
  for (int i = 0; i < C::kLq / 16; ++i) {
    const int in_panel = (i % kPerPanel) * 2, panel = i / kPerPanel;
    wgmma_ss<Op>(rS, q + in_panel + panel * (kTileM * C::kPanelQ / 16), k + in_panel + panel * (C::kN * C::kPanelQ / 16),
                 i == 0 ? ScaleOut::Zero : ScaleOut::One);
  }
}

template <class C>
__device__ __forceinline__ void issue_pv(float (&rO)[C::kLv / 2], const uint32_t (&rP)[C::kN / 4], uint64_t v) {
  using Op = typename Atom<typename C::Element, C::kLv>::RS;
#pragma unroll
  for (int i = 0; i < C::kN / 16; ++i) wgmma_rs<Op>(rO, rP + 4 * i, v + i * C::kPanelV);  // 16 rows = 16 * panel bytes
}

}  // namespace hyla::extend::sm90_fa
