// The portable extend-attention kernel: 8 warps, mma.sync, K and V tiles taking turns in one ring of shared-memory buffers.
//
// Per key tile: scores of each warp's rows and keys; row maxima across the column groups through shared memory; weights to shared memory; output
// columns. The order of sums depends on the tile alone, so the number of buffers never changes a bit.
#pragma once
#include "load.cuh"

namespace hyla::extend::sm80_mma {

constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// Saturates whatever the argument: a ratio of exponentials would give NaN for large ones.
__device__ __forceinline__ float tanh_exact(float x) { return tanhf(x); }

// Temperature by position (xai): 1 up to L, then log2(p) / log2(L).
__device__ __forceinline__ float temperature(const Params& p, int64_t position) {
  return p.temperature_len > 0 && position > p.temperature_len ? log2f(static_cast<float>(position)) / log2f(static_cast<float>(p.temperature_len)) : 1.0f;
}

struct RowInfo {
  int64_t token;  // within the request; -1: no such row
  float factor;   // temperature
};

// May query token `q` see key `key` of the tile? (Loaded keys only.)
__device__ __forceinline__ bool allowed(const Params& p, const Item& it, int64_t mask_base, int64_t mask_row, int64_t offset, bool prefix, int64_t q,
                                        int64_t key) {
  const int64_t position = it.prefix + q, key_position = prefix ? key : it.prefix + key;
  if (p.window >= 0 && key_position < position - p.window) return false;
  if (p.mask != nullptr) {
    if (prefix && p.skip_prefix_mask) return true;
    const int64_t at = mask_base + q * mask_row + offset + key_position;
    return at >= 0 && at < p.mask_size && p.mask[at] != 0;
  }
  if (prefix) return true;
  if (p.causal) return key <= q;
  return p.window < 0 || key <= q + p.window;
}

template <class T, int kTile>
__device__ __forceinline__ void attend_item(const Params& p, const Item& it) {
  constexpr Tile kT = kTiles[kTile];
  constexpr int kM = kT.m(), kN = kT.n, kCols = kT.column_groups(), kKeys = kT.keys_per_warp(), kOut = kT.columns_per_warp();
  constexpr int kPStride = kN + kPad;
  extern __shared__ __align__(16) unsigned char smem[];
  const int q_stride = pad16(p.Lq) + kPad, v_stride = pad16(p.Lv) + kPad;
  T* sQ = reinterpret_cast<T*>(smem);
  T* sRing = sQ + kM * q_stride;
  const int64_t buffer = buffer_elements(kT, p.Lq, p.Lv);
  T* sP = sRing + p.buffers * buffer;
  int64_t* sSlots = reinterpret_cast<int64_t*>(sP + kM * kPStride);  // [buffers][kN]
  float* sMax = reinterpret_cast<float*>(sSlots + p.buffers * kN);   // [kCols][kM]
  // With a custom mask: keys of the tile that some row sees. The values of the others must not be multiplied, not even by 0: they may be NaN.
  uint8_t* sSeen = reinterpret_cast<uint8_t*>(sMax + kCols * kM);  // [kN]

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row_group = warp / kCols, column_group = warp % kCols;
  const int row_lo = row_group * 16 + lane / 4;  // this thread's rows: row_lo and row_lo + 8
  RowInfo rows[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t packed = it.row0 + row_lo + 8 * r;
    rows[r].token = packed < it.rows ? packed / p.group : -1;
    rows[r].factor = temperature(p, it.prefix + packed / p.group);
  }
  int64_t mask_base = 0, mask_row = 0, mask_offset = 0;
  if (p.mask != nullptr) {
    mask_offset = p.window_offsets.data != nullptr ? read(p.window_offsets, it.request) : 0;
    mask_base = read(p.mask_indptr, it.request), mask_row = it.prefix + it.tokens + mask_offset;
  }

  load_q(p, it, kM, sQ);

  // The ring: loads are numbered K0, V0, K1, V1, ... (K0, K1, ... when V is a view of K) and load s goes to buffer s % buffers.
  const int per_tile = p.aliased ? 1 : 2;
  const int64_t loads = (it.tile_end - it.tile_begin) * per_tile;
  auto issue = [&](int64_t load) {
    if (load < loads) {
      const KeyTile t = key_tile(it, it.tile_begin + load / per_tile, kN);
      const int at = static_cast<int>(load % p.buffers);
      load_slots(p, it, t, kN, sSlots + at * kN);
      __syncthreads();
      load_rows(p, it, t.prefix, load % per_tile == 1, kN, sSlots + at * kN, sRing + at * buffer);
    }
    dev::cp_async_commit();
  };
  // Waits until load `load` is in shared memory, for all threads.
  auto arrive = [&] {
    switch (p.buffers) {  // loads issued after it: buffers - 1
      case 1:
        dev::cp_async_wait<0>();
        break;
      case 2:
        dev::cp_async_wait<1>();
        break;
      case 3:
        dev::cp_async_wait<2>();
        break;
      default:
        dev::cp_async_wait<3>();
        break;
    }
    __syncthreads();
  };
  for (int64_t s = 0; s < p.buffers - 1; ++s) issue(s);

  float o[kOut / 8][4] = {};
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.0f, 0.0f};
  bool in_prefix = true;  // O still lacks v_scale
  int64_t load = 0;

