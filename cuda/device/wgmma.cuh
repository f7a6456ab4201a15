// Warpgroup matrix multiply on CuTe's instruction atoms (cute/arch/mma_sm90_gmma.hpp), called with plain register arrays.
// PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once
#include <cstdint>
#include <cute/arch/mma_sm90_gmma.hpp>
#include <type_traits>
#include <utility>

namespace hyla::dev {

namespace gmma = cute::SM90::GMMA;
using gmma::Major;
using gmma::ScaleIn;
using gmma::ScaleOut;

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving accumulator reads or writes across this point.
template <int N>
__device__ __forceinline__ void pin(float (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int N>
__device__ __forceinline__ void pin(uint32_t (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

// Matrix descriptor of a tile in 128-byte swizzle; address 1,024-byte aligned (plus 32-byte steps along K), lbo/sbo in bytes.
__device__ __forceinline__ uint64_t desc_sw128(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  return (uint64_t(1) << 62) | (uint64_t(sbo >> 4) << 32) | (uint64_t(lbo >> 4) << 16) | uint64_t((addr & 0x3FFFF) >> 4);
}
__device__ __forceinline__ uint64_t desc_sw64(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  return (uint64_t(2) << 62) | (uint64_t(sbo >> 4) << 32) | (uint64_t(lbo >> 4) << 16) | uint64_t((addr & 0x3FFFF) >> 4);
}

// Runs one CuTe wgmma atom, e.g. gmma::MMA_64x128x16_F32BF16BF16_RS<Major::K, Major::MN>, on register arrays.
// A from registers (4 words a thread), B from shared memory; d += a * b, or d = a * b with ScaleOut::Zero.
template <class Op, int N, size_t... I>
__device__ __forceinline__ void wgmma_rs(float (&d)[N], const uint32_t* a, uint64_t b, ScaleOut scale, std::index_sequence<I...>) {
  Op::fma(a[0], a[1], a[2], a[3], b, d[I]..., scale);
}
template <class Op, int N>
__device__ __forceinline__ void wgmma_rs(float (&d)[N], const uint32_t* a, uint64_t b, ScaleOut scale = ScaleOut::One) {
  wgmma_rs<Op, N>(d, a, b, scale, std::make_index_sequence<N>{});
}
template <class Op, int N, size_t... I>
__device__ __forceinline__ void wgmma_ss(float (&d)[N], uint64_t a, uint64_t b, ScaleOut scale, std::index_sequence<I...>) {
  Op::fma(a, b, d[I]..., scale);
}
template <class Op, int N>
__device__ __forceinline__ void wgmma_ss(float (&d)[N], uint64_t a, uint64_t b, ScaleOut scale = ScaleOut::One) {
  wgmma_ss<Op, N>(d, a, b, scale, std::make_index_sequence<N>{});
}

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace hyla::dev
