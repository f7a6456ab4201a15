// Shared memory of a block and the compile-time facts of one kernel.
#pragma once
#include "config.h"
#include "cuda/device/barrier.cuh"
#include "cuda/device/copy.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/wgmma.cuh"
#include "geometry.h"
#include "params.h"

namespace hyla::extend::sm90_fa {

using namespace hyla::dev;

template <int kShapeIndex, class ElementT, Pool kPoolT = Pool::kSame>
struct Config {
  using Element = ElementT;  // dev::Bf16 or dev::Fp16
  static constexpr Pool kPool = kPoolT;
  static constexpr Shape kShape = shape_for(kShapeIndex, kPoolT);
  static constexpr int kLq = kShape.lq, kLv = kShape.lv, kN = kShape.tile_n, kStages = kShape.stages;
  static constexpr bool kPingPong = kShape.ping_pong, kLateRescale = kShape.late_rescale;
  static constexpr int kPanelQ = panel_bytes(kLq), kPanelV = panel_bytes(kLv);
  static constexpr int kPanelsQ = kLq * 2 / kPanelQ, kPanelsV = kLv * 2 / kPanelV;
  static constexpr int kRowsPerWarp = kN / 4;                            // of a K or V tile, in the loading warpgroup
  static constexpr int kLoaderRegisters = 56, kConsumerRegisters = 224;  // together with the second consumer 504 = 3 * 168, what the block starts with
  static constexpr bool kFp8 = kPool != Pool::kSame;
  static_assert(kLoaderRegisters + 2 * kConsumerRegisters <= 504);
  static_assert(kN % 16 == 0 && kLq % 16 == 0 && kLv % 16 == 0);
};

// Named barriers; 0 is __syncthreads.
enum NamedBarrier { kTurn0 = 1, kTurn1 = 2 };

constexpr int kConsumerWarps = 8, kLoaderWarps = 4;

template <class C>
struct Smem {
  alignas(1024) uint8_t q[kTileM * C::kLq * 2];
  alignas(1024) uint8_t k[C::kStages][C::kN * C::kLq * 2];
  alignas(1024) uint8_t v[C::kStages][C::kN * C::kLv * 2];
  uint8_t raw_k[C::kFp8 ? C::kN * C::kLq : 16], raw_v[C::kFp8 ? C::kN * C::kLv : 16];  // as read, one byte an element
  Barrier k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
  Barrier q_full, q_empty, unit_full[2], unit_empty[2];
  Unit unit[2];
  int32_t head[2];                                     // KV head of the unit; -1: no more work
  alignas(16) uint32_t bad[C::kStages][kMaxBadWords];  // per loading warp: one of its rows has a slot outside the pool
  uint8_t live[C::kStages][C::kN];                     // per key of a prefix tile: its slot is inside the pool; read when a bad word is set
};

template <class C>
__device__ __forceinline__ void init_barriers(Smem<C>& s) {
  for (int i = 0; i < C::kStages; ++i) {
    s.k_full[i].init(128 + kLoaderWarps);  // every thread's cp.async, and a plain arrival per warp for the flags
    s.v_full[i].init(128);
    s.k_empty[i].init(kConsumerWarps);
    s.v_empty[i].init(kConsumerWarps);
  }
  s.q_full.init(128);
  s.q_empty.init(kConsumerWarps);
  for (int i = 0; i < 2; ++i) {
    s.unit_full[i].init(1);
    s.unit_empty[i].init(kConsumerWarps + kLoaderWarps);
  }
  fence_barrier_init();
}

// Releases a barrier once for the whole warp, after all its lanes have read.
__device__ __forceinline__ void release(Barrier& b, int lane) {
  __syncwarp();
  if (lane == 0) b.arrive();
}

}  // namespace hyla::extend::sm90_fa
