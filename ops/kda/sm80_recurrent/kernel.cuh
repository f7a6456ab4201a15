// The kernel: prepare warps fill two stages of tokens, compute warps empty them. sm_80 features only.
//
//   prepare  load raw(i) | wait empty | operands -> stage i % 2 | arrive full | ...
//   compute  load state | wait full | tokens of stage i % 2 | arrive empty | ... | store state
#pragma once
#include "compute.cuh"
#include "prepare.cuh"

namespace hyla::kda::sm80_recurrent {

template <Config kC_, class Io_>
struct Traits {
  static constexpr Config kConfig = kC_;
  using Io = Io_;
};

enum BarrierId : int { kFull = 1, kEmpty = 3 };  // + stage; 0 is __syncthreads

// Barrier numbers are immediates: a number in a register makes the compiler reserve all sixteen.
template <int kId>
__device__ __forceinline__ void barrier_sync(int stage, int threads) {
  if (stage == 0)
    asm volatile("bar.sync %0, %1;" ::"n"(kId), "r"(threads) : "memory");
  else
    asm volatile("bar.sync %0, %1;" ::"n"(kId + 1), "r"(threads) : "memory");
}
template <int kId>
__device__ __forceinline__ void barrier_arrive(int stage, int threads) {
  if (stage == 0)
    asm volatile("bar.arrive %0, %1;" ::"n"(kId), "r"(threads) : "memory");
  else
    asm volatile("bar.arrive %0, %1;" ::"n"(kId + 1), "r"(threads) : "memory");
}

template <class T>
__device__ __forceinline__ void prepare_role(const Params& p, const Item& item, float* stages, int warp, int lane) {
  constexpr Config kC = T::kConfig;
  constexpr int kChannels = kC.dim / 32;
  float bias[kChannels];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) bias[c] = p.dt_bias != nullptr ? p.dt_bias[item.head * p.bias_head + lane * kChannels + c] : 0.0f;
  const float rate = p.A_log != nullptr ? fminf(expf(p.A_log[item.head * p.A_log_stride]), FLT_MAX) : 1.0f;
  int tile_index = 0;
  for (int64_t tile = 0; tile < item.length; tile += p.tile, ++tile_index) {
    const int count = static_cast<int>(min(item.length - tile, static_cast<int64_t>(p.tile))), stage = tile_index & 1;
    RawTile<T> raw;
    raw.load(p, item, tile, count, warp, lane);
    if (tile_index >= 2) barrier_sync<kEmpty>(stage, kC.threads());
    raw.store(p, stages + stage * (p.tile * kC.token_floats()), count, warp, lane, rate, bias);
    barrier_arrive<kFull>(stage, kC.threads());
  }
}

template <class T>
__device__ __forceinline__ void compute_role(const Params& p, const Item& item, const float* stages, int warp, int lane) {
  constexpr Config kC = T::kConfig;
  Compute<T> c{p, lane % kC.lanes, lane, warp * kC.columns_per_warp() + lane / kC.lanes * kC.columns_per_thread};
  const int block_column = item.split * kC.columns(), column = block_column + c.column;
  if (item.initial_slot >= 0)
    c.state.load(p.initial, item.initial_slot, item.head, p.v_first, c.lane, column);
  else
    c.state.zero();
  Destinations destinations{p, item, 0};
  if (p.checkpoints.data != nullptr && p.checkpoint_offsets.data == nullptr && item.length >= kCheckpointTokens)
    destinations.first_row = first_checkpoint_row(p, item.sequence, lane);

  int64_t out_at = item.batch * p.out.batch + item.first * p.out.token + item.head * p.out.head + block_column;
  int64_t done = 0;
  int stage = 0;
  do {  // once for an empty sequence: its state goes to the final one unchanged
    const int count = static_cast<int>(min(item.length - done, static_cast<int64_t>(p.tile)));
    if (count > 0) {
      const float* s = stages + stage * (p.tile * kC.token_floats());
      barrier_sync<kFull>(stage, kC.threads());
      c.load_first(s);
      for (int t = 0; t < count; ++t) {
        c.token(s, t + 1 < count ? s + kC.token_floats() : s, out_at);
        s += kC.token_floats();
        out_at += p.out.token;
      }
      if (done + 2 * static_cast<int64_t>(p.tile) < item.length) barrier_arrive<kEmpty>(stage, kC.threads());
    }
    done += count;
    stage ^= 1;
    // Tiles divide 64, so that checkpoints fall on tile ends.
    const States* states;
    int64_t cursor = 0, slot;
    while (destinations.next(done, cursor, states, slot)) c.state.store(*states, slot, item.head, p.v_first, c.lane, column);
  } while (done < item.length);
}

template <class T>
__device__ __forceinline__ void zero_rows(const Params& p, const Item& item) {
  constexpr Config kC = T::kConfig;
  const int64_t at = item.batch * p.out.batch + item.first * p.out.token + item.head * p.out.head + item.split * kC.columns();
  for (int64_t i = threadIdx.x; i < item.length * kC.columns(); i += kC.threads())
    write_out(p, at + i / kC.columns() * p.out.token + i % kC.columns(), 0.0f);
}

template <class T>
__global__ void __launch_bounds__(T::kConfig.threads(), T::kConfig.blocks_per_sm) recurrent(const __grid_constant__ Params p) {
  constexpr Config kC = T::kConfig;
  extern __shared__ __align__(16) float stages[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int64_t index = blockIdx.x; index < p.items; index += gridDim.x) {
    const Item item = read_item(p, index, kC.splits());
    if (item.skipped)
      zero_rows<T>(p, item);
    else if (warp < kC.compute_warps)
      compute_role<T>(p, item, stages, warp, lane);
    else
      prepare_role<T>(p, item, stages, warp - kC.compute_warps, lane);
    if (index + gridDim.x < p.items) __syncthreads();  // the stages change hands
  }
}

}  // namespace hyla::kda::sm80_recurrent
