// Prepare warps: raw q, k, g, v, beta of a group of tokens -> fp32 operands in shared memory. A warp takes whole groups.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>
#include <cstdint>
#include <type_traits>

#include "config.h"
#include "item.cuh"

namespace hyla::kda::sm80_recurrent {

constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

__device__ __forceinline__ float read_element(Element type, const void* data, int64_t at) {
  switch (type) {
    case Element::kBf16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
    case Element::kFp16:
      return __half2float(static_cast<const __half*>(data)[at]);
    default:
      return static_cast<const float*>(data)[at];
  }
}
__device__ __forceinline__ int bytes_of(Element type) { return type == Element::kFp32 ? 4 : 2; }

// Rows of one sequence and head: byte address of its first token, bytes from token to token.
struct Tokens {
  const char* first;
  int64_t step;
  __device__ __forceinline__ const void* at(int token) const { return first + token * step; }
};
__device__ __forceinline__ Tokens tokens_of(const Rows& r, int64_t batch, int64_t first, int head, int channel, int size) {
  return {static_cast<const char*>(r.data) + (batch * r.batch + first * r.token + head * r.head + channel) * size, r.token * size};
}

// How rows are read. Values stay as loaded (Raw) until they are needed, so that nothing waits for memory early.
// Packed: bf16 q, k, v and a known gate type with 16-byte aligned rows, beta bf16 or fp32. Any: element by element, types at run time.
template <class G>
struct Packed {
  template <int N>
  struct Bf16Raw {
    uint32_t words[(N + 1) / 2];
    __device__ __forceinline__ void load(const Params&, const void* row) {
      if constexpr (N == 4) {
        const uint2 w = __ldg(static_cast<const uint2*>(row));
        words[0] = w.x, words[1] = w.y;
      } else if constexpr (N == 2) {
        words[0] = __ldg(static_cast<const uint32_t*>(row));
      } else {
        words[0] = __ldg(static_cast<const uint16_t*>(row));
      }
    }
    __device__ __forceinline__ void unpack(const Params&, float* x) const {
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
    }
  };
  template <int N>
  struct Fp32Raw {
    float values[N];
    __device__ __forceinline__ void load(const Params&, const void* row) {
      if constexpr (N == 4) {
        const float4 w = __ldg(static_cast<const float4*>(row));
        values[0] = w.x, values[1] = w.y, values[2] = w.z, values[3] = w.w;
      } else if constexpr (N == 2) {
        const float2 w = __ldg(static_cast<const float2*>(row));
        values[0] = w.x, values[1] = w.y;
      } else {
        values[0] = __ldg(static_cast<const float*>(row));
      }
    }
    __device__ __forceinline__ void unpack(const Params&, float* x) const {
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = values[i];
    }
  };
  struct BetaRaw {
    uint32_t bits;
    __device__ __forceinline__ void load(const Params& p, const void* row) {
      if (p.beta_type == Element::kFp32) bits = __ldg(static_cast<const uint32_t*>(row));
      else bits = __ldg(static_cast<const uint16_t*>(row));
    }
    __device__ __forceinline__ float value(const Params& p) const { return __uint_as_float(p.beta_type == Element::kFp32 ? bits : bits << 16); }
  };
  template <int N>
  using QkvRaw = Bf16Raw<N>;
  template <int N>
  using GateRaw = std::conditional_t<sizeof(G) == 2, Bf16Raw<N>, Fp32Raw<N>>;
  static __device__ __forceinline__ int qkv_size(const Params&) { return 2; }
  static __device__ __forceinline__ int gate_size(const Params&) { return sizeof(G); }
};

struct Any {
  template <int N, Element Params::*kType>
  struct Raw {
    float values[N];
    __device__ __forceinline__ void load(const Params& p, const void* row) {
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] = read_element(p.*kType, row, i);
    }
    __device__ __forceinline__ void unpack(const Params&, float* x) const {
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = values[i];
    }
  };
  struct BetaRaw {
    float read;
    __device__ __forceinline__ void load(const Params& p, const void* row) { read = read_element(p.beta_type, row, 0); }
    __device__ __forceinline__ float value(const Params&) const { return read; }
  };
  template <int N>
  using QkvRaw = Raw<N, &Params::qkv>;
  template <int N>
  using GateRaw = Raw<N, &Params::gate_type>;
  static __device__ __forceinline__ int qkv_size(const Params& p) { return bytes_of(p.qkv); }
  static __device__ __forceinline__ int gate_size(const Params& p) { return bytes_of(p.gate_type); }
};