  for (int64_t tile = it.tile_begin; tile < it.tile_end; ++tile, ++load) {
    const KeyTile t = key_tile(it, tile, kN);
    issue(load + p.buffers - 1);
    if (p.mask != nullptr && threadIdx.x < kN) sSeen[threadIdx.x] = 0;
    arrive();
    const T* sK = sRing + load % p.buffers * buffer;
    const int64_t* slots = sSlots + load % p.buffers * kN;

    // Scores of this warp's 16 rows and kKeys keys.
    float s[kKeys / 8][4] = {};
    for (int k = 0; k < pad16(p.Lq); k += 16) {
      uint32_t a[4];
      ldmatrix4(a, sQ + (row_group * 16 + lane % 16) * q_stride + k + lane / 16 * 8);
#pragma unroll
      for (int j = 0; j < kKeys / 8; j += 2) {
        if constexpr (kKeys >= 16) {
          uint32_t b[4];  // two groups of 8 keys, k and k + 8
          const int key = column_group * kKeys + j * 8 + lane % 8 + lane / 16 * 8;
          ldmatrix4(b, sK + key * q_stride + k + lane / 8 % 2 * 8);
          mma16816<T>(s[j], a, b[0], b[1]);
          mma16816<T>(s[j + 1], a, b[2], b[3]);
        } else {
          uint32_t b[4];  // one group of 8 keys; the upper half repeats it
          ldmatrix4(b, sK + (column_group * kKeys + lane % 8) * q_stride + k + lane / 8 % 2 * 8);
          mma16816<T>(s[j], a, b[0], b[1]);
        }
      }
    }

    // Scale, cap, temperature, mask; then the row maxima over all column groups.
    const float scale = t.prefix ? p.scale_prefix : p.scale_extend;
    float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = e / 2, column = column_group * kKeys + j * 8 + lane % 4 * 2 + e % 2;
        float x = s[j][e] * scale;
        if (p.cap_log2 > 0.0f) x = p.cap_log2 * tanh_exact(x);
        x *= rows[r].factor;
        const bool seen =
            rows[r].token >= 0 && slots[column] >= 0 && allowed(p, it, mask_base, mask_row, mask_offset, t.prefix, rows[r].token, t.first + column);
        s[j][e] = seen ? x : -INFINITY;
        if (p.mask != nullptr && seen) sSeen[column] = 1;
        top[r] = fmaxf(top[r], s[j][e]);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
      if (lane % 4 == 0) sMax[column_group * kM + row_lo + 8 * r] = top[r];
    }
    __syncthreads();
    if (in_prefix && !t.prefix) {
      in_prefix = false;
#pragma unroll
      for (int c = 0; c < kOut / 8; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[c][e] *= p.v_scale;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float highest = m[r];
#pragma unroll
      for (int c = 0; c < kCols; ++c) highest = fmaxf(highest, sMax[c * kM + row_lo + 8 * r]);
      const float base = highest == -INFINITY ? 0.0f : highest;  // a row that has seen nothing: exp2(-inf) below, never inf - inf
      const float fade = exp2f(m[r] - base);
      m[r] = highest;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          s[j][e] = exp2f(s[j][e] - base);
          sum += s[j][e];
        }
        *reinterpret_cast<uint32_t*>(sP + (row_lo + 8 * r) * kPStride + column_group * kKeys + j * 8 + lane % 4 * 2) = pack<T>(s[j][2 * r], s[j][2 * r + 1]);
      }
      l[r] = l[r] * fade + sum;
#pragma unroll
      for (int c = 0; c < kOut / 8; ++c) o[c][2 * r] *= fade, o[c][2 * r + 1] *= fade;
    }
    __syncthreads();

    // Output: this warp's 16 rows and its share of the value columns.
    int stride = q_stride;
    if (!p.aliased) {
      ++load;
      issue(load + p.buffers - 1);
      arrive();
      stride = v_stride;
    }
    T* sV = sRing + load % p.buffers * buffer;
    if (p.mask != nullptr) {
      for (int i = threadIdx.x; i < kN * p.Lv; i += kThreads)
        if (!sSeen[i / p.Lv]) sV[i / p.Lv * stride + i % p.Lv] = T(0.0f);
      __syncthreads();
    }
    const int first_column = column_group * kOut;
