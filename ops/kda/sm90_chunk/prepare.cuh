// Prepare: everything of a chunk that does not need the state. One item is a chunk of 64 tokens of one value head; a block is two groups
// of eight warps that walk over items on their own. Two warps for each 16-token block I, 64 channels each (part). Lanes own positions of
// mma fragments, so that q, k, the diagonal blocks and most row operands of A stay in registers.
//
// A is built from products whose factors are all <= 1: diagonal 16 x 16 blocks anchored in their middle, blocks (1,0) and (3,2) at the
// border between them, and the 32 x 32 block below at token 32.
#pragma once
#include <type_traits>

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

#ifdef HYLA_KDA_PROFILE
__device__ unsigned long long g_profile_prepare[64];
#define PROFILE_MARK(i) \
  if (blockIdx.x == 0 && threadIdx.x == 0) g_profile_prepare[i] = clock64()
#define PROFILE_NS(i)                                                       \
  if (blockIdx.x == 0 && threadIdx.x == 0) {                                \
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(g_profile_prepare[i])); \
  }
#else
#define PROFILE_MARK(i)
#define PROFILE_NS(i)
#endif

// Operands of 11 bits deserve gates of 22 (two fp16 parts) and rounded tf32; operands of 8 do not.
inline constexpr bool kFine = std::is_same_v<Operand, Fp16>;

struct ItemMeta {
  int64_t batch, token;  // first row
  int32_t item, record;  // index in the order of work (-1: no item left) and of the record
  int32_t head, valid;   // valid tokens, 1..64
};

enum GroupBarrier : int { kAll = 1, kPair = 2 /* + block */, kInverse = 6, kPerGroup = 7 };

__device__ __forceinline__ float bf16_low(uint32_t r) { return __uint_as_float(r << 16); }
__device__ __forceinline__ float bf16_high(uint32_t r) { return __uint_as_float(r & 0xffff0000u); }

// A group's view: its shared memory and lanes. Each phase derives its lane constants again: kept across the phases they cost registers.
struct Lane {
  int l, warp, block, part, g, t, group;
  uint32_t row;  // row of an 8x8 matrix pair this lane addresses
  __device__ __forceinline__ Lane() {
    int tid = threadIdx.x;
    asm volatile("" : "+r"(tid));
    group = tid >> 8, l = tid & 31, warp = (tid >> 5) & 7, block = warp >> 1, part = warp & 1, g = l >> 2, t = l & 3;
    row = (l & 7) + 8 * ((l >> 3) & 1);
  }
  // Address of this lane for ldmatrix x4 of 16 tokens x 16 channels (step ks of the warp's 64 channels).
  __device__ __forceinline__ uint32_t tile(int ks) const { return part * 8192 + (16 * block + row) * 128 + (((2 * ks + (l >> 4)) ^ (l & 7)) << 4); }
  // The same for x2: 16 tokens x 8 channels.
  __device__ __forceinline__ uint32_t half_tile(int nt) const { return part * 8192 + (16 * block + row) * 128 + ((nt ^ (l & 7)) << 4); }
};

// Announces a stored record to a scan that runs beside (the thread that committed the stores).
__device__ __forceinline__ void announce(const KernelParams& p, int record) {
  if (record < 0) return;
  bulk_wait<0>();
  asm volatile("fence.proxy.async;" ::: "memory");
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p.ready + record), "r"(1u) : "memory");
}

// The first item at or after `item` (in steps of `step`) that holds tokens (a whole warp calls).
__device__ __forceinline__ ItemMeta next_item(const KernelParams& p, uint32_t item, uint32_t step) {
  const uint32_t items = uint32_t(p.slots) * uint32_t(p.heads);
  ItemMeta m;
  m.item = -1;
  for (; item < items; item += step) {
    int slot = int(item / uint32_t(p.heads));
    const int head = int(item - uint32_t(slot) * uint32_t(p.heads));
    if (p.ready != nullptr && p.cu_seqlens.data == nullptr) {  // chunk by chunk over all sequences, in the order the scan needs them
      const int chunk = slot / p.sequences;
      slot = (slot - chunk * p.sequences) * int((p.tokens + kChunk - 1) / kChunk) + chunk;
    }
    const Sequence s = sequence_at(p, find_sequence(p, slot));
    const int64_t first = (slot - s.slot) * kChunk;
    if (first < 0 || first >= s.length) continue;
    m.batch = s.batch;
    m.token = s.start + first;
    m.item = int(item);
    m.record = slot * p.heads + head;
    m.head = head;
    m.valid = int(s.length - first < kChunk ? s.length - first : kChunk);
    break;
  }
  return m;
}

