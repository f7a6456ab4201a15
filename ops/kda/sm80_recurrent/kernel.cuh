// The pipelined kernel: prepare warps fill stages, compute warps empty them. sm_80 features only.
//
//   prepare warp w   groups w, w + prepare_warps, ..:  load the next raw | operands in registers | wait empty(stage) | -> stage | arrive full(stage)
//   compute warps    load state | every group: wait full(stage) | group | arrive empty(stage) | at its places: store state
#pragma once
#include "checkpoint.cuh"
#include "compute.cuh"
#include "prepare.cuh"

namespace hyla::kda::sm80_recurrent {

template <Config kC_, class Io_>
struct Traits {
  static constexpr Config kConfig = kC_;
  using Io = Io_;
  // Reading element by element takes more registers, and is not there for speed: fewer blocks, no loads ahead.
  static constexpr bool kPacked = !std::is_same_v<Io, Any>;
  static constexpr int kBlocksPerSm = kPacked ? kConfig.blocks_per_sm : 1;
};

// Named barriers, + stage. 0 is __syncthreads. Each joins the compute warps and the one prepare warp that fills the stage.
constexpr int kMostStages = 4;
enum BarrierId : int { kFull = 1, kEmpty = 1 + kMostStages };

// Barrier numbers are immediates: a number in a register makes the compiler reserve all sixteen.
template <int kId>
__device__ __forceinline__ void barrier_sync(int stage, int threads) {
  switch (stage) {
    case 0:
      asm volatile("bar.sync %0, %1;" ::"n"(kId), "r"(threads) : "memory");
      break;
    case 1:
      asm volatile("bar.sync %0, %1;" ::"n"(kId + 1), "r"(threads) : "memory");
      break;
    case 2:
      asm volatile("bar.sync %0, %1;" ::"n"(kId + 2), "r"(threads) : "memory");
      break;
    default:
      asm volatile("bar.sync %0, %1;" ::"n"(kId + 3), "r"(threads) : "memory");
  }
}
template <int kId>
__device__ __forceinline__ void barrier_arrive(int stage, int threads) {
  switch (stage) {
    case 0:
      asm volatile("bar.arrive %0, %1;" ::"n"(kId), "r"(threads) : "memory");
      break;
    case 1:
      asm volatile("bar.arrive %0, %1;" ::"n"(kId + 1), "r"(threads) : "memory");
      break;
    case 2:
      asm volatile("bar.arrive %0, %1;" ::"n"(kId + 2), "r"(threads) : "memory");
      break;
    default:
      asm volatile("bar.arrive %0, %1;" ::"n"(kId + 3), "r"(threads) : "memory");
  }
}

template <class T>
__device__ __forceinline__ void prepare_role(const Params& p, const Item& item, float* stages, int warp, int lane) {
  constexpr Config kC = T::kConfig;
  constexpr int kChannels = kC.dim / 32, kJoined = 32 * (kC.compute_warps + 1);
  static_assert(kC.stages <= kMostStages && kC.stages % kC.prepare_warps == 0);
  float bias[kChannels];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) bias[c] = p.dt_bias != nullptr ? p.dt_bias[item.head * p.bias_head + lane * kChannels + c] : 0.0f;
  const float rate = p.A_log != nullptr ? fminf(expf(p.A_log[item.head * p.A_log_stride]), FLT_MAX) : 1.0f;
  const int groups = (item.length + kGroup - 1) / kGroup;
  const typename RawGroup<T>::Source source(p, item, lane);
  const typename Group<T>::Place place(lane);
  const auto count_of = [&](int group) { return min(item.length - group * kGroup, kGroup); };
  RawGroup<T> raw;
  if (T::kPacked && warp < groups) raw.load(p, source, warp * kGroup, count_of(warp), lane);
  for (int group = warp; group < groups; group += kC.prepare_warps) {
    const int stage = group % kC.stages, next = group + kC.prepare_warps;
    if (!T::kPacked) raw.load(p, source, group * kGroup, count_of(group), lane);
    Group<T> tokens;
    tokens.prepare(p, raw, count_of(group), lane, rate, bias, place, [&] {
      if (T::kPacked && next < groups) raw.load(p, source, next * kGroup, count_of(next), lane);
    });
    if (group >= kC.stages) barrier_sync<kEmpty>(stage, kJoined);
    tokens.store(stages + stage * kC.stage_floats(), lane, place);
    barrier_arrive<kFull>(stage, kJoined);
  }
}

template <class T>
__device__ __forceinline__ void compute_role(const Params& p, const Item& item, const float* stages, int warp, int lane) {
  constexpr Config kC = T::kConfig;
  constexpr int kJoined = 32 * (kC.compute_warps + 1);
  Compute<T> c{p, lane, lane % kC.lanes, warp * kC.columns_per_warp() + lane / kC.lanes * kC.columns_per_thread};
  const int block_column = item.split * kC.columns(), column = block_column + c.column;
  if (item.initial_slot >= 0) c.state.load(p.initial, item.initial_slot, item.head, p.v_first, c.lane, column);
  else c.state.zero();
  Destinations destinations{p, item, 0};
  if (p.checkpoints.data != nullptr && p.checkpoint_offsets.data == nullptr && item.length >= kCheckpointTokens)
    destinations.first_row = first_checkpoint_row(p, item.sequence, lane);

  int64_t out_at = item.batch * p.out.batch + item.first * p.out.token + item.head * p.out.head + block_column;
  int done = 0, stage = 0;
  do {  // once for an empty sequence: its state goes to the final one unchanged
    const int count = min(item.length - done, kGroup);
    if (count > 0) {
      barrier_sync<kFull>(stage, kJoined);
      c.group(stages + stage * kC.stage_floats(), count, out_at);
      if (done + kC.stages * kGroup < item.length) barrier_arrive<kEmpty>(stage, kJoined);
      out_at += kGroup * p.out.token;
      stage = stage + 1 == kC.stages ? 0 : stage + 1;
    }
    done += count;
    // Groups divide 64, so that checkpoints fall on their ends.
    if (!destinations.possible(done)) continue;
    const States* states;
    int cursor = 0;
    int64_t slot;
    while (destinations.next(done, cursor, states, slot)) c.state.store(*states, slot, item.head, p.v_first, c.lane, column);
  } while (done < item.length);
}

template <class T>
__global__ void __launch_bounds__(T::kConfig.threads(), T::kBlocksPerSm) recurrent(const __grid_constant__ Params p) {
  constexpr Config kC = T::kConfig;
  extern __shared__ __align__(16) float stages[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Item item = read_item(p, blockIdx.x, kC.splits());
  if (item.skipped) zero_rows(p, item, kC.columns(), kC.threads());
  else if (warp < kC.compute_warps) compute_role<T>(p, item, stages, warp, lane);
  else prepare_role<T>(p, item, stages, warp - kC.compute_warps, lane);
}

}  // namespace hyla::kda::sm80_recurrent