#pragma unroll
    for (int k = 0; k < kN; k += 16) {
      uint32_t a[4];
      ldmatrix4(a, sP + (row_group * 16 + lane % 16) * kPStride + k + lane / 16 * 8);
#pragma unroll
      for (int c = 0; c < kOut / 8; c += 2) {
        if (first_column + c * 8 < p.Lv) {
          uint32_t b[4];
          ldmatrix4_trans(b, sV + (k + lane % 16) * stride + first_column + c * 8 + lane / 16 * 8);
          mma16816<T>(o[c], a, b[0], b[1]);
          mma16816<T>(o[c + 1], a, b[2], b[3]);
        }
      }
    }
    __syncthreads();  // the buffers just read are refilled by the next issue; sP and sMax are written again
  }

  // Row sums over the quad and the column groups, always in the same order.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l[r] += __shfl_xor_sync(0xffffffffu, l[r], 1);
    l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);
    if (lane % 4 == 0) sMax[column_group * kM + row_lo + 8 * r] = l[r];
  }
  __syncthreads();
  const bool split = it.parts > 1;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (rows[r].token < 0) continue;
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < kCols; ++c) sum += sMax[c * kM + row_lo + 8 * r];
    const int64_t packed = it.row0 + row_lo + 8 * r, token = it.token0 + rows[r].token, head = int64_t(it.head) * p.group + packed % p.group;
    if (!split && p.sinks != nullptr) {
      const float sink = p.sinks_bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(p.sinks)[head]) : static_cast<const float*>(p.sinks)[head];
      if (m[r] == -INFINITY) m[r] = sink * kLog2e, sum = 1.0f;  // no key: output 0, LSE the sink's logit
      else sum += exp2f(sink * kLog2e - m[r]);
    }
    const float v_scale = in_prefix ? p.v_scale : 1.0f, inverse = sum > 0.0f ? v_scale / sum : 0.0f, lse = sum > 0.0f ? m[r] + log2f(sum) : -INFINITY;
    const int64_t row_id = token * (int64_t(p.Hkv) * p.group) + head;
    if (column_group == 0 && lane % 4 == 0) {
      if (split) p.partial_lse[row_id * p.splits + it.part] = lse;
      else if (p.lse != nullptr) p.lse[token * p.lse_token + head * p.lse_head] = lse * kLn2;
    }
#pragma unroll
    for (int c = 0; c < kOut / 8; ++c) {
      const int column = column_group * kOut + c * 8 + lane % 4 * 2;
      if (column >= p.Lv) continue;
      const float x = o[c][2 * r] * inverse, y = o[c][2 * r + 1] * inverse;
      if (split) {
        *reinterpret_cast<float2*>(p.partial_out + (row_id * p.splits + it.part) * p.Lv + column) = make_float2(x, y);
      } else {
        T* out = static_cast<T*>(p.out) + token * p.out_token + head * p.out_head + column;
        out[0] = T(x), out[1] = T(y);
      }
    }
  }
}

template <class T, int kTile>
__global__ void __launch_bounds__(kThreads, 1) attend(const __grid_constant__ Params p) {
  constexpr Tile kT = kTiles[kTile];
  Item it;
  // One lap unless a request is longer than max_extend said.
  for (int64_t lap = 0; find_rows(p, kT.m(), lap, it); ++lap) {
    if (lap > 0) __syncthreads();
    if (find_part(p, kT.m(), kT.n, it)) attend_item<T, kTile>(p, it);
  }
}

}  // namespace hyla::extend::sm80_mma