__device__ __forceinline__ const char* first_row(const KernelParams& p, const ItemMeta& m, int x) {
  const Strided& s = x == 0 ? p.k : x == 1 ? p.q : p.g;
  const int head = x == 2 ? m.head : (m.head + p.first_head) / p.group;
  return static_cast<const char*>(s.data) + (m.batch * s.b + m.token * s.t + head * s.h) * (x == 2 && p.g_fp32 ? 4 : 2);
}

// Finds the next item while this one is computed (one warp).
__device__ __forceinline__ void look_ahead(const KernelParams& p, uint8_t* smem, int from, uint32_t step, int buffer) {
  const int lane = threadIdx.x & 31;
  const ItemMeta m = next_item(p, uint32_t(from) + step, step);
  if (lane == 0) reinterpret_cast<ItemMeta*>(smem + Lay::kMeta)[buffer] = m;
}

// Starts the copies of an item's inputs (the upper 128 threads of the group). Rows past the tail read nothing: k and q become zero, the raw gate what decays nothing.
template <Gate kGate, bool kGateFp32>
__device__ __forceinline__ void load_inputs(const KernelParams& p, uint32_t sb, uint8_t* smem, int buffer) {
  int tid = threadIdx.x;
  asm volatile("" : "+r"(tid));
  tid &= 127;
  const ItemMeta m = reinterpret_cast<const ItemMeta*>(smem + Lay::kMeta)[buffer];
  const int row = tid >> 4, col = tid & 15;
  const uint32_t dst = sb + ((col & 8) ? 8192u : 0u) + row * 128 + (((col & 7) ^ (row & 7)) << 4);
  constexpr int kTensors = kGateFp32 ? 2 : 3;
#pragma unroll
  for (int x = 0; x < kTensors; ++x) {
    const int64_t stride = (x == 0 ? p.k.t : x == 1 ? p.q.t : p.g.t) * 2;
    const char* src = first_row(p, m, x) + row * stride + col * 16;
    if (m.valid == kChunk) {
#pragma unroll
      for (int r = 0; r < kChunk; r += 8) cp_async16(dst + x * 16384 + r * 128, src), src += 8 * stride;
    } else {
      constexpr uint32_t kNoDecay = kGate == Gate::kGiven ? 0u : 0xff80ff80u;  // minus infinity
      for (int r = 0; r < kChunk; r += 8, src += 8 * stride) {
        const uint32_t fill = x == 2 ? kNoDecay : 0u;
        if (row + r < m.valid) cp_async16(dst + x * 16384 + r * 128, src);
        else store_shared16(dst + x * 16384 + r * 128, fill, fill, fill, fill);
      }
    }
  }
  if (p.dt_bias != nullptr) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(sb + Lay::kBias + tid * 4), "l"(p.dt_bias + m.head * p.dt_bias_head + tid) : "memory");
  }
  cp_async_commit();
}

// Raw beta of this thread's token.
__device__ __forceinline__ float load_beta(const KernelParams& p, const ItemMeta& m, int tid) {
  if (tid >= m.valid) return 0;
  const int64_t at = m.batch * p.beta.b + (m.token + tid) * p.beta.t + m.head * p.beta.h;
  if (p.beta_fp32) return static_cast<const float*>(p.beta.data)[at];
  return __uint_as_float(uint32_t(static_cast<const uint16_t*>(p.beta.data)[at]) << 16);
}

// log2(1 + 2^x), accurate relative to itself for very negative x.
__device__ __forceinline__ float softplus2(float x) {
  const float e = exp2_approx(fminf(x, 64.0f));
  float l;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(l) : "f"(1.0f + e));
  const float series = kLog2e * e * fmaf(e, fmaf(e, fmaf(e, -0.25f, 0.33333333f), -0.5f), 1.0f);
  return x > 40.0f ? x : e < 0.015625f ? series : l;
}

// A log decay (base 2, times kGateScale) from a raw gate. `a`: exp(A_log) in the form the kind needs, `b`: its bias.
template <Gate kGate>
__device__ __forceinline__ float gate_value(float x, float a, float b, float bound) {
  constexpr float kFloor = kLogDecayFloor * kLog2e * kGateScale;
  if (kGate == Gate::kBounded) return bound * rcp_approx(1.f + exp2_approx(fmaf(x, a, b)));
  if (kGate == Gate::kUnbounded) return fmaxf(a * softplus2((x + b) * kLog2e) * -kGateScale, kFloor);
  return fmaxf(x * (kLog2e * kGateScale), kFloor);
}

