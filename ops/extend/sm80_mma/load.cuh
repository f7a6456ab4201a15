// Rows of Q, K and V into shared memory: cp.async where the layout allows it, element by element where it does not, converted on the way from
// an fp8 pool. What is not to be seen becomes zeros: foreign rows may hold NaN.
#pragma once
#include <cuda_fp8.h>

#include "config.h"
#include "cuda/device/copy.cuh"
#include "item.cuh"
#include "mma.cuh"

namespace hyla::extend::sm80_mma {

// Eight elements (16 bytes) of a row of T.
template <class T>
__device__ __forceinline__ void copy8(T* dst, const T* src, bool valid, bool aligned) {
  if (aligned) {
    dev::cp_async16_zfill(dev::smem_addr(dst), src, valid);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) dst[i] = valid ? src[i] : T(0.0f);
  }
}

template <class T>
__device__ __forceinline__ void convert8(T* dst, const uint8_t* src, bool valid, bool e5m2) {
  const __nv_fp8_interpretation_t kind = e5m2 ? __NV_E5M2 : __NV_E4M3;
#pragma unroll
  for (int i = 0; i < 8; ++i) dst[i] = valid ? T(__half2float(__half(__nv_cvt_fp8_to_halfraw(src[i], kind)))) : T(0.0f);
}

template <class T>
__device__ inline void load_q(const Params& p, const Item& it, int m, T* sQ) {
  const int columns = pad16(p.Lq), stride = columns + kPad, units = columns / 8;
  const T* gQ = static_cast<const T*>(p.q);
  for (int i = threadIdx.x; i < m * units; i += kThreads) {
    const int row = i / units, unit = i % units;
    const int64_t packed = it.row0 + row, token = it.token0 + packed / p.group, head = int64_t(it.head) * p.group + packed % p.group;
    const bool valid = packed < it.rows && unit * 8 < p.Lq;
    copy8(sQ + row * stride + unit * 8, valid ? gQ + token * p.q_token + head * p.q_head + unit * 8 : gQ, valid, p.aligned16);
  }
}

// Slots of a tile's keys: -1 for keys that are not loaded (outside the range that the rows may see, or outside the pool).
__device__ inline void load_slots(const Params& p, const Item& it, const KeyTile& t, int n, int64_t* sSlots) {
  for (int i = threadIdx.x; i < n; i += kThreads) {
    const int64_t key = t.first + i;
    int64_t slot = -1;
    if (key >= t.lo && key < t.hi) {
      slot = t.prefix ? read(p.kv_indices, it.prefix0 + key) : it.token0 + key;
      if (t.prefix && slot >= p.slots) slot = -1;
    }
    sSlots[i] = slot;
  }
}

// One tile of K (or V) rows into a buffer. Slots must be visible.
template <class T>
__device__ inline void load_rows(const Params& p, const Item& it, bool prefix, bool value, int n, const int64_t* sSlots, T* sTile) {
  const int width = value ? p.Lv : p.Lq, columns = pad16(width), stride = columns + kPad, units = columns / 8;
  const void* base = prefix ? (value ? p.v_buffer : p.k_buffer) : (value ? p.v : p.k);
  const int64_t page = value ? p.v_page : p.k_page, in_page = value ? p.v_slot : p.k_slot;
  const int64_t head = it.head * (prefix ? (value ? p.v_pool_head : p.k_pool_head) : (value ? p.v_head : p.k_head));
  const int64_t token = value ? p.v_token : p.k_token;
  for (int i = threadIdx.x; i < n * units; i += kThreads) {
    const int row = i / units, unit = i % units;
    const int64_t slot = sSlots[row];
    const bool valid = slot >= 0 && unit * 8 < width;
    int64_t offset = 0;
    if (valid) {
      offset = head + unit * 8;
      if (!prefix) offset += slot * token;
      else if (p.page_size == 1) offset += slot * page;
      else offset += slot / p.page_size * page + slot % p.page_size * in_page;
    }
    T* dst = sTile + row * stride + unit * 8;
    if (prefix && p.pool != PoolType::kSame) convert8(dst, static_cast<const uint8_t*>(base) + offset, valid, p.pool == PoolType::kE5m2);
    else copy8(dst, static_cast<const T*>(base) + offset, valid, p.aligned16);
  }
}

}  // namespace hyla::extend::sm80_mma
