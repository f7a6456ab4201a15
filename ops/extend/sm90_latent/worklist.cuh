// One block makes the list (see worklist.h), then a grid merges the parts after the attention kernel.
#pragma once
#include "cuda/device/math.cuh"
#include "item.cuh"
#include "store.cuh"
#include "worklist.h"

namespace hyla::extend::sm90_latent {

constexpr int kListThreads = 1024;
constexpr int kBuckets = 512;  // of work: longest first needs no exact sort
constexpr int kChoices = kMaxWaves + 1;

// Calls visit(request, row tile, key tiles) for all row tiles of the batch. Warps share requests when there are fewer requests than warps.
template <class Visit>
__device__ __forceinline__ void for_each_row_tile(const KernelParams& p, int batch, Visit visit) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int sharing = max(1, warps / max(1, batch));
  for (int r = warp / sharing; r < batch; r += warps / sharing) {
    const Lengths len = request_lengths(p, r);
    const int rows = len.n * p.group;
    for (int m = (warp % sharing) * 32 + lane; m * kTileM < rows; m += 32 * sharing) {
      const int last = min(rows, (m + 1) * kTileM) - 1;
      visit(r, m, make_walk(p, len.n, len.prefix, m * kTileM / p.group, last / p.group).tiles());
    }
  }
}

__device__ __forceinline__ int parts_of(int tiles, int target) { return target > 0 ? max(1, tiles / target) : 1; }
// Parts are cut between pairs of tiles.
__device__ __forceinline__ int part_begin(int tiles, int part, int parts) {
  const int pairs = (tiles + 1) / 2;
  return min(tiles, 2 * int(int64_t(pairs) * part / parts));
}

struct ListScratch {
  unsigned long long total;
  int row_tiles, longest;
  int count[kChoices], longest_part[kChoices], target[kChoices];
  int bucket[kBuckets];
  int parts_used, merges;
};

// Key tiles a part should have for each choice; [0]: no cuts. Then the one with the least modelled time.
__device__ __forceinline__ int choose_target(const ListScratch& s, int heads, int sm_count) {
  int best = 0;
  double best_time = 0;
  for (int k = 0; k < kChoices; ++k) {
    const double count = double(s.count[k]) * heads;
    const double waves = ceil(count / sm_count);
    const double mean = double(s.total) * heads / fmax(count, 1.0);
    double time = fmax(double(s.longest_part[k]) + kItemCostTiles, waves * (mean + kItemCostTiles));
    if (k > 0) time = time * 1.03 + kItemCostTiles;  // the merge
    if (k == 0 || time < best_time) {
      best = k;
      best_time = time;
    }
  }
  return s.target[best];
}

__device__ __forceinline__ int bucket_of(int tiles, int longest) { return int(int64_t(tiles) * (kBuckets - 1) / max(1, longest)); }

