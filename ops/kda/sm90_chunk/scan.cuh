// The scan over chunks: S^T (rows V, columns K) stays in wgmma accumulators, 64 rows a warpgroup, and every product of the chain takes
// its left operand from registers:
//   x^T = beta v^T - S^T ke^T,   v_new^T = x^T T^T,   S'^T = S^T diag + v_new^T kd,   o^T = S^T qe^T + v_new^T A_qk^T
// Roles: warpgroups 0..kWarpgroups-1 compute; then one warpgroup of helpers: warp 0 bulk copies of records, warp 1 v, warps 2.. o.
#pragma once
#include "config.h"
#include "cuda/device/copy.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/matrix.cuh"
#include "cuda/device/wgmma.cuh"
#include "scan_smem.cuh"
#include "scan_work.cuh"
#include "state_io.cuh"

namespace hyla::kda::sm90_chunk {

using namespace hyla::dev;

#ifdef HYLA_KDA_PROFILE
__device__ unsigned long long g_profile[64];
#define PROFILE_BEGIN(mark) const long long mark = clock64()
#define PROFILE_END(i, mark) \
  if (blockIdx.x == 0 && (threadIdx.x & 31) == 0) g_profile[i] += clock64() - (mark)
#define PROFILE_SET(i, v) \
  if (blockIdx.x == 0 && (threadIdx.x & 31) == 0) g_profile[i] = (v)
__device__ __forceinline__ unsigned long long global_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
#else
#define PROFILE_BEGIN(x)
#define PROFILE_END(i, x)
#define PROFILE_SET(i, v)
#endif

#ifndef HYLA_KDA_OPERAND
#define HYLA_KDA_OPERAND Bf16
#endif
using Operand = HYLA_KDA_OPERAND;

template <class Type>
struct Atoms;
template <>
struct Atoms<Bf16> {
  using MinusK = gmma::MMA_64x64x16_F32BF16BF16_RS<Major::K, Major::K, ScaleIn::Neg, ScaleIn::One>;
  using PlusK = gmma::MMA_64x64x16_F32BF16BF16_RS<Major::K, Major::K, ScaleIn::One, ScaleIn::One>;
  using PlusMn = gmma::MMA_64x128x16_F32BF16BF16_RS<Major::K, Major::MN, ScaleIn::One, ScaleIn::One>;
};
template <>
struct Atoms<Fp16> {
  using MinusK = gmma::MMA_64x64x16_F32F16F16_RS<Major::K, Major::K, ScaleIn::Neg, ScaleIn::One>;
  using PlusK = gmma::MMA_64x64x16_F32F16F16_RS<Major::K, Major::K, ScaleIn::One, ScaleIn::One>;
  using PlusMn = gmma::MMA_64x128x16_F32F16F16_RS<Major::K, Major::MN, ScaleIn::One, ScaleIn::One>;
};
using Ops = Atoms<Operand>;

template <int N>
__device__ __forceinline__ void pack(uint32_t (&r)[N], const float (&x)[2 * N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) r[i] = Operand::pack(x[2 * i], x[2 * i + 1]);
}

// S^T ke^T and S^T qe^T: 8 steps of 16 channels over two panels.
template <class Op, int kFrom, int kTo, bool kFresh>
__device__ __forceinline__ void state_product(float (&d)[32], const uint32_t (&sb)[32], uint64_t desc) {
#pragma unroll
  for (int k = kFrom; k < kTo; ++k) wgmma_rs<Op>(d, sb + 4 * k, desc + (k & 3) * 2 + (k >> 2) * 512, kFresh && k == kFrom ? ScaleOut::Zero : ScaleOut::One);
}
// x^T T^T and v_new^T A_qk^T: 4 steps of 16 tokens.
template <bool kFresh, uint32_t kPanel>
__device__ __forceinline__ void token_product(float (&d)[32], const uint32_t (&a)[16], uint32_t tile) {
  const uint64_t desc = desc_sw64(tile, 16, 512);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    wgmma_rs<Ops::PlusK>(d, a + 4 * k, desc + (k & 1) * 2 + (k >> 1) * (kPanel / 16), kFresh && k == 0 ? ScaleOut::Zero : ScaleOut::One);
}

__device__ __forceinline__ void decay_state(float (&s)[64], const float* decay) {
  const int t = threadIdx.x & 3;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float2 d = *reinterpret_cast<const float2*>(decay + 8 * j + 2 * t);
    s[4 * j] *= d.x, s[4 * j + 1] *= d.y, s[4 * j + 2] *= d.x, s[4 * j + 3] *= d.y;
  }
}

