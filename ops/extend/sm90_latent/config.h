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
constexpr int kThreads = 384;                  // two consumer warpgroups, one producer warpgroup
constexpr int kProducerRegisters = 64;         // row addresses and box coordinates of a tile live across its chunks; 56 spills
constexpr int kFirstConsumerRegisters = 216;   // 128 of O, 32 of S, 16 of P
constexpr int kSecondConsumerRegisters = 224;  // holds P of both tiles
// A block starts with 168 registers a thread (65,536 / 384 rounded down to 8); more than these in all and setmaxnreg waits for ever.
static_assert(kProducerRegisters + kFirstConsumerRegisters + kSecondConsumerRegisters <= 3 * 168);
constexpr int64_t kSmemLimit = 232448;  // sm_90: what a block may opt in to

enum class Shape : int { kD512, kD576, kMla576, kMla512 };  // D: K and V apart; MLA: V is K's first columns

struct Config {
  int score_dim;  // Lq
  bool shared_v;  // V is the first 512 columns of K

  constexpr int score_chunks() const { return score_dim / kChunkColumns; }
  // One ring of chunks in order of use. Two whole tiles with a shared V, so that a tile never wraps; for separate K and V 18 chunks, which
  // is what fits: a tile's 16 and two in flight.
  constexpr int ring_chunks() const { return shared_v ? 2 * score_chunks() : 18; }
  constexpr int tile_chunks() const { return shared_v ? score_chunks() : score_chunks() + kVChunks; }
  constexpr int64_t q_bytes() const { return int64_t(score_chunks()) * kChunkBytes; }
  constexpr int64_t ring_bytes() const { return int64_t(ring_chunks()) * kChunkBytes; }
  constexpr int64_t p_bytes() const { return kTileM * kTileN * 2; }
  constexpr int64_t control_bytes() const { return 3072; }  // barriers, row maxima and sums, key masks, items
  constexpr int64_t smem_bytes() const { return q_bytes() + ring_bytes() + p_bytes() + control_bytes(); }
  constexpr int stages() const { return ring_chunks() / tile_chunks(); }
};

constexpr Config config_of(Shape shape) {
  const bool wide = shape == Shape::kD576 || shape == Shape::kMla576;
  return {wide ? 576 : 512, shape == Shape::kMla576 || shape == Shape::kMla512};
}
static_assert(config_of(Shape::kD576).smem_bytes() <= kSmemLimit);
static_assert(config_of(Shape::kD512).smem_bytes() <= kSmemLimit);
static_assert(config_of(Shape::kMla576).smem_bytes() <= kSmemLimit);
static_assert(config_of(Shape::kMla512).smem_bytes() <= kSmemLimit);

}  // namespace hyla::extend::sm90_latent
