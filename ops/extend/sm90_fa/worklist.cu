// The planning kernel, one block: lengths on the device -> units, longest first, with long ones cut into parts when the machine would stand idle.
// The order of units and the numbering of partial results vary with the schedule of atomics; no result depends on them.
#include "geometry.h"
#include "kernels.h"
#include "cuda/device/copy.cuh"

namespace hyla::extend::sm90_fa {
namespace {

constexpr int kPlanThreads = 1024, kWarps = kPlanThreads / 32, kBuckets = 1024;
constexpr int kUnitCost = 2;           // fetching Q, first tile and epilogue, in key tiles
constexpr int kPartCost = 2;           // further cost of a part: partial results out and in
constexpr int kMinPart = 2;            // key tiles
constexpr int kGroupBytes = 40 << 20;  // keys and values that may be expected to stay in L2

struct Shared {
  int warp_sum[kWarps], carry;
  int histogram[kBuckets];
  unsigned long long total;
  int max_cost, max_keys;
  unsigned long long best;  // estimate, then candidate
  int slots, splits, part;
};

__device__ __forceinline__ int64_t read_index(const void* p, bool is64, int64_t i) {
  return is64 ? __ldg(static_cast<const long long*>(p) + i) : __ldg(static_cast<const int*>(p) + i);
}
__device__ __forceinline__ int64_t clamp64(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

__device__ __forceinline__ int warp_scan(int x, int lane) {
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    const int y = __shfl_up_sync(0xffffffffu, x, d);
    if (lane >= d) x += y;
  }
  return x;
}
// Exclusive sum over the block on top of s.carry, which moves on by the block's total.
__device__ __forceinline__ int block_scan(Shared& s, int x) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int inclusive = warp_scan(x, lane);
  if (lane == 31) s.warp_sum[warp] = inclusive;
  __syncthreads();
  if (warp == 0) s.warp_sum[lane] = warp_scan(s.warp_sum[lane], lane);
  __syncthreads();
  const int result = s.carry + inclusive - x + (warp > 0 ? s.warp_sum[warp - 1] : 0);
  __syncthreads();
  if (threadIdx.x == 0) s.carry += s.warp_sum[kWarps - 1];
  __syncthreads();
  return result;
}

// Lengths of every request, cut to what the tensors hold, and the number of its first query tile.
__device__ void read_requests(const Params& p, Shared& s) {
  for (int base = 0; base < p.batch; base += kPlanThreads) {
    const int i = base + threadIdx.x;
    Request r{};
    int tiles = 0;
    if (i < p.batch) {
      const int64_t q0 = clamp64(read_index(p.qo_indptr, p.qo64, i), 0, p.n), q1 = clamp64(read_index(p.qo_indptr, p.qo64, i + 1), q0, p.n);
      const int64_t k0 = clamp64(read_index(p.kv_indptr, p.kv64, i), 0, p.kv_capacity);
      const int64_t k1 = clamp64(read_index(p.kv_indptr, p.kv64, i + 1), k0, p.kv_capacity);
      r.q_row = q0, r.kv_begin = k0, r.n = int(q1 - q0), r.prefix = int(k1 - k0);
      tiles = (r.n + p.tokens_per_tile - 1) / p.tokens_per_tile;
      if (tiles > 0) atomicMax(&s.max_keys, r.n + r.prefix);
    }
    r.first_tile = block_scan(s, tiles);
    if (i < p.batch) p.requests[i] = r;
  }
}

__device__ __forceinline__ int find_request(const Params& p, int tile) {
  int lo = 0, hi = p.batch - 1;  // the last request whose first tile is <= tile
  while (lo < hi) {
    const int mid = (lo + hi + 1) / 2;
    if (p.requests[mid].first_tile <= tile) lo = mid;
    else hi = mid - 1;
  }
  return lo;
}

template <int kN>
__device__ void price_tiles(const Params& p, Shared& s, int tiles) {
  unsigned long long total = 0;
  int most = 0;
  for (int t = threadIdx.x; t < tiles; t += kPlanThreads) {
    const int owner = find_request(p, t);
    const Request r = p.requests[owner];
    const int q0 = (t - r.first_tile) * p.tokens_per_tile;
    const int cost = span_of<kN>(r.n, r.prefix, q0, lower(p.tokens_per_tile, r.n - q0), p.window, p.ahead, p.skip_prefix, p.skip_new).tiles();
    p.costs[t] = cost;
    p.owners[t] = owner;
    total += cost;
    most = upper(most, cost);
  }
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) {
    total += __shfl_xor_sync(0xffffffffu, total, d);
    most = upper(most, __shfl_xor_sync(0xffffffffu, most, d));
  }
  if ((threadIdx.x & 31) == 0) {
    atomicAdd(&s.total, total);
    atomicMax(&s.max_cost, most);
  }
}