// beta v^T as an accumulator tile, from v [64 tokens][64] in shared memory.
__device__ __forceinline__ void load_v(float (&x)[32], uint32_t addr, const float* beta) {
  const int t = threadIdx.x & 3;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint32_t r[4];
    ldmatrix_x4_trans(r, addr + j * 2048);
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const float2 b = *reinterpret_cast<const float2*>(beta + 16 * j + 8 * (m >> 1) + 2 * t);
      float lo, hi;
      Bf16::unpack(r[m], lo, hi);
      x[8 * j + 2 * m] = lo * b.x, x[8 * j + 2 * m + 1] = hi * b.y;
    }
  }
}

__device__ __forceinline__ void release(Barrier& bar) {
  __syncwarp();
  if ((threadIdx.x & 31) == 0) bar.arrive();
}

// ---- helpers

// How many records from `first` on, at least one and at most `most`, are stored; waits for the first (a whole warp calls). `prepare` was all
// started before the scan was, so the wait ends. One look asks for 32 records: a look costs more than a chunk.
__device__ __forceinline__ int wait_ready(const uint32_t* first, int64_t stride, int64_t most) {
  const int lane = threadIdx.x & 31;
  while (true) {
    uint32_t x = 0;
    if (lane < most) asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(first + lane * stride) : "memory");
    const uint32_t missing = __ballot_sync(0xffffffffu, x == 0);
    const int count = missing == 0 ? 32 : __ffs(missing) - 1;
    if (count > 0) {
      asm volatile("fence.acq_rel.gpu;\nfence.proxy.async;" ::: "memory");  // the bulk copies that follow read what the flags announced
      return count;
    }
    __nanosleep(100);
  }
}

// A whole warp calls; its first lane waits and copies.
template <Pass kPass, int kWG>
__device__ __forceinline__ void produce_records(const KernelParams& p, ScanSmem<kPass, kWG>& s, const ScanWork& w) {
  using Smem = ScanSmem<kPass, kWG>;
  const bool first_lane = (threadIdx.x & 31) == 0;
  if (kPass == Pass::kOutput && first_lane) {
    RingState<2> m;
    for (int i = 1; i < w.segment; ++i, m.advance()) {
      const int64_t x = summary_index(p, w, i);
      s.empty_m[m.index].wait(m.parity ^ 1);
      s.full_m[m.index].arrive_expect_tx(uint32_t(Summary::kTransitionBytes + Summary::kDecayBytes));
      bulk_load(smem_addr(s.b[m.index]), p.summary_transition + x * Summary::kTransitionBytes, uint32_t(Summary::kTransitionBytes), s.full_m[m.index]);
      bulk_load(smem_addr(s.decay[m.index]), p.summary_decay + x * kDim, uint32_t(Summary::kDecayBytes), s.full_m[m.index]);
    }
    for (int i = 0; w.segment > 1 && i < 2; ++i, m.advance()) s.empty_m[m.index].wait(m.parity ^ 1);  // the stages are free again
  }
  RingState<Smem::kStages> r;
  const uint8_t* record = p.records + ((w.seq.slot + w.first) * p.heads + w.head) * int64_t(Record::kBytes);
  int64_t known = p.ready == nullptr ? w.last : w.first;
  for (int64_t c = w.first; c < w.last; ++c, record += p.heads * int64_t(Record::kBytes), r.advance()) {
    if (c >= known) known = c + wait_ready(p.ready + (w.seq.slot + c) * p.heads + w.head, p.heads, w.last - c);
    if (!first_lane) continue;
    PROFILE_BEGIN(ta);
    s.empty_a[r.index].wait(r.parity ^ 1);
    PROFILE_END(4, ta);
    s.full_a[r.index].arrive_expect_tx(16384 + 256);
    bulk_load(smem_addr(s.ke[r.index]), record + Record::kKe, 16384, s.full_a[r.index]);
    bulk_load(smem_addr(s.beta[r.index]), record + Record::kBeta, 256, s.full_a[r.index]);
    PROFILE_BEGIN(tb);
    s.empty_b[r.index].wait(r.parity ^ 1);
    PROFILE_END(5, tb);
    s.full_b[r.index].arrive_expect_tx(Smem::kCopied + 512);
    const uint32_t dst = smem_addr(s.b[r.index]);
    bulk_load(dst, record + (kPass == Pass::kOutput ? Record::kQe : Record::kKd), Smem::kFirst, s.full_b[r.index]);
    bulk_load(dst + Smem::kTLow, record + Record::kTLow, 2048, s.full_b[r.index]);
    if (kPass == Pass::kOutput) bulk_load(dst + Smem::kALow, record + Record::kALow, 2048, s.full_b[r.index]);
    bulk_load(smem_addr(s.decay[r.index]), record + Record::kDecay, 512, s.full_b[r.index]);
  }
}

