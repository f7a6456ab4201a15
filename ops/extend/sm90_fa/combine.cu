// Joins the parts of split tiles: one warp a row, parts in order, weights from their LSE; adds the sink and writes output and LSE.
#include "cuda/device/copy.cuh"
#include "cuda/device/math.cuh"
#include "kernels.h"

namespace hyla::extend::sm90_fa {
namespace {

constexpr int kCombineThreads = 128;

template <class Element, int kLv>
__device__ __forceinline__ void combine_row(const Params& p, const SplitTile& t, int head, int row, int lane) {
  constexpr int kPairs = (kLv / 2 + 31) / 32;  // column pairs of a lane: 2 * (lane + 32 i)
  const int64_t first = (t.slot + int64_t(head) * t.parts) * p.slot_rows + row;
  const int q_head = head * p.group + row % p.group;
  float top = -INFINITY, sink = -INFINITY;
  if (p.sinks != nullptr) {
    sink = p.sinks_bf16 ? __uint_as_float(uint32_t(static_cast<const uint16_t*>(p.sinks)[q_head]) << 16) : static_cast<const float*>(p.sinks)[q_head];
    sink *= 1.44269504f;
    top = sink;
  }
  for (int i = lane; i < t.parts; i += 32) top = fmaxf(top, __ldcg(p.partial_lse + first + int64_t(i) * p.slot_rows));
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
  const float shift = top == -INFINITY ? 0.0f : top;
  float sum = dev::exp2_approx(sink - shift);
  float2 acc[kPairs] = {};
#pragma unroll 4
  for (int i = 0; i < t.parts; ++i) {
    const int64_t at = first + int64_t(i) * p.slot_rows;
    const float w = dev::exp2_approx(__ldcg(p.partial_lse + at) - shift);
    sum += w;
    if (w == 0.0f) continue;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      if (kLv % 64 != 0 && lane + 32 * j >= kLv / 2) continue;
      const float2 o = __ldcg(reinterpret_cast<const float2*>(p.partial_o + at * kLv) + lane + 32 * j);
      acc[j].x = fmaf(w, o.x, acc[j].x);
      acc[j].y = fmaf(w, o.y, acc[j].y);
    }
  }
  const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
  const int64_t token = t.q_row + row / p.group;
  uint32_t* out = reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(p.out) + token * p.out_row + q_head * p.out_head);
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    if (kLv % 64 != 0 && lane + 32 * j >= kLv / 2) continue;
    out[lane + 32 * j] = Element::pack(acc[j].x * inverse, acc[j].y * inverse);
  }
  if (p.lse != nullptr && lane == 0) p.lse[token * p.lse_row + q_head * p.lse_head] = sum > 0.0f ? (shift + log2f(sum)) * 0.693147181f : -INFINITY;
}

template <class Element, int kLv>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(const __grid_constant__ Params p) {
  dev::wait_prior_grid();
  const int splits = __ldcg(&p.header->splits);
  const int lane = threadIdx.x & 31, warp = (blockIdx.x * kCombineThreads + threadIdx.x) >> 5, warps = gridDim.x * (kCombineThreads / 32);
  const int64_t per_tile = int64_t(p.kv_heads) * p.slot_rows, all = splits * per_tile;
  for (int64_t i = warp; i < all; i += warps) {
    const SplitTile t = p.split_tiles[i / per_tile];
    const int rest = int(i % per_tile), head = rest / p.slot_rows, row = rest % p.slot_rows;
    if (row < t.tokens * p.group) combine_row<Element, kLv>(p, t, head, row, lane);
  }
}

template <class Element>
cudaError_t launch(const Params& p, int lv, int blocks, cudaStream_t stream) {
  switch (lv) {
    case 64:
      return launch_dependent(combine_kernel<Element, 64>, blocks, kCombineThreads, 0, stream, p);
    case 96:
      return launch_dependent(combine_kernel<Element, 96>, blocks, kCombineThreads, 0, stream, p);
    case 128:
      return launch_dependent(combine_kernel<Element, 128>, blocks, kCombineThreads, 0, stream, p);
    case 256:
      return launch_dependent(combine_kernel<Element, 256>, blocks, kCombineThreads, 0, stream, p);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_combine(const Params& p, int lv, bool bf16, int blocks, cudaStream_t stream) {
  return bf16 ? launch<dev::Bf16>(p, lv, blocks, stream) : launch<dev::Fp16>(p, lv, blocks, stream);
}

}  // namespace hyla::extend::sm90_fa
