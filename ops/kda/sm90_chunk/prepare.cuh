// Prepare: everything of a chunk that does not need the state. One item is a chunk of 64 tokens of one value head; blocks walk over items.
// Eight warps: two for each 16-token block I, 64 channels each (p). Lanes own positions of mma fragments, so that q, k, the diagonal
// blocks and the row operands of A stay in registers.
#pragma once
#include "config.h"
#include "cuda/device/copy.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/matrix.cuh"
#include "launch.h"
#include "prepare_smem.cuh"
#include "sequence.cuh"

namespace hyla::kda::sm90_chunk {

using namespace hyla::dev;
using Lay = PrepareSmem;

#ifndef HYLA_KDA_OPERAND
#define HYLA_KDA_OPERAND Bf16
#endif
using Operand = HYLA_KDA_OPERAND;  // type of the tensor-core operands that meet the state

inline constexpr float kLog2e = 1.44269504f;
inline constexpr float kGateScale = 1024.0f;  // gates enter the cumulative sum as two fp16 parts of 2^10 g

struct ItemMeta {
  int64_t record;  // index of the record
  int64_t batch, token;  // its first row
  int32_t head, valid;   // valid tokens, 1..64
};

__device__ __forceinline__ float bf16_low(uint32_t r) { return __uint_as_float(r << 16); }
__device__ __forceinline__ float bf16_high(uint32_t r) { return __uint_as_float(r & 0xffff0000u); }

// Each phase derives its lane constants again: kept across the phases they would cost registers.
struct Lane {
  int l, warp, block, part, g, t;
  uint32_t row;  // row of an 8x8 matrix pair this lane addresses
  __device__ __forceinline__ Lane() {
    int tid = threadIdx.x;
    asm volatile("" : "+r"(tid));
    l = tid & 31, warp = tid >> 5, block = warp >> 1, part = warp & 1, g = l >> 2, t = l & 3;
    row = (l & 7) + 8 * ((l >> 3) & 1);
  }
  // Address of this lane for ldmatrix x4 of 16 tokens x 16 channels (step ks of the warp's 64 channels).
  __device__ __forceinline__ uint32_t tile(int ks) const { return part * 8192 + (16 * block + row) * 128 + (((2 * ks + (l >> 4)) ^ (l & 7)) << 4); }
  // The same for x2: 16 tokens x 8 channels.
  __device__ __forceinline__ uint32_t half_tile(int nt) const { return part * 8192 + (16 * block + row) * 128 + ((nt ^ (l & 7)) << 4); }
};

// The first item at or after `item` (in steps of the grid) that holds tokens; `items` when there is none.
__device__ __forceinline__ int64_t next_item(const KernelParams& p, int64_t item, int64_t items, ItemMeta& m) {
  for (; item < items; item += gridDim.x) {
    const int slot = int(item / p.heads);
    const int n = find_sequence(p, slot);
    const Sequence s = sequence_at(p, n);
    const int64_t first = (slot - s.slot) * kChunk;
    if (first < 0 || first >= s.length) continue;
    m.record = item;
    m.batch = s.batch;
    m.token = s.start + first;
    m.head = int(item - int64_t(slot) * p.heads);
    m.valid = int(s.length - first < kChunk ? s.length - first : kChunk);
    return item;
  }
  return items;
}

// Starts the copies of an item's inputs; rows past the tail read nothing and become zero. Returns this thread's raw beta.
template <bool kGateFp32>
__device__ __forceinline__ float load_inputs(const KernelParams& p, uint32_t sb, uint8_t* smem, const ItemMeta& m) {
  int tid = threadIdx.x;
  asm volatile("" : "+r"(tid));
  const int row = tid >> 4, col = tid & 15;
  const uint32_t dst = sb + ((col & 8) ? 8192u : 0u) + row * 128 + (((col & 7) ^ (row & 7)) << 4);
  const int head = m.head / p.group;
#pragma unroll
  for (int x = 0; x < 3; ++x) {
    const Strided& s = x == 0 ? p.k : x == 1 ? p.q : p.g;
    if (x == 2 && kGateFp32) continue;
    const char* src = static_cast<const char*>(s.data) + (m.batch * s.b + (m.token + row) * s.t + (x == 2 ? m.head : head) * s.h) * 2 + col * 16;
#pragma unroll
    for (int r = 0; r < kChunk; r += 16) {
      const bool valid = row + r < m.valid;
      cp_async16_zfill(dst + x * 16384 + r * 128, valid ? src + r * s.t * 2 : static_cast<const char*>(s.data), valid);
    }
  }
  if (p.dt_bias != nullptr && tid < kDim) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(sb + Lay::kBias + tid * 4), "l"(p.dt_bias + m.head * p.dt_bias_head + tid) : "memory");
  }
  cp_async_commit();
  if (tid == 0) *reinterpret_cast<ItemMeta*>(smem + Lay::kMeta) = m;
  float beta = 0;
  if (tid < m.valid) {
    const int64_t at = m.batch * p.beta.b + (m.token + tid) * p.beta.t + m.head * p.beta.h;
    if (p.beta_fp32) {
      beta = static_cast<const float*>(p.beta.data)[at];
    } else {
      beta = __uint_as_float(uint32_t(static_cast<const uint16_t*>(p.beta.data)[at]) << 16);
    }
  }
  return beta;
}