__device__ __forceinline__ int parts_of(int cost, int part) { return cost <= part ? 1 : (cost + part - 1) / part; }

// Expected time, in key tiles, when no part is longer than `part`; all ones when the partial results would not fit.
__device__ unsigned estimate(const Params& p, const Shared& s, int tiles, int part, int lane) {
  int items = 0, slots = 0, longest = 0;
  for (int t = lane; t < tiles; t += 32) {
    const int cost = p.costs[t], parts = parts_of(cost, part);
    items += parts;
    if (parts > 1) slots += parts;
    longest = upper(longest, (cost + parts - 1) / parts);
  }
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) {
    items += __shfl_xor_sync(0xffffffffu, items, d);
    slots += __shfl_xor_sync(0xffffffffu, slots, d);
    longest = upper(longest, __shfl_xor_sync(0xffffffffu, longest, d));
  }
  const int64_t all = int64_t(items) * p.kv_heads, cut = int64_t(slots) * p.kv_heads;
  if (cut > p.slot_capacity) return 0xffffffffu;
  const int overhead = kUnitCost + (slots > 0 ? kPartCost : 0);
  const int64_t waves = (all + p.grid - 1) / p.grid;
  const int64_t mean16 = 16 * int64_t(s.total) * p.kv_heads / (all > 0 ? all : 1);  // 1/16 tiles
  const int64_t by_waves = waves * (mean16 + 16 * overhead), by_longest = 16 * int64_t(longest + overhead);
  return unsigned(by_waves > by_longest ? by_waves : by_longest) + (slots > 0 ? 16 : 0);
}

// The longest part allowed; max_cost when nothing is cut. A few lengths are tried, one warp each, where the tiles are few.
__device__ int choose_part(const Params& p, Shared& s, int tiles) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t items = int64_t(tiles) * p.kv_heads, total = int64_t(s.total) * p.kv_heads;
  const int fair = upper(kMinPart, int((total + p.grid - 1) / p.grid));
  if (p.max_splits == 1 || s.max_cost <= kMinPart || p.slot_capacity == 0) return upper(1, s.max_cost);
  if (p.max_splits > 1) return (s.max_cost + p.max_splits - 1) / p.max_splits;
  if (items >= 4 * p.grid && s.max_cost <= fair + fair / 4) return s.max_cost;
  if (tiles > 16384) return upper(fair, 1);
  for (int c = warp; c < 64; c += kWarps) {
    const int part = c < 32 ? upper(kMinPart, (s.max_cost + c) / (c + 1)) : fair + (c - 32) * upper(1, fair / 16);
    if (part > s.max_cost) continue;
    const unsigned e = estimate(p, s, tiles, part, lane);
    // Equal estimates: the longer part.
    if (lane == 0) atomicMin(&s.best, (static_cast<unsigned long long>(e) << 32) | unsigned(s.max_cost - part));
  }
  __syncthreads();
  return (s.best >> 32) == 0xffffffffu ? s.max_cost : s.max_cost - int(s.best & 0xffffffffu);
}

// Partial results that this part length needs, all heads.
__device__ bool fits_slots(const Params& p, Shared& s, int tiles, int part) {
  if (threadIdx.x == 0) s.slots = 0;
  __syncthreads();
  int slots = 0;
  for (int t = threadIdx.x; t < tiles; t += kPlanThreads) {
    const int parts = parts_of(p.costs[t], part);
    if (parts > 1) slots += parts;
  }
  slots = warp_scan(slots, threadIdx.x & 31);
  if ((threadIdx.x & 31) == 31 && slots > 0) atomicAdd(&s.slots, slots);
  __syncthreads();
  const bool ok = int64_t(s.slots) * p.kv_heads <= p.slot_capacity;
  __syncthreads();
  return ok;
}

__device__ __forceinline__ int bucket_of(int cost, int longest) { return kBuckets - 1 - int(int64_t(cost) * (kBuckets - 1) / upper(1, longest)); }