// Sums of squares of this warp's half rows of k and q: the diagonals of k k^T and q q^T.
__device__ __forceinline__ void sum_squares(uint32_t sb, uint8_t* smem) {
  const Lane w;
  float k0[4] = {0, 0, 0, 0}, k1[4] = {0, 0, 0, 0}, q0[4] = {0, 0, 0, 0}, q1[4] = {0, 0, 0, 0};  // columns 0..7, 8..15
#pragma unroll
  for (int ks = 0; ks < 4; ++ks) {
    uint32_t k[4], q[4];
    ldmatrix_x4(k, sb + w.tile(ks)), ldmatrix_x4(q, sb + 16384 + w.tile(ks));
    mma_16x8x16<Bf16>(k0, k, k[0], k[2]), mma_16x8x16<Bf16>(k1, k, k[1], k[3]);
    mma_16x8x16<Bf16>(q0, q, q[0], q[2]), mma_16x8x16<Bf16>(q1, q, q[1], q[3]);
  }
  float* norms = reinterpret_cast<float*>(smem + Lay::kNorms);
  if (w.t == w.g >> 1) {
    const bool odd = w.g & 1;
    *reinterpret_cast<float2*>(norms + ((16 * w.block + w.g) * 2 + w.part) * 2) = make_float2(odd ? k0[1] : k0[0], odd ? q0[1] : q0[0]);
    *reinterpret_cast<float2*>(norms + ((16 * w.block + w.g + 8) * 2 + w.part) * 2) = make_float2(odd ? k1[3] : k1[2], odd ? q1[3] : q1[2]);
  }
}

// Gates and their cumulative sum within the 16-token block, relative to its middle (after token 7), by the tensor core: a triangle of
// +-2^-10 times the gates. The product also turns the channel-major fragments into the token-major ones that q and k have.
template <Gate kGate, bool kGateFp32>
__device__ __forceinline__ void cumulate_gates(const KernelParams& p, uint32_t sb, uint8_t* smem, int buffer, float (&c)[8][4]) {
  const Lane w;
  const int g = w.g, t = w.t;
  const ItemMeta& m = reinterpret_cast<const ItemMeta*>(smem + Lay::kMeta)[buffer];
  uint32_t tri[4], tot[4];
  tri[0] = (2 * t > g ? 0x9400u : 0u) | (2 * t + 1 > g ? 0x94000000u : 0u);
  tri[1] = tri[2] = 0;
  tri[3] = (2 * t <= g ? 0x1400u : 0u) | (2 * t + 1 <= g ? 0x14000000u : 0u);
  tot[0] = tot[3] = 0x14001400u, tot[1] = tot[2] = 0;
  const float ea = p.a_log == nullptr ? 1.0f : exp2_approx(fmaxf(fminf(kLog2e * p.a_log[m.head * p.a_log_stride], 100.0f), -100.0f));
  const float a = kGate == Gate::kBounded ? -kLog2e * ea : ea;
  const float bound = p.lower_bound * (kLog2e * kGateScale);
  const bool biased = kGate != Gate::kGiven && p.dt_bias != nullptr;
  float4* totals = reinterpret_cast<float4*>(smem + Lay::kTotals);
  const float* g32 = nullptr;
  const int valid = kGateFp32 ? m.valid - 16 * w.block : 16;
  if (kGateFp32) g32 = reinterpret_cast<const float*>(first_row(p, m, 2)) + int64_t(16 * w.block) * p.g.t;
#pragma unroll
  for (int ks = 0; ks < 4; ++ks) {
    uint32_t raw[4], hi[4], lo[4];
    if (!kGateFp32) ldmatrix_x4_trans(raw, sb + 32768 + w.tile(ks));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int channel = w.part * 64 + 16 * ks + 8 * h + g;
      float b = biased ? *reinterpret_cast<const float*>(smem + Lay::kBias + channel * 4) : 0.f;
      if (kGate == Gate::kBounded) b *= a;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int e = 2 * h + r;
        float x0, x1;
        if (kGateFp32) {
          constexpr float kNoDecay = kGate == Gate::kGiven ? 0.f : -INFINITY;
          const int token = 8 * r + 2 * t;
          x0 = token < valid ? g32[token * p.g.t + channel] : kNoDecay;
          x1 = token + 1 < valid ? g32[(token + 1) * p.g.t + channel] : kNoDecay;
        } else {
          x0 = bf16_low(raw[e]), x1 = bf16_high(raw[e]);
        }
        const float g0 = gate_value<kGate>(x0, a, b, bound), g1 = gate_value<kGate>(x1, a, b, bound);
        hi[e] = Fp16::pack(g0, g1);
        if (kFine) {
          float h0, h1;
          Fp16::unpack(hi[e], h0, h1);
          lo[e] = Fp16::pack(g0 - h0, g1 - h1);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int nt = 2 * ks + h;
      float u[4] = {0, 0, 0, 0};
      c[nt][0] = c[nt][1] = c[nt][2] = c[nt][3] = 0;
      if (kFine) mma_16x8x16<Fp16>(c[nt], tri, lo[2 * h], lo[2 * h + 1]), mma_16x8x16<Fp16>(u, tot, lo[2 * h], lo[2 * h + 1]);
      mma_16x8x16<Fp16>(c[nt], tri, hi[2 * h], hi[2 * h + 1]), mma_16x8x16<Fp16>(u, tot, hi[2 * h], hi[2 * h + 1]);
      if (g == nt) totals[(w.block * kDim + w.part * 64 + 8 * nt + 2 * t) / 2] = make_float4(u[0], u[2], u[1], u[3]);
    }
  }
}