// log2(1 + 2^x), accurate relative to itself for very negative x.
__device__ __forceinline__ float softplus2(float x) {
  const float e = exp2_approx(fminf(x, 64.0f));
  float l;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(l) : "f"(1.0f + e));
  const float series = kLog2e * e * fmaf(e, fmaf(e, fmaf(e, -0.25f, 0.33333333f), -0.5f), 1.0f);
  return x > 40.0f ? x : e < 0.015625f ? series : l;
}

// Two log decays (base 2, times kGateScale) from raw gates. `a`: exp(A_log) in the form the kind needs, `b`: a * bias.
template <Gate kGate>
__device__ __forceinline__ void gate_pair(float x0, float x1, float a, float b, float bound, float& g0, float& g1) {
  constexpr float kFloor = kLogDecayFloor * kLog2e * kGateScale;
  if (kGate == Gate::kBounded) {  // one reciprocal for two sigmoids
    const float d0 = 1.f + exp2_approx(fminf(fmaf(x0, a, b), 60.f)), d1 = 1.f + exp2_approx(fminf(fmaf(x1, a, b), 60.f));
    const float r = rcp_approx(d0 * d1) * bound;
    g0 = r * d1, g1 = r * d0;
  } else if (kGate == Gate::kUnbounded) {
    g0 = fmaxf(a * softplus2((x0 + b) * kLog2e) * -kGateScale, kFloor);
    g1 = fmaxf(a * softplus2((x1 + b) * kLog2e) * -kGateScale, kFloor);
  } else {
    g0 = fmaxf(x0 * (kLog2e * kGateScale), kFloor);
    g1 = fmaxf(x1 * (kLog2e * kGateScale), kFloor);
  }
}

// Sums of squares of this warp's half rows of k and q.
__device__ __forceinline__ void sum_squares(uint32_t sb, uint8_t* smem) {
  const Lane w;
  float k0 = 0, k1 = 0, q0 = 0, q1 = 0;
  auto add = [](float& s, uint32_t r) { s = fmaf(bf16_low(r), bf16_low(r), s), s = fmaf(bf16_high(r), bf16_high(r), s); };
#pragma unroll
  for (int ks = 0; ks < 4; ++ks) {
    uint32_t k[4], q[4];
    ldmatrix_x4(k, sb + w.tile(ks)), ldmatrix_x4(q, sb + 16384 + w.tile(ks));
#pragma unroll
    for (int e = 0; e < 4; e += 2) add(k0, k[e]), add(k1, k[e + 1]), add(q0, q[e]), add(q1, q[e + 1]);
  }
#pragma unroll
  for (int o = 1; o < 4; o <<= 1) {
    k0 += __shfl_xor_sync(0xffffffffu, k0, o), k1 += __shfl_xor_sync(0xffffffffu, k1, o);
    q0 += __shfl_xor_sync(0xffffffffu, q0, o), q1 += __shfl_xor_sync(0xffffffffu, q1, o);
  }
  float* norms = reinterpret_cast<float*>(smem + Lay::kNorms);
  if (w.t == 0) {
    *reinterpret_cast<float2*>(norms + ((16 * w.block + w.g) * 2 + w.part) * 2) = make_float2(k0, q0);
    *reinterpret_cast<float2*>(norms + ((16 * w.block + w.g + 8) * 2 + w.part) * 2) = make_float2(k1, q1);
  }
}