__global__ void __launch_bounds__(kListThreads, 1) make_work_list(const __grid_constant__ KernelParams p, int batch, int heads, int sm_count, WorkList list) {
  __shared__ ListScratch s;
  const int t = threadIdx.x;
  for (int i = t; i < int(sizeof(s) / 4); i += kListThreads) reinterpret_cast<int*>(&s)[i] = 0;
  __syncthreads();
  for_each_row_tile(p, batch, [&](int, int, int tiles) {
    atomicAdd(&s.total, static_cast<unsigned long long>(tiles));
    atomicAdd(&s.row_tiles, 1);
    atomicMax(&s.longest, tiles);
  });
  __syncthreads();
  if (t > 0 && t < kChoices) {
    const int64_t slots = int64_t(t) * sm_count;
    s.target[t] = int(max(int64_t(kMinPartTiles), (int64_t(s.total) * heads + slots - 1) / slots));
  }
  __syncthreads();
  int target = 0;
  if (int64_t(s.row_tiles) * heads < int64_t(kMaxWaves) * sm_count) {
    for_each_row_tile(p, batch, [&](int, int, int tiles) {
      for (int k = 0; k < kChoices; ++k) {
        const int parts = parts_of(tiles, s.target[k]);
        atomicAdd(&s.count[k], parts);
        atomicMax(&s.longest_part[k], part_begin(tiles, 1, parts));
      }
    });
    __syncthreads();
    target = choose_target(s, heads, sm_count);
  }
  const int longest = s.longest;
  for_each_row_tile(p, batch, [&](int, int, int tiles) {
    const int parts = parts_of(tiles, target);
    atomicAdd(&s.bucket[bucket_of(tiles / parts, longest)], parts * heads);
  });
  __syncthreads();
  if (t == 0) {
    int at = 0;
    for (int b = kBuckets - 1; b >= 0; --b) {
      const int n = s.bucket[b];
      s.bucket[b] = at;
      at += n;
    }
    list.counts[0] = at;
    list.counts[1] = 0;
  }
  __syncthreads();
  for_each_row_tile(p, batch, [&](int request, int m, int tiles) {
    const int parts = parts_of(tiles, target);
    int at = atomicAdd(&s.bucket[bucket_of(tiles / parts, longest)], parts * heads);
    if (parts == 1) {
      for (int h = 0; h < heads; ++h) list.items[at++] = {request, h, m, 0, tiles, -1};
      return;
    }
    int slot = atomicAdd(&s.parts_used, parts * heads);
    int merge = atomicAdd(&s.merges, heads);
    for (int h = 0; h < heads; ++h) {
      list.merges[merge++] = {request, h, m, slot, parts};
      for (int i = 0; i < parts; ++i) list.items[at++] = {request, h, m, part_begin(tiles, i, parts), part_begin(tiles, i + 1, parts), slot++};
    }
  });
  __syncthreads();
  if (t == 0) list.counts[2] = s.merges;
}

constexpr int kMergeThreads = 256;
constexpr int kMergeRows = 8;  // of a row tile for one block

// O = sum_i 2^(lse_i - lse) O_i over the parts in order; parts that saw no key are not read.
template <class Elem>
__global__ void __launch_bounds__(kMergeThreads) merge_parts(const __grid_constant__ KernelParams p, const MergeItem* merges, const int* merge_count) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int blocks = kTileM / kMergeRows;
  const int count = *merge_count;
  for (int i = blockIdx.x; i < count * blocks; i += gridDim.x) {
    const MergeItem merge = merges[i / blocks];
    const Lengths len = request_lengths(p, merge.request);
    const int r = i % blocks * kMergeRows + warp, row = merge.m_tile * kTileM + r;
    if (row >= len.n * p.group) continue;
    const int token = row / p.group, head = merge.head * p.group + row % p.group;
    float m = -INFINITY;
    for (int k = 0; k < merge.parts; ++k) m = fmaxf(m, p.part_lse[int64_t(merge.first_part + k) * kTileM + r]);
    float l = 0.0f, o[16] = {};
    for (int k = 0; k < merge.parts; ++k) {
      const int64_t at = int64_t(merge.first_part + k) * kTileM + r;
      const float lse = p.part_lse[at];
      if (lse == -INFINITY) continue;
      const float w = dev::exp2_approx(lse - m);
      l += w;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float4 x = *reinterpret_cast<const float4*>(p.part_out + at * kLv + c * 128 + lane * 4);
        o[4 * c] = fmaf(w, x.x, o[4 * c]);
        o[4 * c + 1] = fmaf(w, x.y, o[4 * c + 1]);
        o[4 * c + 2] = fmaf(w, x.z, o[4 * c + 2]);
        o[4 * c + 3] = fmaf(w, x.w, o[4 * c + 3]);
      }
    }
    const RowEnd end = end_row(m, l, p.sinks != nullptr, p.sinks != nullptr ? load_sink(p, head) : 0.0f);
    uint8_t* out = p.out + (len.q_row + token) * p.out_stride.token + head * p.out_stride.head + lane * 8;
#pragma unroll
    for (int c = 0; c < 4; ++c)
      *reinterpret_cast<uint2*>(out + c * 256) =
          make_uint2(Elem::pack(o[4 * c] * end.factor, o[4 * c + 1] * end.factor), Elem::pack(o[4 * c + 2] * end.factor, o[4 * c + 3] * end.factor));
    if (lane == 0 && p.lse != nullptr)
      *reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(p.lse) + (len.q_row + token) * p.lse_stride.token + head * p.lse_stride.head) =
          end.lse * 0.6931471805599453f;
  }
}

}  // namespace hyla::extend::sm90_latent