template <Pass kPass, int kWG>
__device__ __forceinline__ void produce_v(const KernelParams& p, ScanSmem<kPass, kWG>& s, const ScanWork& w) {
  constexpr int kCols = 8 * kWG, kRowsAtOnce = 32 / kCols;
  const int lane = threadIdx.x & 31, col = lane % kCols, row = lane / kCols;
  const char* base = static_cast<const char*>(p.v.data);
  const char* src = base + (w.seq.batch * p.v.b + (w.seq.start + w.first * kChunk + row) * p.v.t + w.head * p.v.h + w.part * kHalf) * 2 + col * 16;
  RingState<ScanSmem<kPass, kWG>::kStages> a;
  for (int64_t c = w.first; c < w.last; ++c) {
    const int64_t left = w.seq.length - c * kChunk;
    s.empty_a[a.index].wait(a.parity ^ 1);
    const uint32_t dst = smem_addr(s.v[a.index][col >> 3]);
#pragma unroll 8
    for (int r = row; r < kChunk; r += kRowsAtOnce) {
      const bool valid = r < left;
      cp_async16_zfill(dst + r * 128 + (((col & 7) ^ (r & 7)) << 4), valid ? src + (r - row) * p.v.t * 2 : base, valid);
    }
    s.full_a[a.index].arrive_on_cp_async();
    src += kChunk * p.v.t * 2;
    a.advance();
  }
}

template <Pass kPass, int kWG>
__device__ __forceinline__ void store_output(const KernelParams& p, ScanSmem<kPass, kWG>& s, const ScanWork& w, int wg) {
  const int lane = threadIdx.x & 31, col = lane & 7;
  char* dst = static_cast<char*>(const_cast<void*>(p.out.data)) +
              (w.seq.batch * p.out.b + (w.seq.start + w.first * kChunk) * p.out.t + w.head * p.out.h + (w.part + wg) * kHalf) * 2 + col * 16;
  uint32_t parity = 0;
  for (int64_t c = w.first; c < w.last; ++c) {
    const int64_t left = w.seq.length - c * kChunk;
    PROFILE_BEGIN(tw);
    s.full_o[wg].wait(parity);
    PROFILE_END(7, tw);
    PROFILE_BEGIN(ts);
    parity ^= 1;
#pragma unroll 4
    for (int r = lane >> 3; r < kChunk; r += 4) {
      const uint4 x = *reinterpret_cast<const uint4*>(s.o[wg] + r * 128 + ((col ^ (r & 7)) << 4));
      if (r < left) *reinterpret_cast<uint4*>(dst + r * p.out.t * 2) = x;
    }
    dst += kChunk * p.out.t * 2;
    release(s.empty_o[wg]);
    PROFILE_END(8, ts);
  }
}

// A skipped sequence has zero rows.
template <int kThreads>
__device__ __forceinline__ void zero_output(const KernelParams& p, const ScanWork& w, int halves) {
  const int64_t rows = (w.last * kChunk < w.seq.length ? w.last * kChunk : w.seq.length) - w.first * kChunk;
  const int per_row = halves * 8;
  for (int64_t i = threadIdx.x; i < rows * per_row; i += kThreads) {
    const int64_t r = i / per_row;
    char* dst = static_cast<char*>(const_cast<void*>(p.out.data)) +
                (w.seq.batch * p.out.b + (w.seq.start + w.first * kChunk + r) * p.out.t + w.head * p.out.h + w.part * kHalf) * 2;
    *reinterpret_cast<uint4*>(dst + (i % per_row) * 16) = make_uint4(0, 0, 0, 0);
  }
}

// ---- the chain