// Per block and channel, from the blocks' totals: (e^G at the anchor, e^(G_C - anchor), e^(anchor - row anchor), e^(column anchor - anchor)).
// Row anchors: the block's start, but token 32 for block 3, which has its start besides; column anchors: the block's end, and token 32 for
// block 0 besides.
__device__ __forceinline__ void block_factors(uint8_t* smem) {
  const Lane w;
  const float2* totals = reinterpret_cast<const float2*>(smem + Lay::kTotals);
  float4* factors = reinterpret_cast<float4*>(smem + Lay::kFactors) + w.block * kDim;
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const int ch = w.part * 64 + 32 * x + w.l;
    float2 v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = totals[j * kDim + ch];
    const float t0 = v[0].x + v[0].y, t1 = v[1].x + v[1].y, t2 = v[2].x + v[2].y, t3 = v[3].x + v[3].y;
    float before = 0, after = t1 + t2 + t3, cm = v[0].x, u = v[0].y;
    if (w.block == 1) before = t0, after = t2 + t3, cm = v[1].x, u = v[1].y;
    if (w.block == 2) before = t0 + t1, after = t3, cm = v[2].x, u = v[2].y;
    if (w.block == 3) before = t0 + t1 + t2, after = 0, cm = v[3].x, u = v[3].y;
    float row_span = cm;
    if (w.block == 3) {
      row_span += t2;
      *reinterpret_cast<float*>(smem + Lay::kSpans + ch * 4) = exp2_approx(cm);
    }
    if (w.block == 0) {
      *reinterpret_cast<float*>(smem + Lay::kSpans + 512 + ch * 4) = exp2_approx(u + t1);
      *reinterpret_cast<float*>(smem + Record::kDecay + ch * 4) = exp2_approx(cm + u + after);
    }
    factors[ch] = make_float4(exp2_approx(before + cm), exp2_approx(after + u), exp2_approx(row_span), exp2_approx(u));
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

// Where the partner's sums of a diagonal block are left: A_kk's in the place of the finished block; A_qk's in blocks of A_qk (and for
// block 0 of T) that the reader itself overwrites.
__device__ __forceinline__ uint32_t diagonal_k_sums(const Lane& w, int i) { return Lay::kDiagonal + w.block * 1280 + (i * 32 + w.l) * 16; }
__device__ __forceinline__ uint32_t diagonal_q_sums(const Lane& w, int i) {
  const int row = 16 * w.block + (w.l >> 1), odd = w.l & 1;
  return Record::tile(w.block == 0 && odd ? 0 : 1, row, w.block == 0 ? i : 2 * odd + i);
}

// ke, qe, kd over the inputs; diagonal blocks of A (this warp's share of the one it finishes goes to `mine`); operands of the blocks below
// the diagonal: rows of k and q in registers, columns to shared memory.
__device__ __forceinline__ void scale_and_diagonal(const KernelParams& p, uint32_t sb, uint8_t* smem, const float (&c)[8][4], float (&mine)[8],
                                                   uint32_t (&krows)[4][4], uint32_t (&qrows)[4][4]) {
  const Lane w;
  const RowScales s = row_scales(p, smem);
  const float4* factors = reinterpret_cast<const float4*>(smem + Lay::kFactors) + w.block * kDim;
  float dk[8] = {0, 0, 0, 0, 0, 0, 0, 0}, dq[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  auto operand = [](float x) { return kFine ? round_tf32(x) : __float_as_uint(x); };
#pragma unroll
  for (int ks = 0; ks < 4; ++ks) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int nt = 2 * ks + h, ch = w.part * 64 + 8 * nt + 2 * w.t;
      const uint32_t at = sb + w.half_tile(nt);
      uint32_t k[2], q[2];
      ldmatrix_x2(k, at), ldmatrix_x2(q, at + 16384);
      const float4 fa = factors[ch], fb = factors[ch + 1];
      float kx[2][2], ky[2][2], qx[2][2];  // [row g, g + 8][channel]: beta k e^c, k e^-c, q e^c
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float k0 = bf16_low(k[r]), k1 = bf16_high(k[r]), q0 = bf16_low(q[r]), q1 = bf16_high(q[r]);
        const float c0 = c[nt][2 * r], c1 = c[nt][2 * r + 1];
        const float a0 = exp2_approx(c0), a1 = exp2_approx(c1), b0 = exp2_approx(-c0), b1 = exp2_approx(-c1);
        kx[r][0] = k0 * s.kb[r] * a0, kx[r][1] = k1 * s.kb[r] * a1;
        ky[r][0] = k0 * s.k[r] * b0, ky[r][1] = k1 * s.k[r] * b1;
        qx[r][0] = q0 * s.q[r] * a0, qx[r][1] = q1 * s.q[r] * a1;
      }
      uint32_t ke[2], qe[2], kd[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        ke[r] = Operand::pack(kx[r][0] * fa.x, kx[r][1] * fb.x);
        qe[r] = Operand::pack(qx[r][0] * fa.x, qx[r][1] * fb.x);
        kd[r] = Operand::pack(ky[r][0] * fa.y, ky[r][1] * fb.y);
        krows[ks][2 * h + r] = Operand::pack(kx[r][0] * fa.z, kx[r][1] * fb.z);
        qrows[ks][2 * h + r] = Operand::pack(qx[r][0] * fa.z, qx[r][1] * fb.z);
      }
      // Columns of k and, for block 0, the same at their second anchor; for block 3 rows of k and q at theirs.
      const uint32_t slot = ((w.part * 4 + ks) * 32 + w.l) * 16 + 8 * h;
      if (w.block == 3) {
        const float2 f = *reinterpret_cast<const float2*>(smem + Lay::kSpans + ch * 4);
        *reinterpret_cast<uint2*>(smem + Lay::kRows + slot) =
            make_uint2(Operand::pack(kx[0][0] * f.x, kx[0][1] * f.y), Operand::pack(kx[1][0] * f.x, kx[1][1] * f.y));
        *reinterpret_cast<uint2*>(smem + Lay::kRows + 4096 + slot) =
            make_uint2(Operand::pack(qx[0][0] * f.x, qx[0][1] * f.y), Operand::pack(qx[1][0] * f.x, qx[1][1] * f.y));
      } else {
        *reinterpret_cast<uint2*>(smem + Lay::kColumns + w.block * 4096 + slot) =
            make_uint2(Operand::pack(ky[0][0] * fa.w, ky[0][1] * fb.w), Operand::pack(ky[1][0] * fa.w, ky[1][1] * fb.w));
      }
      if (w.block == 0) {
        const float2 f = *reinterpret_cast<const float2*>(smem + Lay::kSpans + 512 + ch * 4);
        *reinterpret_cast<uint2*>(smem + Lay::kColumns + 3 * 4096 + slot) =
            make_uint2(Operand::pack(ky[0][0] * f.x, ky[0][1] * f.y), Operand::pack(ky[1][0] * f.x, ky[1][1] * f.y));
      }
      stmatrix_x2(at, ke[0], ke[1]), stmatrix_x2(at + 16384, qe[0], qe[1]), stmatrix_x2(at + 32768, kd[0], kd[1]);
      // tf32: exponents reach +-115 here and products above the diagonal overflow; those are dropped by select. Index t <-> channel 2t, t + 4 <-> 2t + 1.
      const uint32_t a[4] = {operand(kx[0][0]), operand(kx[1][0]), operand(kx[0][1]), operand(kx[1][1])};
      const uint32_t b[4] = {operand(qx[0][0]), operand(qx[1][0]), operand(qx[0][1]), operand(qx[1][1])};
      const uint32_t y0 = operand(ky[0][0]), y1 = operand(ky[0][1]), y2 = operand(ky[1][0]), y3 = operand(ky[1][1]);
      mma_16x8x8_tf32(dk, a, y0, y1), mma_16x8x8_tf32(dk + 4, a, y2, y3);
      mma_16x8x8_tf32(dq, b, y0, y1), mma_16x8x8_tf32(dq + 4, b, y2, y3);
    }
  }
  // The first warp of a pair finishes A_kk, the second A_qk.
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t at = w.part == 0 ? diagonal_q_sums(w, i) : diagonal_k_sums(w, i);
    float give[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) give[e] = w.part == 0 ? dq[4 * i + e] : dk[4 * i + e];
    *reinterpret_cast<float4*>(smem + at) = make_float4(give[0], give[1], give[2], give[3]);
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) mine[e] = w.part == 0 ? dk[e] : dq[e];
}