// Gates and their cumulative sum within the 16-token block, relative to its middle (after token 7), by the tensor core: a triangle of
// +-2^-10 times the gates. The product also turns the channel-major fragments into the token-major ones that q and k have.
template <Gate kGate, bool kGateFp32>
__device__ __forceinline__ void cumulate_gates(const KernelParams& p, uint32_t sb, uint8_t* smem, float (&c)[8][4]) {
  const Lane w;
  const int g = w.g, t = w.t;
  const ItemMeta& m = *reinterpret_cast<const ItemMeta*>(smem + Lay::kMeta);
  const int valid = m.valid - 16 * w.block;  // of this block
  uint32_t tri[4], tot[4];
  tri[0] = (2 * t > g ? 0x9400u : 0u) | (2 * t + 1 > g ? 0x94000000u : 0u);
  tri[1] = tri[2] = 0;
  tri[3] = (2 * t <= g ? 0x1400u : 0u) | (2 * t + 1 <= g ? 0x14000000u : 0u);
  tot[0] = tot[3] = 0x14001400u, tot[1] = tot[2] = 0;
  const float ea = p.a_log == nullptr ? 1.0f : exp2_approx(fminf(kLog2e * p.a_log[m.head * p.a_log_stride], 100.0f));
  const float a = kGate == Gate::kBounded ? -kLog2e * ea : ea;
  const float bound = p.lower_bound * (kLog2e * kGateScale);
  float4* totals = reinterpret_cast<float4*>(smem + Lay::kTotals);
  const float* g32 = nullptr;
  if (kGateFp32) g32 = static_cast<const float*>(p.g.data) + m.batch * p.g.b + (m.token + 16 * w.block) * p.g.t + m.head * p.g.h;
#pragma unroll
  for (int ks = 0; ks < 4; ++ks) {
    uint32_t raw[4], hi[4], lo[4];
    if (!kGateFp32) ldmatrix_x4_trans(raw, sb + 32768 + w.tile(ks));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int channel = w.part * 64 + 16 * ks + 8 * (e >> 1) + g, token = 8 * (e & 1) + 2 * t;
      float x0, x1, b = 0;
      if (kGateFp32) {
        x0 = token < valid ? g32[token * p.g.t + channel] : 0.f;
        x1 = token + 1 < valid ? g32[(token + 1) * p.g.t + channel] : 0.f;
      } else {
        x0 = bf16_low(raw[e]), x1 = bf16_high(raw[e]);
      }
      if (kGate != Gate::kGiven && p.dt_bias != nullptr) b = *reinterpret_cast<const float*>(smem + Lay::kBias + channel * 4);
      if (kGate == Gate::kBounded) b *= a;
      float g0, g1;
      gate_pair<kGate>(x0, x1, a, b, bound, g0, g1);
      if (token >= valid) g0 = 0;  // past the tail nothing decays
      if (token + 1 >= valid) g1 = 0;
      hi[e] = Fp16::pack(g0, g1);
      float h0, h1;
      Fp16::unpack(hi[e], h0, h1);
      lo[e] = Fp16::pack(g0 - h0, g1 - h1);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int nt = 2 * ks + h;
      float u[4] = {0, 0, 0, 0};
      c[nt][0] = c[nt][1] = c[nt][2] = c[nt][3] = 0;
      mma_16x8x16<Fp16>(c[nt], tri, lo[2 * h], lo[2 * h + 1]), mma_16x8x16<Fp16>(c[nt], tri, hi[2 * h], hi[2 * h + 1]);
      mma_16x8x16<Fp16>(u, tot, lo[2 * h], lo[2 * h + 1]), mma_16x8x16<Fp16>(u, tot, hi[2 * h], hi[2 * h + 1]);
      if (g == nt) totals[(w.block * kDim + w.part * 64 + 8 * nt + 2 * t) / 2] = make_float4(u[0], u[2], u[1], u[3]);
    }
  }
}

