// Shared memory of a block. The order of the first members keeps every chunk 1,024-byte aligned, as the 128-byte swizzle wants.
#pragma once
#include "config.h"
#include "cuda/device/barrier.cuh"
#include "item.cuh"

namespace hyla::extend::sm90_latent {

constexpr int kProducerWarps = 4;
constexpr int kTileInfos = 4;  // key masks of tiles: the producer is never more than a pair of tiles ahead

template <class T>
struct SharedStorage {
  alignas(1024) uint8_t q[T::kConfig.q_bytes()];
  alignas(1024) uint8_t ring[T::kConfig.ring_bytes()];
  alignas(1024) uint4 p[4][128];                             // P of one tile in fragment order, thread to same thread of the other warpgroup
  float row_max[2][kTileM];                                  // after tile a by warpgroup 0, after tile b by warpgroup 1
  float row_sum[2][2][kTileM];                               // [item parity][warpgroup]
  alignas(8) uint16_t key_mask[kTileInfos][kProducerWarps];  // bit set: the slot lies inside the pool
  Item item[2];
  dev::Barrier full[T::kSlots], empty[T::kSlots];
  dev::Barrier info_full[kTileInfos];
  dev::Barrier scores_issued;  // warpgroup 0 has queued Q K^T of tile a: warpgroup 1 may queue its own
  dev::Barrier p_full[2];      // P and row maximum of tile a / b
  dev::Barrier q_full, q_empty;
  dev::Barrier item_full[2], item_empty[2];
};

enum NamedBarrier : int { kConsumers = 1 };

template <class T>
__device__ __forceinline__ void init_barriers(SharedStorage<T>& s) {
  for (int i = 0; i < T::kSlots; ++i) {
    s.full[i].init(128);
    s.empty[i].init(4);
  }
  for (auto& b : s.info_full) b.init(kProducerWarps);
  s.scores_issued.init(4);
  s.p_full[0].init(4);
  s.p_full[1].init(4);
  s.q_full.init(128);
  s.q_empty.init(8);
  for (int i = 0; i < 2; ++i) {
    s.item_full[i].init(1);
    s.item_empty[i].init(8 + 3);  // consumer warps and the producer warps that did not write it
  }
  dev::fence_barrier_init();
}

}  // namespace hyla::extend::sm90_latent