__device__ __forceinline__ float sigmoid(float x) {
  float r;  // one rounding more than a division, and no branch
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + exp2_fast(-kLog2E * x)));
  return r;
}
// log(1 + e^x) = max(x, 0) + log1p(e), e = e^-|x|; log1p(e) = 2 atanh(e / (2 + e)) by its series, whose argument is at most 1/3.
__device__ __forceinline__ float softplus(float x) {
  const float e = exp2_fast(-kLog2E * fabsf(x));
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(2.0f + e));
  const float s = e * r, s2 = s * s;
  const float series = ((((s2 * (1.0f / 11) + 1.0f / 9) * s2 + 1.0f / 7) * s2 + 1.0f / 5) * s2 + 1.0f / 3) * s2 + 1.0f;
  return fmaxf(x, 0.0f) + 2.0f * s * series;
}

// Beta of a token, with what the flags ask for applied.
__device__ __forceinline__ float beta_of(const Params& p, float b) {
  if (p.beta_is_logits) b = sigmoid(b);
  return p.beta_doubled ? 2.0f * b : b;
}

// Raw gates with their bias -> e^g, in place. `rate` is exp(A_log), at most FLT_MAX, so that a gate of 0 stays 0. The kind is tested once:
// a branch an element would leave one element in flight at a time.
template <int N>
__device__ __forceinline__ void decays(const Params& p, float (&x)[N], float rate) {
  if (p.gate == kGateBounded) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = exp2_fast(p.lower_bound * kLog2E * sigmoid(rate * x[i]));
  } else if (p.gate == kGateUnbounded) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = exp2_fast(-kLog2E * (rate * softplus(x[i])));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = exp2_fast(kLog2E * x[i]);
  }
}

template <int N>
__device__ __forceinline__ void store_shared(float* dst, const float (&x)[N]) {
  if constexpr (N == 4) *reinterpret_cast<float4*>(dst) = make_float4(x[0], x[1], x[2], x[3]);
  else *reinterpret_cast<float2*>(dst) = make_float2(x[0], x[1]);
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

// A group of tokens as loaded; each lane has kChannels of the dim channels.
template <class T>
struct RawGroup {
  static constexpr Config kC = T::kConfig;
  static constexpr int kChannels = kC.dim / 32;
  static constexpr int kValues = (kC.columns() + 31) / 32;  // a lane's columns of v
  using Io = typename T::Io;
  typename Io::template QkvRaw<kChannels> q[kGroup], k[kGroup];
  typename Io::template GateRaw<kChannels> g[kGroup];
  typename Io::template QkvRaw<1> v[kGroup][kValues];
  typename Io::BetaRaw beta;

  // The tokens of this warp's sequence and head, at this lane's channels.
  struct Source {
    Tokens q, k, g, v, beta;
    __device__ __forceinline__ Source(const Params& p, const Item& item, int lane) {
      const int qk_head = item.head / (p.HV / p.H), column = item.split * kC.columns() + min(lane, kC.columns() - 1);
      q = tokens_of(p.q, item.batch, item.first, qk_head, lane * kChannels, Io::qkv_size(p));
      k = tokens_of(p.k, item.batch, item.first, qk_head, lane * kChannels, Io::qkv_size(p));
      g = tokens_of(p.g, item.batch, item.first, item.head, lane * kChannels, Io::gate_size(p));
      v = tokens_of(p.v, item.batch, item.first, item.head, column, Io::qkv_size(p));
      beta = tokens_of(p.beta, item.batch, item.first, item.head, 0, bytes_of(p.beta_type));
    }
  };

  // Tokens past the end repeat the last one, so that no branch keeps a load from being in flight with the others; Group drops them.
  __device__ __forceinline__ void load(const Params& p, const Source& source, int first, int count, int lane) {
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      const int token = first + min(j, count - 1);
      q[j].load(p, source.q.at(token));
      k[j].load(p, source.k.at(token));
      g[j].load(p, source.g.at(token));
      const char* row = static_cast<const char*>(source.v.at(token));
#pragma unroll
      for (int c = 0; c < kValues; ++c) v[j][c].load(p, row + c * 32 * Io::qkv_size(p));
    }
    beta.load(p, source.beta.at(first + min(lane, count - 1)));
  }
};

// A group's operands in a prepare warp's registers. With D_j the decay up to and including token j of the group:
//   k_j D_j, q_j D_j          against the state before the group
//   k_j D_last / D_j          into the state after it (as a product of the decays in between: nothing overflows, nothing is divided)
//   A_kk[i][j] = k_i . k_j D_i / D_j (j < i),  A_qk[i][j] = q_i . k_j D_i / D_j (j <= i)
template <class T>
struct Group {
  static constexpr Config kC = T::kConfig;
  static constexpr int kChannels = kC.dim / 32, kValues = RawGroup<T>::kValues;
  // Sums over the channels, one a lane: q.q [4], k.k [4], A_qk [10], A_kk [6].
  static constexpr int kNormQ = 0, kNormK = kGroup, kAqk = 2 * kGroup, kAkk = kAqk + kGroup * (kGroup + 1) / 2;
  float q[kGroup][kChannels], k[kGroup][kChannels], end[kGroup][kChannels], decay[kChannels], v[kGroup][kValues], product, beta;