// Blocks below the diagonal and the sums of the diagonal ones: A_qk to its place in the record, A_kk (fp32 diagonal, fp16 below) for the
// inverse. Each warp multiplies its own channels; a pair adds up.
__device__ __forceinline__ void off_diagonal(uint32_t sb, uint8_t* smem, float (&mine)[8], const uint32_t (&krows)[4][4], const uint32_t (&qrows)[4][4]) {
  const Lane w;
  const int g = w.g, t = w.t, I = __shfl_sync(0xffffffffu, w.block, 0);
  auto finish_q = [&](int j, const float* x) {
    stmatrix_x4(sb + Record::tile(1, 16 * I + w.row, 2 * j + (w.l >> 4)), Operand::pack(x[0], x[1]), Operand::pack(x[2], x[3]), Operand::pack(x[4], x[5]),
                Operand::pack(x[6], x[7]));
  };
  {
    const uint32_t a0 = w.part == 0 ? diagonal_k_sums(w, 0) : diagonal_q_sums(w, 0), a1 = w.part == 0 ? diagonal_k_sums(w, 1) : diagonal_q_sums(w, 1);
    const float4 x = *reinterpret_cast<const float4*>(smem + a0), y = *reinterpret_cast<const float4*>(smem + a1);
    const float v[8] = {mine[0] + x.x, mine[1] + x.y, mine[2] + x.z, mine[3] + x.w, mine[4] + y.x, mine[5] + y.y, mine[6] + y.z, mine[7] + y.w};
    __syncwarp();
    if (w.part == 0) {
      float* d = reinterpret_cast<float*>(smem + Lay::kDiagonal + I * 1280);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int row = g + ((e & 2) ? 8 : 0), col = 2 * t + (e & 1) + ((e & 4) ? 8 : 0);
        d[col * 20 + row] = col < row ? v[e] : 0.f;
      }
    } else {
      float z[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) z[e] = 2 * t + (e & 1) + ((e & 4) ? 8 : 0) <= g + ((e & 2) ? 8 : 0) ? v[e] : 0.f;
      finish_q(I, z);
    }
  }
  if (I == 0) return;
  float keep[3][8];
  float4* sums = reinterpret_cast<float4*>(smem + Lay::kSums + (I * (I - 1) / 2) * 2048) + w.l;  // [j][to part]
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    if (j < I) {
      float va[8] = {0, 0, 0, 0, 0, 0, 0, 0}, vb[8] = {0, 0, 0, 0, 0, 0, 0, 0};
      const uint8_t* columns = smem + Lay::kColumns + (j == 0 && I >= 2 ? 3 : j) * 4096 + (w.part * 4 * 32 + w.l) * 16;
#pragma unroll
      for (int ks = 0; ks < 4; ++ks) {
        const uint4 b = *reinterpret_cast<const uint4*>(columns + ks * 512);
        if (j == 2) {  // block (3, 2): rows anchored at token 48
          const uint8_t* rows = smem + Lay::kRows + ((w.part * 4 + ks) * 32 + w.l) * 16;
          const uint4 k = *reinterpret_cast<const uint4*>(rows), q = *reinterpret_cast<const uint4*>(rows + 4096);
          const uint32_t ka[4] = {k.x, k.y, k.z, k.w}, qa[4] = {q.x, q.y, q.z, q.w};
          mma_16x8x16<Operand>(va, ka, b.x, b.z), mma_16x8x16<Operand>(va + 4, ka, b.y, b.w);
          mma_16x8x16<Operand>(vb, qa, b.x, b.z), mma_16x8x16<Operand>(vb + 4, qa, b.y, b.w);
        } else {
          mma_16x8x16<Operand>(va, krows[ks], b.x, b.z), mma_16x8x16<Operand>(va + 4, krows[ks], b.y, b.w);
          mma_16x8x16<Operand>(vb, qrows[ks], b.x, b.z), mma_16x8x16<Operand>(vb + 4, qrows[ks], b.y, b.w);
        }
      }
      float4* out = sums + j * 128 + (1 - w.part) * 64;
      if (w.part == 0) {
        out[0] = make_float4(vb[0], vb[1], vb[2], vb[3]), out[32] = make_float4(vb[4], vb[5], vb[6], vb[7]);
      } else {
        out[0] = make_float4(va[0], va[1], va[2], va[3]), out[32] = make_float4(va[4], va[5], va[6], va[7]);
      }
#pragma unroll
      for (int e = 0; e < 8; ++e) keep[j][e] = w.part == 0 ? va[e] : vb[e];
    }
  }
  named_sync(w.group * kPerGroup + kPair + I, 64);
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    if (j < I) {
      const float4* in = sums + j * 128 + w.part * 64;
      const float4 x = in[0], y = in[32];
      const float v[8] = {keep[j][0] + x.x, keep[j][1] + x.y, keep[j][2] + x.z, keep[j][3] + x.w,
                          keep[j][4] + y.x, keep[j][5] + y.y, keep[j][6] + y.z, keep[j][7] + y.w};
      if (w.part == 0) {
        *reinterpret_cast<uint4*>(smem + Lay::kBelow + ((I * (I - 1) / 2 + j) * 32 + w.l) * 16) =
            make_uint4(Fp16::pack(v[0], v[1]), Fp16::pack(v[4], v[5]), Fp16::pack(v[2], v[3]), Fp16::pack(v[6], v[7]));
      } else {
        finish_q(j, v);
      }
    }
  }
}