// Per block and channel, from the blocks' totals: (e^G at the anchor, e^(G_C - anchor), e^(anchor - start), e^(end - anchor)).
__device__ __forceinline__ void block_factors(uint8_t* smem) {
  const Lane w;
  const float2* totals = reinterpret_cast<const float2*>(smem + Lay::kTotals);
  float4* factors = reinterpret_cast<float4*>(smem + Lay::kFactors) + w.block * kDim;
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const int ch = w.part * 64 + 32 * x + w.l;
    float before = 0, after = 0, cm = 0, u = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 v = totals[j * kDim + ch];
      if (j < w.block) before += v.x + v.y;
      if (j > w.block) after += v.x + v.y;
      if (j == w.block) cm = v.x, u = v.y;
    }
    const float up = exp2_approx(cm), down = exp2_approx(u);
    factors[ch] = make_float4(exp2_approx(before + cm), exp2_approx(after + u), up, down);
    if (w.block == 0) *reinterpret_cast<float*>(smem + Record::kDecay + ch * 4) = exp2_approx(before + after + cm + u);
    if (w.block == 1 || w.block == 2) *reinterpret_cast<float*>(smem + Lay::kSpans + (w.block - 1) * 512 + ch * 4) = up * down;
  }
}

struct RowScales {
  float k[2], kb[2], q[2];  // for rows g, g + 8: norm of k, the same times beta, norm of q times scale
};

__device__ __forceinline__ RowScales row_scales(const KernelParams& p, const uint8_t* smem) {
  const Lane w;
  const float* norms = reinterpret_cast<const float*>(smem + Lay::kNorms);
  RowScales s;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = 16 * w.block + w.g + 8 * r;
    const float4 n = *reinterpret_cast<const float4*>(norms + row * 4);
    s.k[r] = p.l2norm ? rsqrt_approx(n.x + n.z + 1e-6f) : 1.0f;
    s.q[r] = p.scale * (p.l2norm ? rsqrt_approx(n.y + n.w + 1e-6f) : 1.0f);
    s.kb[r] = s.k[r] * *reinterpret_cast<const float*>(smem + Record::kBeta + row * 4);
  }
  return s;
}

