// One block makes the list of work (see worklist.h).
#pragma once
#include "item.cuh"
#include "worklist.h"

namespace hyla::extend::sm90_latent {

constexpr int kListThreads = 1024;
constexpr int kBuckets = 512;  // of work: longest first needs no exact sort
constexpr int kChoices = kMaxWaves + 1;
constexpr uint32_t kAll = 0xffffffffu;

struct ListScratch {
  unsigned long long total;
  int longest;
  int count[kChoices], longest_part[kChoices], target[kChoices];
  int bucket[kBuckets];
  int parts_used, merges;
  int warp_sum[32];
  // A chunk of requests: lengths and the number of row tiles before each.
  int n[kListThreads], prefix[kListThreads], first_tile[kListThreads + 1];
};

// Exclusive prefix sum over the block's threads; all threads call. Returns the total in `sum`.
__device__ __forceinline__ int block_scan(int x, int (&warp_sum)[32], int& sum) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int y = x;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int z = __shfl_up_sync(kAll, y, d);
    if (lane >= d) y += z;
  }
  if (lane == 31) warp_sum[warp] = y;
  __syncthreads();
  int w = warp_sum[lane], v = w;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int z = __shfl_up_sync(kAll, v, d);
    if (lane >= d) v += z;
  }
  sum = __shfl_sync(kAll, v, 31);
  const int before = __shfl_sync(kAll, v - w, warp);
  __syncthreads();
  return before + y - x;
}

// The row tiles of all requests, spread evenly over the block's threads whatever the lengths.
class RowTiles {
 public:
  __device__ RowTiles(const KernelParams& p, int batch, ListScratch& s) : p_(p), batch_(batch), s_(s) {}

  // Calls visit(request, row tile, key tiles); all threads call for_each.
  template <class Visit>
  __device__ __forceinline__ void for_each(Visit visit) {
    for (int base = 0; base < batch_; base += kListThreads) {
      if (base != loaded_) load(base);
      const int requests = min(batch_ - base, kListThreads), tiles = s_.first_tile[requests];
      for (int i = threadIdx.x; i < tiles; i += kListThreads) {
        int r = 0;
        for (int step = 512; step > 0; step /= 2)
          if (r + step < requests && s_.first_tile[r + step] <= i) r += step;
        const int m = i - s_.first_tile[r], last = min(s_.n[r] * p_.group, (m + 1) * kTileM) - 1;
        visit(base + r, m, make_walk(p_, s_.n[r], s_.prefix[r], m * kTileM / p_.group, last / p_.group).tiles());
      }
    }
    __syncthreads();
  }

 private:
  __device__ __forceinline__ void load(int base) {
    __syncthreads();
    const int t = threadIdx.x;
    int tiles = 0;
    if (base + t < batch_) {
      const Lengths len = request_lengths(p_, base + t);
      s_.n[t] = len.n;
      s_.prefix[t] = len.prefix;
      tiles = (len.n * p_.group + kTileM - 1) / kTileM;
    }
    int sum;
    s_.first_tile[t] = block_scan(tiles, s_.warp_sum, sum);
    if (t == 0) s_.first_tile[kListThreads] = sum;
    __syncthreads();
    loaded_ = base;
  }

  const KernelParams& p_;
  int batch_, loaded_ = -1;
  ListScratch& s_;
};

__device__ __forceinline__ int parts_of(int tiles, int target) { return target > 0 ? max(1, tiles / target) : 1; }
// As many parts as asked for, of at least a pair of tiles.
__device__ __forceinline__ int forced_parts_of(int tiles, int parts) { return max(1, min(parts, (tiles + 1) / 2)); }
// Parts are cut between pairs of tiles.
__device__ __forceinline__ int part_begin(int tiles, int part, int parts) {
  const int pairs = (tiles + 1) / 2;
  return min(tiles, 2 * int(int64_t(pairs) * part / parts));
}
__device__ __forceinline__ int bucket_of(int tiles, int longest) { return int(int64_t(tiles) * (kBuckets - 1) / max(1, longest)); }

