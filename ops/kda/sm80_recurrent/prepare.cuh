// Prepare warps: raw q, k, g, v, beta of a group of tokens -> fp32 operands in shared memory. A warp takes whole groups.
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
  static __device__ __forceinline__ float gate1(const Params&, const void* row, int at) { return static_cast<float>(static_cast<const G*>(row)[at]); }

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
  static __device__ __forceinline__ float gate1(const Params& p, const void* row, int at) { return read_element(p.gate_type, row, at); }
};

// Beta of a token, with what the flags ask for applied.
__device__ __forceinline__ float beta_of(const Params& p, int64_t batch, int64_t token, int head) {
  float b = read_element(p.beta_type, p.beta.data, batch * p.beta.batch + token * p.beta.token + head * p.beta.head);
  if (p.beta_is_logits) b = __frcp_rn(1.0f + exp2_fast(-kLog2E * b));
  return p.beta_doubled ? 2.0f * b : b;
}

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
__device__ __forceinline__ void store_shared(float* dst, const float (&x)[N]) {
  if constexpr (N == 4)
    *reinterpret_cast<float4*>(dst) = make_float4(x[0], x[1], x[2], x[3]);
  else
    *reinterpret_cast<float2*>(dst) = make_float2(x[0], x[1]);
}

// Sums N values over groups of `kLanes` neighbouring threads. While a thread holds several values, each step halves their number: it keeps
// one half and sends the other. Afterwards lane l holds in x[0 .. N / kLanes) the sums of values l * N / kLanes and on; with more lanes than
// values, kLanes / N neighbours hold the same.
template <int kLanes, int N>
__device__ __forceinline__ void scatter_sum(float (&x)[N], int lane) {
  int held = N;
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    if (held > 1) {
      held /= 2;
      const bool upper = lane & mask;
#pragma unroll
      for (int i = 0; i < N / 2; ++i) {
        if (i >= held) break;
        const float send = upper ? x[i] : x[i + held], keep = upper ? x[i + held] : x[i];
        x[i] = keep + __shfl_xor_sync(~0u, send, mask);
      }
    } else {
      x[0] += __shfl_xor_sync(~0u, x[0], mask);
    }
  }
}

// Where things lie in a stage, in floats.
template <class T>
struct Stage {
  static constexpr Config kC = T::kConfig;
  static constexpr int kK = 0, kQ = kGroup * kC.dim, kKEnd = 2 * kGroup * kC.dim, kDecay = 3 * kGroup * kC.dim, kV = kDecay + kC.dim;
  static constexpr int kAqk = kV + kGroup * kC.columns(), kAkk = kAqk + kGroup * kGroup, kBeta = kAkk + kGroup * kGroup;
  static_assert(kBeta + kGroup == kC.stage_floats());
};

// One group of tokens in a prepare warp's registers; each lane has kChannels of the dim channels. With D_j the decay up to and including
// token j of the group:
//   k_j D_j, q_j D_j          against the state before the group
//   k_j D_last / D_j          into the state after it (as a product of the decays in between: nothing overflows, nothing is divided)
//   A_kk[i][j] = k_i . k_j D_i / D_j (j < i),  A_qk[i][j] = q_i . k_j D_i / D_j (j <= i)
template <class T>
struct Group {
  static constexpr Config kC = T::kConfig;
  static constexpr int kChannels = kC.dim / 32;
  static constexpr int kValues = (kC.columns() + 31) / 32;  // a lane's columns of v
  float q[kGroup][kChannels], k[kGroup][kChannels], g[kGroup][kChannels], v[kGroup][kValues], beta;