// ke, qe, kd over the inputs; diagonal blocks of A (k rows in dk, q rows in dq); operands of the blocks below the diagonal: rows of k or q
// kept in `rows` (the other warp of the pair gets the rest), columns to shared memory.
__device__ __forceinline__ void scale_and_diagonal(const KernelParams& p, uint32_t sb, uint8_t* smem, const float (&c)[8][4], float (&dk)[8],
                                                   float (&dq)[8], uint32_t (&rows)[4][4]) {
  const Lane w;
  const RowScales s = row_scales(p, smem);
  const float4* factors = reinterpret_cast<const float4*>(smem + Lay::kFactors) + w.block * kDim;
#pragma unroll
  for (int ks = 0; ks < 4; ++ks) {
    uint32_t ka[4], qa[4], kb[4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int nt = 2 * ks + h;
      const float* f = reinterpret_cast<const float*>(factors + w.part * 64 + 8 * nt + 2 * w.t);
      const uint32_t at = sb + w.half_tile(nt);
      uint32_t k[2], q[2];
      ldmatrix_x2(k, at), ldmatrix_x2(q, at + 16384);
      float kx[2][2], ky[2][2], qx[2][2];  // [row g, g + 8][channel]: beta k e^c, k e^-c, q e^c
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float k0 = bf16_low(k[r]), k1 = bf16_high(k[r]), q0 = bf16_low(q[r]) * s.q[r], q1 = bf16_high(q[r]) * s.q[r];
        const float c0 = c[nt][2 * r], c1 = c[nt][2 * r + 1];
        const float a0 = exp2_approx(c0), a1 = exp2_approx(c1), b0 = exp2_approx(-c0), b1 = exp2_approx(-c1);
        kx[r][0] = k0 * s.kb[r] * a0, kx[r][1] = k1 * s.kb[r] * a1;
        ky[r][0] = k0 * s.k[r] * b0, ky[r][1] = k1 * s.k[r] * b1;
        qx[r][0] = q0 * a0, qx[r][1] = q1 * a1;
      }
      {
        const float2 x = *reinterpret_cast<const float2*>(f), y = *reinterpret_cast<const float2*>(f + 4);
        uint32_t ke[2], qe[2], kd[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          ke[r] = Operand::pack(kx[r][0] * x.x, kx[r][1] * y.x);
          qe[r] = Operand::pack(qx[r][0] * x.x, qx[r][1] * y.x);
          kd[r] = Operand::pack(ky[r][0] * x.y, ky[r][1] * y.y);
        }
        stmatrix_x2(at, ke[0], ke[1]), stmatrix_x2(at + 16384, qe[0], qe[1]), stmatrix_x2(at + 32768, kd[0], kd[1]);
      }
      {
        const float2 x = *reinterpret_cast<const float2*>(f + 2), y = *reinterpret_cast<const float2*>(f + 6);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          ka[2 * h + r] = Operand::pack(kx[r][0] * x.x, kx[r][1] * y.x);
          qa[2 * h + r] = Operand::pack(qx[r][0] * x.x, qx[r][1] * y.x);
          kb[2 * r + h] = Operand::pack(ky[r][0] * x.y, ky[r][1] * y.y);
        }
      }
      // tf32: exponents reach +-115 here and products above the diagonal overflow; those are dropped by select. Index t <-> channel 2t, t + 4 <-> 2t + 1.
      const uint32_t a[4] = {round_tf32(kx[0][0]), round_tf32(kx[1][0]), round_tf32(kx[0][1]), round_tf32(kx[1][1])};
      const uint32_t b[4] = {round_tf32(qx[0][0]), round_tf32(qx[1][0]), round_tf32(qx[0][1]), round_tf32(qx[1][1])};
      const uint32_t y0 = round_tf32(ky[0][0]), y1 = round_tf32(ky[0][1]), y2 = round_tf32(ky[1][0]), y3 = round_tf32(ky[1][1]);
      mma_16x8x8_tf32(dk, a, y0, y1), mma_16x8x8_tf32(dk + 4, a, y2, y3);
      mma_16x8x8_tf32(dq, b, y0, y1), mma_16x8x8_tf32(dq + 4, b, y2, y3);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) rows[ks][e] = w.part == 0 ? ka[e] : qa[e];
    if (w.block > 0) {
      store_shared16(sb + Lay::kRows + ((((w.block - 1) * 2 + w.part) * 4 + ks) * 32 + w.l) * 16, w.part ? ka[0] : qa[0], w.part ? ka[1] : qa[1],
                     w.part ? ka[2] : qa[2], w.part ? ka[3] : qa[3]);
    }
    if (w.block < 3) store_shared16(sb + Lay::kColumns + (((w.block * 2 + w.part) * 4 + ks) * 32 + w.l) * 16, kb[0], kb[1], kb[2], kb[3]);
  }
}

// A column operand of block j, scaled by the decay over the blocks between j and i.
__device__ __forceinline__ uint4 column_operand(const uint8_t* smem, int i, int j, int part, int ks, const Lane& w) {
  uint4 b = *reinterpret_cast<const uint4*>(smem + Lay::kColumns + (((j * 2 + part) * 4 + ks) * 32 + w.l) * 16);
  if (i - j >= 2) {
    const int ch = part * 64 + 16 * ks + 2 * w.t;
    float2 f0 = make_float2(1, 1), f1 = make_float2(1, 1);
#pragma unroll
    for (int m = 1; m < 3; ++m) {
      if (m > j && m < i) {
        const float2 a = *reinterpret_cast<const float2*>(smem + Lay::kSpans + (m - 1) * 512 + ch * 4);
        const float2 c = *reinterpret_cast<const float2*>(smem + Lay::kSpans + (m - 1) * 512 + (ch + 8) * 4);
        f0.x *= a.x, f0.y *= a.y, f1.x *= c.x, f1.y *= c.y;
      }
    }
    auto scale = [](uint32_t& r, float2 f) {
      float x, y;
      Operand::unpack(r, x, y);
      r = Operand::pack(x * f.x, y * f.y);
    };
    scale(b.x, f0), scale(b.y, f1), scale(b.z, f0), scale(b.w, f1);
  }
  return b;
}