// Chains the summaries of the segments before this one: S = h_0; S = d S + (M - d) S + h for each next.
template <int kWG>
__device__ __forceinline__ void combine_before(const KernelParams& p, ScanSmem<Pass::kOutput, kWG>& s, const ScanWork& w, int half, float (&S)[64]) {
  float h[64];
  load_summary(S, p.summary_state + summary_index(p, w, 0) * Summary::kStateBytes, half);
  if (w.segment > 1) load_summary(h, p.summary_state + summary_index(p, w, 1) * Summary::kStateBytes, half);
  RingState<2> m;
#pragma unroll 1
  for (int i = 1; i < w.segment; ++i, m.advance()) {
    uint32_t sb[32];
    pack(sb, S);
    s.full_m[m.index].wait(m.parity);
    decay_state(S, s.decay[m.index]);
#pragma unroll
    for (int e = 0; e < 64; ++e) S[e] += h[e];
    const uint64_t desc = desc_sw128(smem_addr(s.b[m.index]), 16384, 1024);
    pin(S);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k) wgmma_rs<Ops::PlusMn>(S, sb + 4 * k, desc + k * 128);
    wgmma_commit();
    if (i + 1 < w.segment) load_summary(h, p.summary_state + summary_index(p, w, i + 1) * Summary::kStateBytes, half);
    wgmma_wait<0>();
    pin(S);
    release(s.empty_m[m.index]);
  }
}

// The state after `tokens` of the sequence, where it is asked for.
template <int kWG>
__device__ __forceinline__ void write_checkpoints(const KernelParams& p, ScanSmem<Pass::kOutput, kWG>& s, int64_t tokens, int half, const float (&S)[64]) {
  const ScanWork& w = s.work;
  if (p.checkpoint_offsets.data == nullptr) {
    const int64_t at = checkpoint_place(p, s.checkpoint_base + tokens / kChunk - 1);
    if (at >= 0) store_state(S, p.checkpoints, at, w.head, p.v_first, half);
    return;
  }
  int64_t& next = s.next_checkpoint[threadIdx.x >> 5];
  if (tokens < next) return;
  for (int i = 0; i < p.checkpoint_slots; ++i) {
    if (checkpoint_offset(p, w.n, i) != tokens) continue;
    const int64_t at = checkpoint_place(p, int64_t(w.n) * p.checkpoint_slots + i);
    if (at >= 0) store_state(S, p.checkpoints, at, w.head, p.v_first, half);
  }
  const int64_t then = next_checkpoint(p, w.n, tokens);
  __syncwarp();
  if ((threadIdx.x & 31) == 0) next = then;
  __syncwarp();
}