// atomicAdd on shared memory, once per group of lanes with the same address.
__device__ __forceinline__ int grouped_add(int* counters, int which, int amount, int lane) {
  const unsigned peers = __match_any_sync(__activemask(), which);
  int before = 0, sum = 0, base = 0;
  for (unsigned rest = peers; rest; rest &= rest - 1) {
    const int l = __ffs(rest) - 1, x = __shfl_sync(peers, amount, l);
    if (l < lane) before += x;
    sum += x;
  }
  const int leader = __ffs(peers) - 1;
  if (lane == leader) base = atomicAdd(counters + which, sum);
  return __shfl_sync(peers, base, leader) + before;
}

__device__ void place_units(const Params& p, Shared& s, int tiles, int part) {
  const int lane = threadIdx.x & 31;
  const int longest = lower(part, s.max_cost);
  for (int b = threadIdx.x; b < kBuckets; b += kPlanThreads) s.histogram[b] = 0;
  if (threadIdx.x == 0) s.carry = s.slots = s.splits = 0;
  __syncthreads();
  for (int t = threadIdx.x; t < tiles; t += kPlanThreads) {
    const int parts = parts_of(p.costs[t], part);
    grouped_add(s.histogram, bucket_of((p.costs[t] + parts - 1) / parts, longest), parts, lane);
  }
  __syncthreads();
  const int first = block_scan(s, s.histogram[threadIdx.x]);
  s.histogram[threadIdx.x] = first;
  __syncthreads();
  for (int t = threadIdx.x; t < tiles; t += kPlanThreads) {
    const int cost = p.costs[t], parts = parts_of(cost, part), each = (cost + parts - 1) / parts;
    const Request r = p.requests[p.owners[t]];
    Unit u{};
    u.q0 = (t - r.first_tile) * p.tokens_per_tile;
    u.tokens = lower(p.tokens_per_tile, r.n - u.q0);
    u.q_row = r.q_row + u.q0, u.new_row = r.q_row, u.kv_begin = r.kv_begin;
    u.n = r.n, u.prefix = r.prefix, u.parts = parts;
    int slot = -1;
    if (parts > 1) {
      slot = atomicAdd(&s.slots, parts * p.kv_heads);
      p.split_tiles[atomicAdd(&s.splits, 1)] = {u.q_row, u.tokens, slot, parts, 0};
    }
    const int at = grouped_add(s.histogram, bucket_of(each, longest), parts, lane);
    for (int i = 0; i < parts; ++i) {
      // Parts differ by one tile at most.
      u.t0 = int(int64_t(cost) * i / parts), u.t1 = int(int64_t(cost) * (i + 1) / parts);
      u.slot = parts > 1 ? slot + i : -1;
      p.units[at + i] = u;
    }
  }
  __syncthreads();
}

template <int kN>
__global__ void __launch_bounds__(kPlanThreads) plan_kernel(const __grid_constant__ Params p) {
  __shared__ Shared s;
  dev::launch_dependents();
  if (threadIdx.x == 0) {
    s.carry = s.max_cost = s.max_keys = 0;
    s.total = 0;
    s.best = ~0ull;
  }
  __syncthreads();
  read_requests(p, s);
  const int tiles = lower(s.carry, p.tile_capacity);
  price_tiles<kN>(p, s, tiles);
  __syncthreads();
  int part = upper(1, choose_part(p, s, tiles));
  while (part < s.max_cost && !fits_slots(p, s, tiles, part)) part *= 2;
  place_units(p, s, tiles, part);
  if (threadIdx.x == 0) {
    // Long requests without a window: run a few heads at a time, while their keys fit in L2. The last units of a group keep the order longest first.
    int group = p.kv_heads;
    if (p.window < 0)
      while (group % 2 == 0 && int64_t(group) * s.max_keys * p.key_bytes > kGroupBytes) group /= 2;
    *p.header = {p.grid, s.carry, group, s.splits};
  }
}

}  // namespace

cudaError_t launch_plan(const Params& p, int tile_n, cudaStream_t stream) {
  switch (tile_n) {
    case 64:
      plan_kernel<64><<<1, kPlanThreads, 0, stream>>>(p);
      break;
    case 80:
      plan_kernel<80><<<1, kPlanThreads, 0, stream>>>(p);
      break;
    case 96:
      plan_kernel<96><<<1, kPlanThreads, 0, stream>>>(p);
      break;
    case 128:
      plan_kernel<128><<<1, kPlanThreads, 0, stream>>>(p);
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace hyla::extend::sm90_fa