// Blocks below the diagonal and the sums of the diagonal ones: A_qk to its place in the record, A_kk (fp32 diagonal, fp16 below) for the
// inverse. Of a pair of warps the first finishes A_kk, the second A_qk.
__device__ __forceinline__ void off_diagonal(uint32_t sb, uint8_t* smem, float (&dk)[8], float (&dq)[8], uint32_t (&rows)[4][4]) {
  const Lane w;
  const int g = w.g, t = w.t, I = w.block;
  auto finish_q = [&](int j, const float* v, bool diagonal) {
    float x[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int row = g + ((e & 2) ? 8 : 0), col = 2 * t + (e & 1) + ((e & 4) ? 8 : 0);
      x[e] = (!diagonal || col <= row) ? v[e] : 0.f;
    }
    stmatrix_x4(sb + Record::kA + (16 * I + w.row) * 128 + (((2 * j + (w.l >> 4)) ^ (w.l & 7)) << 4), Operand::pack(x[0], x[1]),
                Operand::pack(x[2], x[3]), Operand::pack(x[4], x[5]), Operand::pack(x[6], x[7]));
  };
  auto finish_k = [&](int j, const float* v, bool diagonal) {
    if (diagonal) {
#pragma unroll
      for (int e = 0; e < 8; e += 2) {
        const int row = g + ((e & 2) ? 8 : 0), col = 2 * t + ((e & 4) ? 8 : 0);
        *reinterpret_cast<float2*>(smem + Lay::kDiagonal + (I * 256 + row * 16 + col) * 4) = make_float2(col < row ? v[e] : 0.f, col + 1 < row ? v[e + 1] : 0.f);
      }
    } else {
      *reinterpret_cast<uint4*>(smem + Lay::kBelow + ((I * (I - 1) / 2 + j) * 32 + w.l) * 16) =
          make_uint4(Fp16::pack(v[0], v[1]), Fp16::pack(v[4], v[5]), Fp16::pack(v[2], v[3]), Fp16::pack(v[6], v[7]));
    }
  };
  float4* sums = reinterpret_cast<float4*>(smem + Lay::kFactors + ((1 - w.part) * 4 + I) * 1024) + w.l;  // for the other warp of the pair
  sums[0] = w.part == 0 ? make_float4(dq[0], dq[1], dq[2], dq[3]) : make_float4(dk[0], dk[1], dk[2], dk[3]);
  sums[32] = w.part == 0 ? make_float4(dq[4], dq[5], dq[6], dq[7]) : make_float4(dk[4], dk[5], dk[6], dk[7]);
#pragma unroll
  for (int e = 0; e < 8; ++e) dk[e] = w.part == 0 ? dk[e] : dq[e];
  uint32_t other[4][4] = {};
  if (I > 0) {
#pragma unroll
    for (int ks = 0; ks < 4; ++ks) {
      const uint4 v = *reinterpret_cast<const uint4*>(smem + Lay::kRows + ((((I - 1) * 2 + (1 - w.part)) * 4 + ks) * 32 + w.l) * 16);
      other[ks][0] = v.x, other[ks][1] = v.y, other[ks][2] = v.z, other[ks][3] = v.w;
    }
  }
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    if (j < I) {
      float va[8] = {0, 0, 0, 0, 0, 0, 0, 0}, vb[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
      for (int ks = 0; ks < 4; ++ks) {
        const uint4 b = column_operand(smem, I, j, w.part, ks, w), c = column_operand(smem, I, j, 1 - w.part, ks, w);
        mma_16x8x16<Operand>(va, rows[ks], b.x, b.y), mma_16x8x16<Operand>(va + 4, rows[ks], b.z, b.w);
        mma_16x8x16<Operand>(vb, other[ks], c.x, c.y), mma_16x8x16<Operand>(vb + 4, other[ks], c.z, c.w);
      }
#pragma unroll
      for (int e = 0; e < 8; ++e) va[e] += vb[e];
      if (w.part == 0) finish_k(j, va, false);
      else finish_q(j, va, false);
    }
  }
  named_sync(1 + I, 64);
  const float4* in = reinterpret_cast<const float4*>(smem + Lay::kFactors + (w.part * 4 + I) * 1024) + w.l;
  const float4 x = in[0], y = in[32];
  const float v[8] = {dk[0] + x.x, dk[1] + x.y, dk[2] + x.z, dk[3] + x.w, dk[4] + y.x, dk[5] + y.y, dk[6] + y.z, dk[7] + y.w};
  if (w.part == 0) finish_k(I, v, true);
  else finish_q(I, v, true);
}