// o and state over the block's chunks. The order in the tensor queue hides every conversion of an accumulator behind another product:
// v_new | rest of S qe^T | S' | v_new A_qk^T | x of the next chunk | first half of the next S qe^T.
template <int kWG>
__device__ __forceinline__ void scan_output(const KernelParams& p, ScanSmem<Pass::kOutput, kWG>& s, int wg, int half, float (&S)[64]) {
  using Smem = ScanSmem<Pass::kOutput, kWG>;
  constexpr int kAhead = 4;
  const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
  const uint32_t frag = (8 * (lane >> 4) + (lane & 7)) * 128 + ((((2 * warp) + ((lane >> 3) & 1)) ^ (lane & 7)) << 4);
  const bool checkpoints = p.checkpoints.data != nullptr;
  if (checkpoints && p.checkpoint_offsets.data != nullptr) {
    const int64_t next = next_checkpoint(p, s.work.n, s.work.first * kChunk);
    if (lane == 0) s.next_checkpoint[threadIdx.x >> 5] = next;
    __syncwarp();
  }
  RingState<Smem::kStages> r;
  float X[32], O[32];
  uint32_t Sb[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) O[i] = 0.f;
  pack(Sb, S);
  s.full_a[0].wait(0);
  load_v(X, smem_addr(s.v[0][wg]) + frag, s.beta[0]);
  pin(X), pin(O);
  wgmma_fence();
  state_product<Ops::MinusK, 0, 8, false>(X, Sb, desc_sw128(smem_addr(s.ke[0]), 16, 1024));
  wgmma_commit();
  wgmma_wait<0>();
  pin(X);
  release(s.empty_a[0]);
  s.full_b[0].wait(0);
  wgmma_fence();
  state_product<Ops::PlusK, 0, kAhead, true>(O, Sb, desc_sw128(smem_addr(s.b[0]), 16, 1024));
  wgmma_commit();
  const int count = int(s.work.last - s.work.first);
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    // Here X = x of this chunk; the first kAhead steps of S qe^T are in flight.
    const bool more = i + 1 < count;
    const uint32_t now = r.index, st = smem_addr(s.b[now]);
    r.advance();
    const uint32_t then = r.index;
    uint32_t xb[16], vb[16], ob[16];
    pack(xb, X);
    pin(X);
    wgmma_fence();
    token_product<true, Smem::kPanel>(X, xb, st + Smem::kT);
    wgmma_commit();
    state_product<Ops::PlusK, kAhead, 8, false>(O, Sb, desc_sw128(st, 16, 1024));
    wgmma_commit();
    decay_state(S, s.decay[now]);
    wgmma_wait<1>();
    pin(X);
    pack(vb, X);
    pin(S);
    wgmma_fence();
    const uint64_t dkd = desc_sw128(st + Smem::kKd, 8192, 1024);
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma_rs<Ops::PlusMn>(S, vb + 4 * k, dkd + k * 128);
    wgmma_commit();
    token_product<false, Smem::kPanel>(O, vb, st + Smem::kA);
    wgmma_commit();
    PROFILE_BEGIN(ta);
    if (more) s.full_a[then].wait(r.parity);
    if (warp == 0) {
      PROFILE_END(1, ta);
    }
    load_v(X, smem_addr(s.v[then][wg]) + frag, s.beta[then]);  // stale after the last chunk, and not used
    wgmma_wait<1>();
    pin(S);
    pack(Sb, S);
    pin(X);
    wgmma_fence();
    state_product<Ops::MinusK, 0, 8, false>(X, Sb, desc_sw128(smem_addr(s.ke[then]), 16, 1024));
    wgmma_commit();
    wgmma_wait<1>();
    pin(O);
    release(s.empty_b[now]);
    PROFILE_BEGIN(tb);
    if (more) s.full_b[then].wait(r.parity);
    if (warp == 0) {
      PROFILE_END(2, tb);
    }
    pack(ob, O);
    pin(O);
    wgmma_fence();
    state_product<Ops::PlusK, 0, kAhead, true>(O, Sb, desc_sw128(smem_addr(s.b[then]), 16, 1024));
    wgmma_commit();
    PROFILE_BEGIN(to);
    s.empty_o[wg].wait((i & 1) ^ 1);
    if (warp == 0) {
      PROFILE_END(3, to);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) stmatrix_x4_trans(smem_addr(s.o[wg]) + frag + j * 2048, ob[4 * j], ob[4 * j + 1], ob[4 * j + 2], ob[4 * j + 3]);
    release(s.full_o[wg]);
    if (checkpoints) {
      const int64_t tokens = (s.work.first + i + 1) * kChunk;
      if (tokens <= s.work.seq.length) write_checkpoints<kWG>(p, s, tokens, half, S);
    }
    wgmma_wait<1>();
    pin(X);
    if (more) release(s.empty_a[then]);
  }
  wgmma_wait<0>();
}

