// One shape and element type: order of chunks in the ring and the matrix instructions.
#pragma once
#include "config.h"
#include "cuda/device/math.cuh"
#include "cuda/device/wgmma.cuh"

namespace hyla::extend::sm90_latent {

// N of the product P V: one instruction a k-step keeps the issue slots free for the softmax that runs beside it; with separate K and V the
// ring wraps between pairs of chunks, so two.
template <class Elem, int kN>
struct Mma;
template <>
struct Mma<dev::Bf16, 256> {
  using Scores = dev::gmma::MMA_64x64x16_F32BF16BF16_SS<dev::Major::K, dev::Major::K>;
  using Values = dev::gmma::MMA_64x256x16_F32BF16BF16_RS<dev::Major::K, dev::Major::MN>;
};
template <>
struct Mma<dev::Bf16, 128> {
  using Scores = dev::gmma::MMA_64x64x16_F32BF16BF16_SS<dev::Major::K, dev::Major::K>;
  using Values = dev::gmma::MMA_64x128x16_F32BF16BF16_RS<dev::Major::K, dev::Major::MN>;
};
template <>
struct Mma<dev::Fp16, 256> {
  using Scores = dev::gmma::MMA_64x64x16_F32F16F16_SS<dev::Major::K, dev::Major::K>;
  using Values = dev::gmma::MMA_64x256x16_F32F16F16_RS<dev::Major::K, dev::Major::MN>;
};
template <>
struct Mma<dev::Fp16, 128> {
  using Scores = dev::gmma::MMA_64x64x16_F32F16F16_SS<dev::Major::K, dev::Major::K>;
  using Values = dev::gmma::MMA_64x128x16_F32F16F16_RS<dev::Major::K, dev::Major::MN>;
};

template <Shape kShape, class Elem_>
struct Traits {
  using Elem = Elem_;
  static constexpr Config kConfig = config_of(kShape);
  static constexpr bool kSharedV = kConfig.shared_v;
  static constexpr int kScoreChunks = kConfig.score_chunks();
  static constexpr int kSlots = kConfig.ring_chunks();
  // Chunks of K that share one proxy fence and one commit. With separate K and V they also share a release: small, to refill the ring early.
  static constexpr int kWaitGroup = kScoreChunks == 9 ? 3 : kSharedV ? 4 : 2;
  static constexpr int kRope = kSharedV ? kScoreChunks - 8 : 0;  // chunks of K that are not in a shared V

  // A warpgroup's 256 columns of O in kValueParts instructions of kValueN columns; the chunks of one lie kValueStride apart in the ring.
  static constexpr int kValueParts = (kSharedV ? 1 : 2);
  static constexpr int kValueN = 256 / kValueParts;
  static constexpr int kPartChunks = kValueN / kChunkColumns;
  static constexpr int kValueStride = kSharedV ? 2 : 1;
  static_assert(kSharedV || kValueParts == 2);
  using ScoresOp = typename Mma<Elem, kValueN>::Scores;
  using ValuesOp = typename Mma<Elem, kValueN>::Values;
  using Output = float[kValueParts][kValueN / 2];

  // The j-th chunk of V in the ring. The warpgroups' columns alternate, so that both get theirs at the same pace: 0 4 1 5 2 6 3 7 shared,
  // 0 1 4 5 2 3 6 7 separate.
  static constexpr __host__ __device__ int value_chunk(int j) { return kSharedV ? (j >> 1) + (j & 1) * 4 : (j & 1) + (j & 2) * 2 + (j & 4) / 2; }
  // Place in the ring of the first chunk of a part, from the first chunk of its tile.
  static constexpr __host__ __device__ int value_position(int warpgroup, int part) {
    return kSharedV ? kRope + warpgroup + 2 * kPartChunks * part : 4 * part + 2 * warpgroup;
  }
  // The j-th chunk of K. With a shared V the rope chunk comes first: nothing but Q K^T holds it.
  static constexpr __host__ __device__ int score_chunk(int j) { return !kSharedV ? j : j < kRope ? 8 + j : value_chunk(j - kRope); }
};

// A place in the ring and the parity of its lap.
template <int kSlots>
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ RingPlace after(int chunks) const {
    RingPlace p{slot + chunks, parity};
    if (p.slot >= kSlots) p = {p.slot - kSlots, p.parity ^ 1};
    if (p.slot >= kSlots) p = {p.slot - kSlots, p.parity ^ 1};
    return p;
  }
};

}  // namespace hyla::extend::sm90_latent