// Key tiles a part should have; 0: no cuts. The choice with the least modelled time.
__device__ __forceinline__ int choose_target(const ListScratch& s, int heads, int sm_count) {
  int best = 0;
  float best_time = 0;
  for (int k = 0; k < kChoices; ++k) {
    const float count = float(s.count[k]) * heads;
    const float mean = float(s.total) * heads / fmaxf(count, 1.0f);
    float time = fmaxf(float(s.longest_part[k]) + kItemCostTiles, ceilf(count / sm_count) * (mean + kItemCostTiles));
    if (k > 0) time = time * 1.03f + kItemCostTiles;  // the merge
    if (k == 0 || time < best_time) {
      best = k;
      best_time = time;
    }
  }
  return s.target[best];
}

__global__ void __launch_bounds__(kListThreads, 1)
    make_work_list(const __grid_constant__ KernelParams p, int batch, int heads, int sm_count, int forced_parts, WorkList list) {
  __shared__ ListScratch s;
  const int t = threadIdx.x, lane = t % 32;
  if (t < kBuckets) s.bucket[t] = 0;
  if (t < kChoices) s.count[t] = s.longest_part[t] = s.target[t] = 0;
  if (t == 0) s.total = 0, s.longest = s.parts_used = s.merges = 0;
  __syncthreads();
  RowTiles row_tiles(p, batch, s);

  unsigned long long total = 0;
  int longest = 0, count = 0;
  row_tiles.for_each([&](int, int, int tiles) {
    total += tiles;
    longest = max(longest, tiles);
    ++count;
  });
#pragma unroll
  for (int d = 16; d > 0; d /= 2) total += __shfl_xor_sync(kAll, total, d);
  longest = __reduce_max_sync(kAll, longest);
  count = __reduce_add_sync(kAll, count);
  if (lane == 0 && count > 0) {
    atomicAdd(&s.total, total);
    atomicMax(&s.longest, longest);
    atomicAdd(&s.count[0], count);
  }
  __syncthreads();
  longest = s.longest;

  int target = 0;
  if (forced_parts == 0 && int64_t(s.count[0]) * heads < int64_t(kMaxWaves) * sm_count) {
    if (t > 0 && t < kChoices) {
      const int64_t slots = int64_t(t) * sm_count;
      s.target[t] = int(max(int64_t(kMinPartTiles), (int64_t(s.total) * heads + slots - 1) / slots));
    }
    if (t == 0) s.longest_part[0] = longest;
    __syncthreads();
    row_tiles.for_each([&](int, int, int tiles) {
      for (int k = 1; k < kChoices; ++k) {
        const int parts = parts_of(tiles, s.target[k]);
        atomicAdd(&s.count[k], parts);
        atomicMax(&s.longest_part[k], part_begin(tiles, 1, parts));
      }
    });
    target = choose_target(s, heads, sm_count);
  }

  row_tiles.for_each([&](int, int, int tiles) {
    const int parts = forced_parts > 0 ? forced_parts_of(tiles, forced_parts) : parts_of(tiles, target);
    atomicAdd(&s.bucket[bucket_of(tiles / parts, longest)], parts * heads);
  });
  int items;
  const int mine = t < kBuckets ? s.bucket[kBuckets - 1 - t] : 0;
  const int before = block_scan(mine, s.warp_sum, items);
  if (t < kBuckets) s.bucket[kBuckets - 1 - t] = before;
  if (t == 0) {
    list.counts[0] = min(items, list.item_capacity);
    list.counts[1] = 0;
  }
  __syncthreads();
  row_tiles.for_each([&](int request, int m, int tiles) {
    const int parts = forced_parts > 0 ? forced_parts_of(tiles, forced_parts) : parts_of(tiles, target);
    int at = atomicAdd(&s.bucket[bucket_of(tiles / parts, longest)], parts * heads);
    const auto put = [&](const WorkItem& item) {
      if (at < list.item_capacity) list.items[at] = item;
      ++at;
    };
    const int slot = parts > 1 ? atomicAdd(&s.parts_used, parts * heads) : 0;
    if (parts == 1 || slot + parts * heads > list.part_capacity) {
      for (int h = 0; h < heads; ++h)
        for (int i = 0; i < parts; ++i) put({request, h, m, 0, tiles, -1});
      return;
    }
    const int merge = atomicAdd(&s.merges, heads);
    for (int h = 0; h < heads; ++h) {
      const int first = slot + h * parts;
      list.merges[merge + h] = {request, h, m, first, parts};
      for (int i = 0; i < parts; ++i) put({request, h, m, part_begin(tiles, i, parts), part_begin(tiles, i + 1, parts), first + i});
    }
  });
  if (t == 0) list.counts[2] = s.merges;
}

}  // namespace hyla::extend::sm90_latent