// State only. `with_v` false: rows of the transition, where v is zero.
template <int kWG>
__device__ __forceinline__ void scan_summary(ScanSmem<Pass::kSummary, kWG>& s, const ScanWork& w, int wg, bool with_v, float (&S)[64], float (&D)[32]) {
  const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
  const uint32_t frag = (8 * (lane >> 4) + (lane & 7)) * 128 + ((((2 * warp) + ((lane >> 3) & 1)) ^ (lane & 7)) << 4);
  using Smem = ScanSmem<Pass::kSummary, kWG>;
  RingState<Smem::kStages> r;
  float X[32];
  uint32_t Sb[32];
  pack(Sb, S);
  const int count = int(w.last - w.first);
  auto load_x = [&](uint32_t stage) {
    if (with_v) {
      load_v(X, smem_addr(s.v[stage][wg]) + frag, s.beta[stage]);
    } else {
#pragma unroll
      for (int i = 0; i < 32; ++i) X[i] = 0.f;
    }
  };
  s.full_a[0].wait(0);
  load_x(0);
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    uint32_t xb[16];
    const uint32_t now = r.index, st = smem_addr(s.b[now]);
    pin(X);
    wgmma_fence();
    state_product<Ops::MinusK, 0, 8, false>(X, Sb, desc_sw128(smem_addr(s.ke[now]), 16, 1024));
    wgmma_commit();
    s.full_b[now].wait(r.parity);
    wgmma_wait<0>();
    pin(X);
    release(s.empty_a[now]);
    pack(xb, X);
    pin(X);
    wgmma_fence();
    token_product<true, Smem::kPanel>(X, xb, st + Smem::kT);
    wgmma_commit();
    decay_state(S, s.decay[now]);
    if (!with_v) {
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float2 d = *reinterpret_cast<const float2*>(s.decay[now] + 8 * j + 2 * (lane & 3));
        D[2 * j] *= d.x, D[2 * j + 1] *= d.y;
      }
    }
    wgmma_wait<0>();
    pin(X);
    pack(xb, X);
    pin(S);
    wgmma_fence();
    const uint64_t dkd = desc_sw128(st + Smem::kKd, 8192, 1024);
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma_rs<Ops::PlusMn>(S, xb + 4 * k, dkd + k * 128);
    wgmma_commit();
    r.advance();
    if (i + 1 < count) s.full_a[r.index].wait(r.parity);
    load_x(r.index);  // stale after the last chunk, and not used
    wgmma_wait<0>();
    pin(S);
    release(s.empty_b[now]);
    pack(Sb, S);
  }
}

template <int kWG>
__device__ __forceinline__ void initial_state(const KernelParams& p, const ScanWork& w, int half, float (&S)[64]) {
  if (has_initial(p, w)) {
    load_state(S, p.initial, w.slot, w.head, p.v_first, half);
  } else {
#pragma unroll
    for (int i = 0; i < 64; ++i) S[i] = 0.f;
  }
}

template <int kWG>
__device__ __forceinline__ void consume_output(const KernelParams& p, ScanSmem<Pass::kOutput, kWG>& s, const ScanWork& w, int wg) {
  const int half = w.part + wg;
  const bool cut = w.chunks > p.segment_chunks && p.segments > 1;
  float S[64];
  if (w.segment > 0) {
    combine_before<kWG>(p, s, w, half, S);
  } else if (cut && has_initial(p, w)) {
    load_summary(S, p.saved_initial + (int64_t(w.n) * p.heads + w.head) * Summary::kStateBytes, half);
  } else {
    initial_state<kWG>(p, w, half, S);
  }
  PROFILE_BEGIN(t0);
  if (w.first < w.last) scan_output<kWG>(p, s, wg, half, S);
  if (threadIdx.x < 32) {
    PROFILE_END(0, t0);
  }
  if (p.final_.data != nullptr && owns_end(w)) store_state(S, p.final_, w.slot, w.head, p.v_first, half);
}

template <int kWG>
__device__ __forceinline__ void consume_summary(const KernelParams& p, ScanSmem<Pass::kSummary, kWG>& s, const ScanWork& w, int wg) {
  const int half = (w.part + wg) & 1;
  const bool with_v = w.part < 2;
  const int lane = threadIdx.x & 31;
  const int64_t index = summary_index(p, w, w.segment);
  float S[64], D[32];
  const StatePosition at(half);
  if (with_v) {
    if (w.segment == 0) {
      initial_state<kWG>(p, w, half, S);
      if (has_initial(p, w)) store_summary(S, p.saved_initial + (int64_t(w.n) * p.heads + w.head) * Summary::kStateBytes, half);
    } else {
#pragma unroll
      for (int i = 0; i < 64; ++i) S[i] = 0.f;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 64; ++i) S[i] = at.row + 8 * ((i >> 1) & 1) == at.col + 8 * (i >> 2) + (i & 1) ? 1.f : 0.f;
#pragma unroll
    for (int i = 0; i < 32; ++i) D[i] = 1.f;
  }
  scan_summary<kWG>(s, w, wg, with_v, S, D);
  if (with_v) {
    store_summary(S, p.summary_state + index * Summary::kStateBytes, half);
    return;
  }
  uint8_t* m = p.summary_transition + index * Summary::kTransitionBytes;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = at.row + 8 * r, col = at.col + 8 * j;
      const float x = S[4 * j + 2 * r] - (row == col ? D[2 * j] : 0.f), y = S[4 * j + 2 * r + 1] - (row == col + 1 ? D[2 * j + 1] : 0.f);
      *reinterpret_cast<uint32_t*>(m + (col >> 6) * 16384 + row * 128 + ((((col & 63) >> 3) ^ (row & 7)) << 4) + (col & 7) * 2) = Operand::pack(x, y);
    }
    if (half == 0 && threadIdx.x % 128 < 4) {  // warp 0, g == 0
      *reinterpret_cast<float2*>(p.summary_decay + index * kDim + 8 * j + 2 * lane) = make_float2(D[2 * j], D[2 * j + 1]);
    }
  }
}

