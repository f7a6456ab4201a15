// One shape and element type: order of chunks in the ring and the matrix instructions.
#pragma once
#include "config.h"
#include "cuda/device/math.cuh"
#include "cuda/device/wgmma.cuh"

namespace hyla::extend::sm90_latent {

template <class Elem>
struct Mma;
template <>
struct Mma<dev::Bf16> {
  using Scores = dev::gmma::MMA_64x64x16_F32BF16BF16_SS<dev::Major::K, dev::Major::K>;
  using Values = dev::gmma::MMA_64x64x16_F32BF16BF16_RS<dev::Major::K, dev::Major::MN>;
};
template <>
struct Mma<dev::Fp16> {
  using Scores = dev::gmma::MMA_64x64x16_F32F16F16_SS<dev::Major::K, dev::Major::K>;
  using Values = dev::gmma::MMA_64x64x16_F32F16F16_RS<dev::Major::K, dev::Major::MN>;
};

template <Shape kShape, class Elem_>
struct Traits {
  using Elem = Elem_;
  using ScoresOp = typename Mma<Elem>::Scores;
  using ValuesOp = typename Mma<Elem>::Values;
  static constexpr Config kConfig = config_of(kShape);
  static constexpr bool kSharedV = kConfig.shared_v;
  static constexpr int kScoreChunks = kConfig.score_chunks();
  static constexpr int kSlots = kConfig.ring_chunks();
  static constexpr int kWaitGroup = kScoreChunks == 9 ? 3 : 2;  // chunks of K that share one proxy fence and one commit
  static constexpr int kRope = kScoreChunks - 8;                // chunks of K that are not in a shared V

  // V's left and right columns alternate: each belongs to one warpgroup, and both release theirs at the same pace.
  static constexpr int interleaved(int j) { return (j >> 1) + (j & 1) * 4; }
  static constexpr int interleaved_position(int c) { return (c & 3) * 2 + (c >> 2); }
  // The j-th chunk of K in the ring. With a shared V the rope chunk comes first: nothing but Q K^T holds it.
  static constexpr int score_chunk(int j) { return !kSharedV ? j : j < kRope ? 8 + j : interleaved(j - kRope); }
  static constexpr int value_position(int c) { return (kSharedV ? kRope : 0) + interleaved_position(c); }
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