  __device__ __forceinline__ void load(const Params& p, const Item& item, int first, int count, int lane) {
    using Io = typename T::Io;
    const int qk_head = item.head / (p.HV / p.H);
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      if (j >= count) {  // a token that changes nothing
#pragma unroll
        for (int c = 0; c < kChannels; ++c) q[j][c] = k[j][c] = g[j][c] = 0.0f;
#pragma unroll
        for (int c = 0; c < kValues; ++c) v[j][c] = 0.0f;
        continue;
      }
      const int64_t at = item.first + first + j;
      Io::qk(p, Io::row(p, p.q, item.batch, at, qk_head, p.qkv), lane * kChannels, q[j]);
      Io::qk(p, Io::row(p, p.k, item.batch, at, qk_head, p.qkv), lane * kChannels, k[j]);
      Io::gate(p, Io::gate_row(p, item.batch, at, item.head), lane * kChannels, g[j]);
      const void* v_row = Io::row(p, p.v, item.batch, at, item.head, p.qkv);
#pragma unroll
      for (int c = 0; c < kValues; ++c)
        v[j][c] = c * 32 + lane < kC.columns() ? Io::v(p, v_row, item.split * kC.columns() + c * 32 + lane) : 0.0f;
    }
    beta = 0.0f;
    if (lane < count) beta = beta_of(p, item.batch, item.first + first + lane, item.head);
  }

  __device__ __forceinline__ void store(const Params& p, float* stage, int count, int lane, float rate, const float (&bias)[kChannels]) {
    using S = Stage<T>;
    // Sums: q.q [4], k.k [4], A_qk [10], A_kk [6], in this order.
    constexpr int kNormQ = 0, kNormK = kGroup, kAqk = 2 * kGroup, kAkk = kAqk + kGroup * (kGroup + 1) / 2;
    float sums[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) sums[i] = 0.0f;
    float decay[kGroup][kChannels], end[kGroup][kChannels];
#pragma unroll
    for (int j = 0; j < kGroup; ++j)
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        decay[j][c] = j < count ? decay_of(p, g[j][c] + bias[c], rate) : 1.0f;
        sums[kNormQ + j] += q[j][c] * q[j][c];
        sums[kNormK + j] += k[j][c] * k[j][c];
      }
#pragma unroll
    for (int j = 0; j < kGroup; ++j)
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        float t = k[j][c];
        sums[kAqk + j * (j + 1) / 2 + j] += q[j][c] * t;
#pragma unroll
        for (int i = j + 1; i < kGroup; ++i) {
          t *= decay[i][c];
          sums[kAqk + i * (i + 1) / 2 + j] += q[i][c] * t;
          sums[kAkk + i * (i - 1) / 2 + j] += k[i][c] * t;
        }
        end[j][c] = t;
      }
    scatter_sum<32>(sums, lane);

    // Lanes 0..7 now hold the norms; every other lane scales its product by two of them.
    constexpr float kEps = 1e-6f;
    const float factor = (p.qk_l2norm ? rsqrtf(sums[0] + kEps) : 1.0f) * (lane < kNormK ? p.scale : 1.0f);
    float q_scale[kGroup], k_scale[kGroup];
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      q_scale[j] = __shfl_sync(~0u, factor, kNormQ + j);
      k_scale[j] = __shfl_sync(~0u, factor, kNormK + j);
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
#pragma unroll
      for (int j = 0; j < kGroup; ++j) {
        if (j <= i && lane == kAqk + i * (i + 1) / 2 + j) stage[S::kAqk + i * kGroup + j] = sums[0] * q_scale[i] * k_scale[j];
        if (j < i && lane == kAkk + i * (i - 1) / 2 + j) stage[S::kAkk + i * kGroup + j] = sums[0] * k_scale[i] * k_scale[j];
      }
    if (lane < kGroup) stage[S::kBeta + lane] = lane < count ? beta : 0.0f;

    float all[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) all[c] = 1.0f;
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      float kd[kChannels], qd[kChannels], ke[kChannels];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        all[c] *= decay[j][c];
        kd[c] = k[j][c] * k_scale[j] * all[c];
        qd[c] = q[j][c] * q_scale[j] * all[c];
        ke[c] = end[j][c] * k_scale[j];
      }
      store_shared(stage + S::kK + j * kC.dim + lane * kChannels, kd);
      store_shared(stage + S::kQ + j * kC.dim + lane * kChannels, qd);
      store_shared(stage + S::kKEnd + j * kC.dim + lane * kChannels, ke);
#pragma unroll
      for (int c = 0; c < kValues; ++c)
        if (c * 32 + lane < kC.columns()) stage[S::kV + j * kC.columns() + c * 32 + lane] = v[j][c];
    }
    store_shared(stage + S::kDecay + lane * kChannels, all);
  }
};

}  // namespace hyla::kda::sm80_recurrent