template <Pass kPass, int kWG>
__global__ void __launch_bounds__(384, 1) scan_kernel(const __grid_constant__ KernelParams p) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& s = *reinterpret_cast<ScanSmem<kPass, kWG>*>(raw);
  constexpr int kParts = (kPass == Pass::kOutput ? 2 : 4) / kWG;
  constexpr int kSegmentsLess = kPass == Pass::kOutput ? 0 : 1;
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0);
#ifdef HYLA_KDA_PROFILE
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    for (int i = 0; i < 11; ++i) g_profile[i] = 0;
    g_profile[11] = global_ns();
  }
#endif
  launch_dependents();
  if (warp == 0) {
    ScanWork mine = scan_work(p, blockIdx.x, p.segments - kSegmentsLess, kParts);
    mine.part *= kWG;
    const int64_t base = p.checkpoints.data != nullptr && p.checkpoint_offsets.data == nullptr ? checkpoint_base(p, mine.n) : 0;
    if (threadIdx.x == 0) {
      s.work = mine;
      s.checkpoint_base = base;
      for (int i = 0; i < ScanSmem<kPass, kWG>::kStages; ++i) {
        s.full_a[i].init(kPass == Pass::kOutput || mine.part < 2 ? 33 : 1), s.full_b[i].init(1);
        s.empty_a[i].init(kWG * 4), s.empty_b[i].init(kWG * 4);
      }
      for (int i = 0; i < kWG; ++i) s.full_o[i].init(4), s.empty_o[i].init(1);
      for (int i = 0; i < 2; ++i) s.full_m[i].init(1), s.empty_m[i].init(kWG * 4);
      fence_barrier_init();
    }
  }
  using Smem = ScanSmem<kPass, kWG>;
  for (int i = threadIdx.x; i < Smem::kStages * 128; i += blockDim.x) {
    uint8_t* stage = s.b[i / 128];
    reinterpret_cast<uint4*>(stage + Smem::kZero)[i % 128] = make_uint4(0, 0, 0, 0);
    if (kPass == Pass::kOutput) reinterpret_cast<uint4*>(stage + Smem::kZero2)[i % 128] = make_uint4(0, 0, 0, 0);
  }
  fence_async_shared();
  __syncthreads();
  const ScanWork& w = s.work;
  const bool with_v = kPass == Pass::kOutput || w.part < 2;
  if (p.ready == nullptr) wait_prior_grid();
  const bool idle = kPass == Pass::kOutput ? (w.segment > 0 && w.first >= w.chunks) : (w.first + p.segment_chunks >= w.chunks || (w.segment == 0 && !with_v));
  if (idle) {
  } else if (w.slot < 0) {
    if (kPass == Pass::kOutput) zero_output<128 * (kWG + 1)>(p, w, kWG);
  } else if (warp >= kWG * 4) {
    setmaxnreg_dec<56>();
    const int role = warp - kWG * 4;
    if (role == 0) {
      produce_records<kPass, kWG>(p, s, w);
    } else if (role == 1) {
      if (with_v) produce_v<kPass, kWG>(p, s, w);
    } else if constexpr (kPass == Pass::kOutput) {
      if (role - 2 < kWG) store_output<kPass, kWG>(p, s, w, role - 2);
    }
  } else {
    setmaxnreg_inc<224>();
    if constexpr (kPass == Pass::kOutput) consume_output<kWG>(p, s, w, warp >> 2);
    else consume_summary<kWG>(p, s, w, warp >> 2);
  }
#ifdef HYLA_KDA_PROFILE
  if (threadIdx.x == 0) {
    PROFILE_SET(12, global_ns());
  }
#endif
  if (p.ready != nullptr) wait_prior_grid();  // whoever comes next may reuse the workspace
}

}  // namespace hyla::kda::sm90_chunk
