// Tiles, stages and shared-memory bytes of the 512-column kernels, for the planner, the launcher and the kernel.
// Every block works on 64 query rows (token x head, packed) and pairs of 64-key tiles, in chunks of 64 x 64 values (8 KB).
#pragma once
#include <cstdint>

namespace hyla::extend::sm90_latent {

constexpr int kTileM = 64, kTileN = 64;
constexpr int kChunkColumns = 64;
constexpr int kChunkBytes = kTileN * kChunkColumns * 2;
constexpr int kLv = 512;
constexpr int kVChunks = kLv / kChunkColumns;
constexpr int kThreads = 384;              // two consumer warpgroups, one producer warpgroup
constexpr int kProducerRegisters = 56;     // 4 row pointers and their masks live across a tile; 40 spills
constexpr int kConsumerRegisters = 224;    // 128 of O, 32 of S, 16 of P; 2 * 224 + 56 <= 512
constexpr int64_t kSmemLimit = 232448;     // sm_90: what a block may opt in to

enum class Shape : int { kD512, kMla576, kMla512 };

struct Config {
  int score_dim;   // Lq
  bool shared_v;   // V is the first 512 columns of K

  constexpr int score_chunks() const { return score_dim / kChunkColumns; }
  // One ring of chunks in order of use. Two whole tiles with a shared V; for separate K and V 18 chunks: a tile's 16 and two in flight.
  constexpr int ring_chunks() const { return 18; }
  constexpr int tile_chunks() const { return shared_v ? score_chunks() : score_chunks() + kVChunks; }
  constexpr int64_t q_bytes() const { return int64_t(score_chunks()) * kChunkBytes; }
  constexpr int64_t ring_bytes() const { return int64_t(ring_chunks()) * kChunkBytes; }
  constexpr int64_t p_bytes() const { return kTileM * kTileN * 2; }
  constexpr int64_t control_bytes() const { return 3072; }  // barriers, row maxima and sums, key masks, items
  constexpr int64_t smem_bytes() const { return q_bytes() + ring_bytes() + p_bytes() + control_bytes(); }
  constexpr int stages() const { return ring_chunks() / tile_chunks(); }
};

constexpr Config config_of(Shape shape) {
  return shape == Shape::kD512 ? Config{512, false} : shape == Shape::kMla576 ? Config{576, true} : Config{512, true};
}
static_assert(config_of(Shape::kD512).smem_bytes() <= kSmemLimit);
static_assert(config_of(Shape::kMla576).smem_bytes() <= kSmemLimit);
static_assert(config_of(Shape::kMla512).smem_bytes() <= kSmemLimit);

}  // namespace hyla::extend::sm90_latent