  // Where a lane's sum goes: lanes 8 to 23 into the stage, scaled by the norms of two lanes.
  struct Place {
    int offset = -1, row = 0, column = 0;
    __device__ __forceinline__ explicit Place(int lane) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
#pragma unroll
        for (int j = 0; j <= i; ++j) {
          if (lane == kAqk + i * (i + 1) / 2 + j) offset = Stage<T>::kAqk + i * kGroup + j, row = kNormQ + i, column = kNormK + j;
          if (j < i && lane == kAkk + i * (i - 1) / 2 + j) offset = Stage<T>::kAkk + i * kGroup + j, row = kNormK + i, column = kNormK + j;
        }
    }
  };

  // Takes `raw`, starts the loads of the next group into it, and works meanwhile.
  template <class LoadNext>
  __device__ __forceinline__ void prepare(const Params& p, RawGroup<T>& raw, int count, int lane, float rate, const float (&bias)[kChannels],
                                          const Place& place, LoadNext&& load_next) {
    float g[kGroup * kChannels];
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      raw.q[j].unpack(p, q[j]);
      raw.k[j].unpack(p, k[j]);
      raw.g[j].unpack(p, g + j * kChannels);
#pragma unroll
      for (int c = 0; c < kValues; ++c) raw.v[j][c].unpack(p, &v[j][c]);
    }
    beta = raw.beta.value(p);
    load_next();
    beta = beta_of(p, beta);
#pragma unroll
    for (int i = 0; i < kGroup * kChannels; ++i) g[i] += bias[i % kChannels];
    decays(p, g, rate);
    if (count < kGroup) {  // a token past the end changes nothing
#pragma unroll
      for (int j = 1; j < kGroup; ++j) {
        if (j < count) continue;
#pragma unroll
        for (int c = 0; c < kChannels; ++c) g[j * kChannels + c] = 1.0f, q[j][c] = k[j][c] = 0.0f;
#pragma unroll
        for (int c = 0; c < kValues; ++c) v[j][c] = 0.0f;
      }
      if (lane >= count) beta = 0.0f;
    }
    float sums[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) sums[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < kGroup; ++j)
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        sums[kNormQ + j] += q[j][c] * q[j][c];
        sums[kNormK + j] += k[j][c] * k[j][c];
        float t = k[j][c];
        sums[kAqk + j * (j + 1) / 2 + j] += q[j][c] * t;
#pragma unroll
        for (int i = j + 1; i < kGroup; ++i) {
          t *= g[i * kChannels + c];
          sums[kAqk + i * (i + 1) / 2 + j] += q[i][c] * t;
          sums[kAkk + i * (i - 1) / 2 + j] += k[i][c] * t;
        }
        end[j][c] = t;
      }
    scatter_sum<32>(sums, lane);

    // Lanes 0..7 now hold the norms; every other lane scales its product by two of them.
    constexpr float kEps = 1e-6f;
    const float factor = (p.qk_l2norm ? rsqrtf(sums[0] + kEps) : 1.0f) * (lane < kNormK ? p.scale : 1.0f);
    product = sums[0] * __shfl_sync(~0u, factor, place.row) * __shfl_sync(~0u, factor, place.column);
#pragma unroll
    for (int c = 0; c < kChannels; ++c) decay[c] = 1.0f;
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      const float q_scale = __shfl_sync(~0u, factor, kNormQ + j), k_scale = __shfl_sync(~0u, factor, kNormK + j);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        decay[c] *= g[j * kChannels + c];
        q[j][c] *= q_scale * decay[c];
        k[j][c] *= k_scale * decay[c];
        end[j][c] *= k_scale;
      }
    }
  }

  __device__ __forceinline__ void store(float* stage, int lane, const Place& place) const {
    using S = Stage<T>;
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      store_shared(stage + S::kK + j * kC.dim + lane * kChannels, k[j]);
      store_shared(stage + S::kQ + j * kC.dim + lane * kChannels, q[j]);
      store_shared(stage + S::kKEnd + j * kC.dim + lane * kChannels, end[j]);
#pragma unroll
      for (int c = 0; c < kValues; ++c)
        if (c * 32 + lane < kC.columns()) stage[S::kV + j * kC.columns() + c * 32 + lane] = v[j][c];
    }
    store_shared(stage + S::kDecay + lane * kChannels, decay);
    if (place.offset >= 0) stage[place.offset] = product;
    if (lane < kGroup) stage[S::kBeta + lane] = beta;
  }
};

}  // namespace hyla::kda::sm80_recurrent