// T_II by column substitution in fp32 (doubling in half precision breaks on repeated keys), a warp a block; then block substitution.
__device__ __forceinline__ void invert(uint32_t sb, uint8_t* smem) {
  const Lane w;
  const int l = w.l, warp = w.warp, m = l >> 3;
  const float* a_kk = reinterpret_cast<const float*>(smem + Lay::kDiagonal + warp * 1280);
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = i == (l & 15) ? 1.f : 0.f;  // lane = column; lanes 16..31 the same again
#pragma unroll
  for (int i = 0; i < 15; ++i) {
#pragma unroll
    for (int r = 0; r < 16; r += 4) {
      if (r + 3 > i) {
        const float4 a = *reinterpret_cast<const float4*>(a_kk + i * 20 + r);
        if (r > i) x[r] = fmaf(-a.x, x[i], x[r]);
        if (r + 1 > i) x[r + 1] = fmaf(-a.y, x[i], x[r + 1]);
        if (r + 2 > i) x[r + 2] = fmaf(-a.z, x[i], x[r + 2]);
        x[r + 3] = fmaf(-a.w, x[i], x[r + 3]);
      }
    }
  }
  // Row j of the transposed block: 48 bytes apart.
  const uint32_t own = Lay::kRows + warp * 768;
  if (l < 16) {
    uint4* d = reinterpret_cast<uint4*>(smem + own + l * 48);
    d[0] = make_uint4(Fp16::pack(x[0], x[1]), Fp16::pack(x[2], x[3]), Fp16::pack(x[4], x[5]), Fp16::pack(x[6], x[7]));
    d[1] = make_uint4(Fp16::pack(x[8], x[9]), Fp16::pack(x[10], x[11]), Fp16::pack(x[12], x[13]), Fp16::pack(x[14], x[15]));
  }
  named_sync(w.group * kPerGroup + kInverse, 128);
  // As a B operand and, the same registers, as rows of T: matrices (rows 0-7, columns 0-7), (0-7, 8-15), (8-15, 0-7), (8-15, 8-15).
  const uint32_t turned = ((m & 1) * 8 + (l & 7)) * 48 + (m >> 1) * 16;
  {
    uint32_t d[4];
    ldmatrix_x4_trans(d, sb + own + turned);
    if (!kFine) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float lo, hi;
        Fp16::unpack(d[e], lo, hi);
        d[e] = Operand::pack(lo, hi);
      }
    }
    const int row = (m >> 1) * 8 + (l & 7);
    stmatrix_x4(sb + Record::tile(0, 16 * warp + row, 2 * warp + (m & 1)), d[0], d[1], d[2], d[3]);
  }
  // Column block J = warp: T_IJ^T = -(sum_M T_MJ^T A_IM^T) T_II^T; accumulators become A operands in place.
  if (warp == 3) return;
  uint32_t r[4][4];
  ldmatrix_x4(r[0], sb + own + w.row * 48 + (l >> 4) * 16);
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
      uint32_t b[4];
      ldmatrix_x4_trans(b, sb + Lay::kRows + i * 768 + turned);
      mma_16x8x16<Fp16>(y, ua, b[0], b[1]), mma_16x8x16<Fp16>(y + 4, ua, b[2], b[3]);
      r[d][0] = Fp16::pack(-y[0], -y[1]), r[d][1] = Fp16::pack(-y[2], -y[3]), r[d][2] = Fp16::pack(-y[4], -y[5]), r[d][3] = Fp16::pack(-y[6], -y[7]);
      const uint32_t at = sb + Record::tile(0, 16 * i + (l & 7) + 8 * (l >> 4), 2 * warp + ((l >> 3) & 1));
      stmatrix_x4_trans(at, Operand::pack(-y[0], -y[1]), Operand::pack(-y[2], -y[3]), Operand::pack(-y[4], -y[5]), Operand::pack(-y[6], -y[7]));
    }
  }
}

