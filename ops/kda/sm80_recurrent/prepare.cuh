// Prepare warps: raw q, k, g, v, beta of a tile of tokens -> fp32 operands in shared memory. A warp takes whole tokens.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>
#include <cstdint>

#include "config.h"
#include "item.cuh"

namespace hyla::kda::sm80_recurrent {

constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// How inputs are read. Packed: bf16 q, k, v and a known gate type with 16-byte aligned rows; Any: element by element, types at run time.
template <class G>
struct Packed {
  template <int N>
  static __device__ __forceinline__ void qk(const Params&, const void* row, int at, float (&x)[N]) { load<N>(static_cast<const __nv_bfloat16*>(row) + at, x); }
  template <int N>
  static __device__ __forceinline__ void gate(const Params&, const void* row, int at, float (&x)[N]) { load<N>(static_cast<const G*>(row) + at, x); }
  static __device__ __forceinline__ const void* row(const Params&, const Rows& r, int64_t batch, int64_t token, int head, Element) {
    return static_cast<const __nv_bfloat16*>(r.data) + (batch * r.batch + token * r.token + head * r.head);
  }
  static __device__ __forceinline__ const void* gate_row(const Params& p, int64_t batch, int64_t token, int head) {
    return static_cast<const G*>(p.g.data) + (batch * p.g.batch + token * p.g.token + head * p.g.head);
  }
  static __device__ __forceinline__ float v(const Params&, const void* row, int at) { return __bfloat162float(static_cast<const __nv_bfloat16*>(row)[at]); }

 private:
  template <int N>
  static __device__ __forceinline__ void load(const __nv_bfloat16* src, float (&x)[N]) {
    uint32_t words[N / 2];
    if constexpr (N == 4) {
      const uint2 w = __ldg(reinterpret_cast<const uint2*>(src));
      words[0] = w.x, words[1] = w.y;
    } else {
      words[0] = __ldg(reinterpret_cast<const uint32_t*>(src));
    }
#pragma unroll
    for (int i = 0; i < N / 2; ++i) x[2 * i] = __uint_as_float(words[i] << 16), x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  template <int N>
  static __device__ __forceinline__ void load(const float* src, float (&x)[N]) {
    if constexpr (N == 4) {
      const float4 w = __ldg(reinterpret_cast<const float4*>(src));
      x[0] = w.x, x[1] = w.y, x[2] = w.z, x[3] = w.w;
    } else {
      const float2 w = __ldg(reinterpret_cast<const float2*>(src));
      x[0] = w.x, x[1] = w.y;
    }
  }
};

__device__ __forceinline__ float read_element(Element type, const void* data, int64_t at) {
  switch (type) {
    case Element::kBf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
    case Element::kFp16: return __half2float(static_cast<const __half*>(data)[at]);
    default: return static_cast<const float*>(data)[at];
  }
}

struct Any {
  template <int N>
  static __device__ __forceinline__ void qk(const Params& p, const void* row, int at, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = read_element(p.qkv, row, at + i);
  }
  template <int N>
  static __device__ __forceinline__ void gate(const Params& p, const void* row, int at, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = read_element(p.gate_type, row, at + i);
  }
  static __device__ __forceinline__ const void* row(const Params&, const Rows& r, int64_t batch, int64_t token, int head, Element type) {
    return static_cast<const char*>(r.data) + (batch * r.batch + token * r.token + head * r.head) * (type == Element::kFp32 ? 4 : 2);
  }
  static __device__ __forceinline__ const void* gate_row(const Params& p, int64_t batch, int64_t token, int head) {
    return row(p, p.g, batch, token, head, p.gate_type);
  }
  static __device__ __forceinline__ float v(const Params& p, const void* row, int at) { return read_element(p.qkv, row, at); }
};

// e^g of one channel. `rate` is exp(A_log), at most FLT_MAX, so that a gate of 0 stays 0.
__device__ __forceinline__ float decay_of(const Params& p, float raw, float rate) {
  if (p.gate == 2) return exp2_fast(raw * kLog2E);
  if (p.gate == 0) {
    const float sigmoid = __frcp_rn(1.0f + exp2_fast(-kLog2E * (rate * raw)));
    return exp2_fast(p.lower_bound * kLog2E * sigmoid);
  }
  const float softplus = raw > 20.0f ? raw : log1pf(exp2_fast(raw * kLog2E));
  return exp2_fast(-kLog2E * (rate * softplus));
}

template <int N>
__device__ __forceinline__ void warp_sum(float (&x)[N]) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] += __shfl_xor_sync(~0u, x[i], mask);
}