// T_II by row substitution in fp32 (doubling in half precision breaks on repeated keys), a warp a block; then block substitution.
__device__ __forceinline__ void invert(uint32_t sb, uint8_t* smem) {
  const Lane w;
  const int l = w.l, g = w.g, t = w.t, warp = w.warp, j = l & 15;
  const float* a_kk = reinterpret_cast<const float*>(smem + Lay::kDiagonal) + warp * 256;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {  // lane = column; lanes 16..31 the same again
    float a = i == j ? 1.f : 0.f;
#pragma unroll
    for (int m = 0; m < i; m += 4) {
      const float4 r = *reinterpret_cast<const float4*>(a_kk + i * 16 + m);
      a = fmaf(-r.x, x[m], a);
      if (m + 1 < i) a = fmaf(-r.y, x[m + 1], a);
      if (m + 2 < i) a = fmaf(-r.z, x[m + 2], a);
      if (m + 3 < i) a = fmaf(-r.w, x[m + 3], a);
    }
    x[i] = a;
  }
  // Lanes 0..15: T_II fp16 row-major (48-byte rows); lanes 16..31: the record's T.
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const uint32_t value = l < 16 ? Fp16::pack(x[i], x[i]) : Operand::pack(x[i], x[i]);
    const uint32_t at = l < 16 ? Lay::kRows + warp * 768 + i * 48 + j * 2
                               : Record::kT + (16 * warp + i) * 128 + (((2 * warp + (j >> 3)) ^ (i & 7)) << 4) + (j & 7) * 2;
    *reinterpret_cast<uint16_t*>(smem + at) = uint16_t(value);
  }
  if (l < 16) {
    uint4* d = reinterpret_cast<uint4*>(smem + Lay::kRows + 3072 + warp * 768 + j * 48);  // transposed
    d[0] = make_uint4(Fp16::pack(x[0], x[1]), Fp16::pack(x[2], x[3]), Fp16::pack(x[4], x[5]), Fp16::pack(x[6], x[7]));
    d[1] = make_uint4(Fp16::pack(x[8], x[9]), Fp16::pack(x[10], x[11]), Fp16::pack(x[12], x[13]), Fp16::pack(x[14], x[15]));
  }
  named_sync(8, 128);
  // Column block J = warp: T_IJ^T = -(sum_M T_MJ^T A_IM^T) T_II^T; accumulators become A operands in place.
  if (warp == 3) return;
  uint32_t r[4][4];
  const uint8_t* dt = smem + Lay::kRows + 3072 + warp * 768 + g * 48 + t * 4;
  r[0][0] = *reinterpret_cast<const uint32_t*>(dt), r[0][1] = *reinterpret_cast<const uint32_t*>(dt + 8 * 48);
  r[0][2] = *reinterpret_cast<const uint32_t*>(dt + 16), r[0][3] = *reinterpret_cast<const uint32_t*>(dt + 8 * 48 + 16);
#pragma unroll
  for (int d = 1; d < 4; ++d) {
    if (warp + d < 4) {
      const int i = warp + d;
      float u[8] = {0, 0, 0, 0, 0, 0, 0, 0}, y[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
      for (int e = 0; e < d; ++e) {
        const uint4 b = *reinterpret_cast<const uint4*>(smem + Lay::kBelow + ((i * (i - 1) / 2 + warp + e) * 32 + l) * 16);
        mma_16x8x16<Fp16>(u, r[e], b.x, b.y), mma_16x8x16<Fp16>(u + 4, r[e], b.z, b.w);
      }
      const uint32_t ua[4] = {Fp16::pack(u[0], u[1]), Fp16::pack(u[2], u[3]), Fp16::pack(u[4], u[5]), Fp16::pack(u[6], u[7])};
      const uint8_t* dr = smem + Lay::kRows + i * 768 + g * 48 + t * 4;
      mma_16x8x16<Fp16>(y, ua, *reinterpret_cast<const uint32_t*>(dr), *reinterpret_cast<const uint32_t*>(dr + 16));
      mma_16x8x16<Fp16>(y + 4, ua, *reinterpret_cast<const uint32_t*>(dr + 8 * 48), *reinterpret_cast<const uint32_t*>(dr + 8 * 48 + 16));
      r[d][0] = Fp16::pack(-y[0], -y[1]), r[d][1] = Fp16::pack(-y[2], -y[3]), r[d][2] = Fp16::pack(-y[4], -y[5]), r[d][3] = Fp16::pack(-y[6], -y[7]);
      const uint32_t at = sb + Record::kT + (16 * i + (l & 7) + 8 * (l >> 4)) * 128 + (((2 * warp + ((l >> 3) & 1)) ^ (l & 7)) << 4);
      stmatrix_x4_trans(at, Operand::pack(-y[0], -y[1]), Operand::pack(-y[2], -y[3]), Operand::pack(-y[4], -y[5]), Operand::pack(-y[6], -y[7]));
    }
  }
}