__device__ __forceinline__ float activate_beta(const KernelParams& p, float raw) {
  float b = p.beta_logits ? rcp_approx(1.f + exp2_approx(fminf(-kLog2e * raw, 100.f))) : raw;
  return p.beta_doubled ? 2.f * b : b;
}

template <Gate kGate, bool kGateFp32>
__global__ void __launch_bounds__(PrepareConfig::kThreads, 1) prepare_kernel(const __grid_constant__ KernelParams p) {
  extern __shared__ __align__(1024) uint8_t all[];
  const int group = __shfl_sync(0xffffffffu, int(threadIdx.x) / PrepareConfig::kGroup, 0);
  uint8_t* smem = all + group * Lay::kBytes;
  const uint32_t sb = smem_addr(smem);
  const auto step = [] { return gridDim.x * PrepareConfig::kGroups; };
  // Thread of the group; read again where it is used, as it is cheaper to read than to keep.
  const auto thread = [] {
    int t = threadIdx.x;
    asm volatile("" : "+r"(t));
    return t & (PrepareConfig::kGroup - 1);
  };
  const auto sync = [] {
    int t = threadIdx.x;
    asm volatile("" : "+r"(t));
    named_sync(t / PrepareConfig::kGroup * kPerGroup + kAll, PrepareConfig::kGroup);
  };
  PROFILE_NS(0);
  PROFILE_MARK(2);
  if (p.ready == nullptr) launch_dependents();
  for (int i = thread(); i < int(Record::kDecay - Record::kT) / 16; i += PrepareConfig::kGroup)
    reinterpret_cast<uint4*>(smem + Record::kT)[i] = make_uint4(0, 0, 0, 0);  // blocks above the diagonal stay zero
  wait_prior_grid();
  if (p.ready != nullptr) launch_dependents();  // not before the flags are clear
  if (thread() < 32) {
    const ItemMeta m = next_item(p, blockIdx.x + group * gridDim.x, step());
    if (thread() == 0) {
      reinterpret_cast<ItemMeta*>(smem + Lay::kMeta)[0] = m;
      reinterpret_cast<ItemMeta*>(smem + Lay::kMeta)[1].record = -1;
    }
  }
  sync();
  int buffer = 0;
  auto meta = [&]() -> const ItemMeta& { return reinterpret_cast<const ItemMeta*>(smem + Lay::kMeta)[buffer]; };
  auto previous = [&] { return reinterpret_cast<const ItemMeta*>(smem + Lay::kMeta)[buffer ^ 1].record; };
  auto place = [&] { return p.records + meta().record * int64_t(Record::kBytes); };
  if (meta().item >= 0 && thread() >= 128) load_inputs<kGate, kGateFp32>(p, sb, smem, 0);
#pragma unroll 1
  while (meta().item >= 0) {
    cp_async_wait<0>();
    if (thread() == 0) {  // the previous record has left
      if (p.ready != nullptr) announce(p, previous());
      bulk_wait_read<0>();
    }
    sync();
    PROFILE_MARK(3);  // inputs are here, the previous item is done
    float c[8][4], mine[8];
    uint32_t krows[4][4], qrows[4][4];
    {
      float beta = 0;
      if (thread() < kChunk) beta = load_beta(p, meta(), thread());
      sum_squares(sb, smem);
      cumulate_gates<kGate, kGateFp32>(p, sb, smem, buffer, c);
      if (thread() < kChunk) *reinterpret_cast<float*>(smem + Record::kBeta + thread() * 4) = thread() < meta().valid ? activate_beta(p, beta) : 0.f;
    }
    PROFILE_MARK(4);
    sync();  // sums, totals, beta are visible
    block_factors(smem);
    __syncwarp();
    scale_and_diagonal(p, sb, smem, c, mine, krows, qrows);
    PROFILE_MARK(5);
    fence_async_shared();
    sync();  // ke, qe, kd and the column operands are visible
    if (thread() == 0) {
      bulk_store(place(), sb, Record::kT);
      bulk_commit();
    }
    off_diagonal(sb, smem, mine, krows, qrows);
    if (thread() < 32) look_ahead(p, smem, meta().item, step(), buffer ^ 1);  // this warp has no block below the diagonal
    if (thread() == 0) bulk_wait_read<0>();
    PROFILE_MARK(6);
    sync();       // A_kk is visible
    buffer ^= 1;  // the inputs' place is free: the next item's come while half of the warps invert
    if (thread() < 128) invert(sb, smem);
    else if (meta().item >= 0) load_inputs<kGate, kGateFp32>(p, sb, smem, buffer);
    PROFILE_MARK(7);
    fence_async_shared();
    sync();  // T, A_qk are visible
    PROFILE_MARK(8);
    if (thread() == 0) {
      bulk_store(p.records + previous() * int64_t(Record::kBytes) + Record::kT, sb + Record::kT, Record::kBytes - Record::kT);
      bulk_commit();
    }
  }
  if (thread() == 0) {
    if (p.ready != nullptr) announce(p, previous());
    bulk_wait<0>();
    PROFILE_MARK(9);
    PROFILE_NS(1);
  }
}

}  // namespace hyla::kda::sm90_chunk