template <int N>
__device__ __forceinline__ void store_shared(float* dst, const float (&x)[N]) {
  if constexpr (N == 4)
    *reinterpret_cast<float4*>(dst) = make_float4(x[0], x[1], x[2], x[3]);
  else
    *reinterpret_cast<float2*>(dst) = make_float2(x[0], x[1]);
}

// Raw values of the tokens a prepare warp takes of one tile, in registers while the stage is still in use.
template <class T>
struct RawTile {
  static constexpr Config kC = T::kConfig;
  static constexpr int kTokens = kC.tile / kC.prepare_warps;
  static constexpr int kChannels = kC.dim / 32;                 // a lane's channels
  static constexpr int kValues = (kC.columns() + 31) / 32;      // a lane's columns of v
  float q[kTokens][kChannels], k[kTokens][kChannels], g[kTokens][kChannels], v[kTokens][kValues], beta[kTokens];

  __device__ __forceinline__ void load(const Params& p, const Item& item, int64_t tile_first, int count, int warp, int lane) {
    using Io = typename T::Io;
    const int group = p.HV / p.H;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int token = warp + i * kC.prepare_warps;
      if (token >= count) continue;
      const int64_t at = item.first + tile_first + token;
      Io::qk(p, Io::row(p, p.q, item.batch, at, item.head / group, p.qkv), lane * kChannels, q[i]);
      Io::qk(p, Io::row(p, p.k, item.batch, at, item.head / group, p.qkv), lane * kChannels, k[i]);
      Io::gate(p, Io::gate_row(p, item.batch, at, item.head), lane * kChannels, g[i]);
      const void* v_row = Io::row(p, p.v, item.batch, at, item.head, p.qkv);
#pragma unroll
      for (int c = 0; c < kValues; ++c)
        v[i][c] = c * 32 + lane < kC.columns() ? Io::v(p, v_row, item.split * kC.columns() + c * 32 + lane) : 0.0f;
      beta[i] = read_element(p.beta_type, p.beta.data, item.batch * p.beta.batch + at * p.beta.token + item.head * p.beta.head);
    }
  }

  __device__ __forceinline__ void store(const Params& p, float* stage, int count, int warp, int lane, float rate, const float (&bias)[kChannels]) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int token = warp + i * kC.prepare_warps;
      if (token >= count) continue;
      float sums[3] = {0, 0, 0};  // q.q, k.k, q.k
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sums[0] += q[i][c] * q[i][c], sums[1] += k[i][c] * k[i][c], sums[2] += q[i][c] * k[i][c];
      warp_sum(sums);
      constexpr float kEps = 1e-6f;
      const float q_scale = p.scale * (p.qk_l2norm ? rsqrtf(sums[0] + kEps) : 1.0f);
      const float k_scale = p.qk_l2norm ? rsqrtf(sums[1] + kEps) : 1.0f;
      float kd[kChannels], qd[kChannels], kn[kChannels], d[kChannels];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        d[c] = decay_of(p, g[i][c] + bias[c], rate);
        kn[c] = k[i][c] * k_scale;
        kd[c] = kn[c] * d[c];
        qd[c] = q[i][c] * q_scale * d[c];
      }
      float* s = stage + token * kC.token_floats();
      store_shared(s + lane * kChannels, kd);
      store_shared(s + kC.dim + lane * kChannels, qd);
      store_shared(s + 2 * kC.dim + lane * kChannels, kn);
      store_shared(s + 3 * kC.dim + lane * kChannels, d);
#pragma unroll
      for (int c = 0; c < kValues; ++c)
        if (c * 32 + lane < kC.columns()) s[4 * kC.dim + c * 32 + lane] = v[i][c];
      if (lane == 0) {
        float b = beta[i];
        if (p.beta_is_logits) b = __frcp_rn(1.0f + exp2_fast(-kLog2E * b));
        if (p.beta_doubled) b *= 2.0f;
        float* scalars = s + 4 * kC.dim + kC.columns();
        scalars[0] = b, scalars[1] = sums[2] * q_scale * k_scale;
      }
    }
  }
};

}  // namespace hyla::kda::sm80_recurrent