__device__ __forceinline__ float activate_beta(const KernelParams& p, float raw) {
  float b = p.beta_logits ? rcp_approx(1.f + exp2_approx(fminf(-kLog2e * raw, 100.f))) : raw;
  return p.beta_doubled ? 2.f * b : b;
}

template <Gate kGate, bool kGateFp32>
__global__ void __launch_bounds__(PrepareConfig::kThreads, PrepareConfig::kBlocksPerSm) prepare_kernel(const __grid_constant__ KernelParams p) {
  extern __shared__ __align__(1024) uint8_t smem[];
  const uint32_t sb = smem_addr(smem);
  const int64_t items = int64_t(p.slots) * p.heads;
  launch_dependents();
  for (int i = threadIdx.x; i < 16384 / 16; i += PrepareConfig::kThreads) reinterpret_cast<uint4*>(smem + Record::kT)[i] = make_uint4(0, 0, 0, 0);  // blocks above the diagonal stay zero
  wait_prior_grid();
  ItemMeta next;
  int64_t item = next_item(p, blockIdx.x, items, next);
  float beta = 0;
  if (item < items) beta = load_inputs<kGateFp32>(p, sb, smem, next);
#pragma unroll 1
  while (item < items) {
    cp_async_wait<0>();
    if (threadIdx.x == 0) bulk_wait_read<0>();  // the previous record has left
    __syncthreads();  // inputs are here, the previous item is done
    if (threadIdx.x < kChunk) {
      const ItemMeta& m = *reinterpret_cast<const ItemMeta*>(smem + Lay::kMeta);
      *reinterpret_cast<float*>(smem + Record::kBeta + threadIdx.x * 4) = int(threadIdx.x) < m.valid ? activate_beta(p, beta) : 0.f;
    }
    float c[8][4], dk[8] = {0, 0, 0, 0, 0, 0, 0, 0}, dq[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    uint32_t rows[4][4];
    sum_squares(sb, smem);
    cumulate_gates<kGate, kGateFp32>(p, sb, smem, c);
    __syncthreads();  // sums, totals, beta are visible
    block_factors(smem);
    __syncwarp();
    scale_and_diagonal(p, sb, smem, c, dk, dq, rows);
    fence_async_shared();
    __syncthreads();  // ke, qe, kd and the column operands are visible
    uint8_t* record = p.records + reinterpret_cast<const ItemMeta*>(smem + Lay::kMeta)->record * Record::kBytes;
    if (threadIdx.x == 0) {
      bulk_store(record, sb, Record::kT);
      bulk_commit();
    }
    off_diagonal(sb, smem, dk, dq, rows);
    __syncthreads();  // A_kk is visible
    if (threadIdx.x < 128) invert(sb, smem);
    fence_async_shared();
    if (threadIdx.x == 0) bulk_wait_read<0>();
    __syncthreads();  // T, A_qk are visible
    if (threadIdx.x == 0) {
      record = p.records + reinterpret_cast<const ItemMeta*>(smem + Lay::kMeta)->record * Record::kBytes;
      bulk_store(record + Record::kT, sb + Record::kT, Record::kBytes - Record::kT);
      bulk_commit();
    }
    item = next_item(p, item + gridDim.x, items, next);
    if (item < items) beta = load_inputs<kGateFp32>(p, sb, smem, next);
  }
  if (threadIdx.x == 0) bulk_wait<0>();
}

}  // namespace hyla::kda::sm90_chunk
