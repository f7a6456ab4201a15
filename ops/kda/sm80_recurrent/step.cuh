// One token after the other without a pipeline, for one or two tokens a sequence: the state passes through registers at memory speed.
// All threads load their part of the state first; while it is on its way each prepares one channel of the token.
#pragma once
#include "checkpoint.cuh"
#include "compute.cuh"
#include "prepare.cuh"

namespace hyla::kda::sm80_recurrent {

template <int kDim, class Io_, bool kVFirst_>
struct StepTraits {
  static constexpr StepConfig kConfig{kDim};
  using Io = Io_;
  static constexpr bool kVFirst = kVFirst_;
};

// A thread's 32 elements. K-first: rows 32 warp + 4 i + lane / 8 (i < 8) of columns 4 (lane % 8) + j: a warp reads whole 128-byte lines of 32
// columns. V-first: rows 4 l + j of columns (l < dim / 4 threads to a column): a warp reads whole columns.
template <class T>
struct StepState {
  static constexpr int kDim = T::kConfig.dim, kLanes = kDim / 4;
  float s[8][4];
  int row, column;  // of s[0][0], within the block's columns

  __device__ __forceinline__ StepState(int warp, int lane) {
    if constexpr (T::kVFirst) row = lane % kLanes * 4, column = warp * (8 * 32 / kLanes) + lane / kLanes;
    else row = warp * 32 + lane / 8, column = lane % 8 * 4;
  }
  // Element offset of s[i][0] from s[0][0], for rows of `stride` elements.
  static __device__ __forceinline__ int64_t offset(int i, int64_t stride) { return T::kVFirst ? i * (32 / kLanes) * stride : 4 * i * stride; }
  __device__ __forceinline__ int64_t origin(const States& g, int64_t slot, int head, int first_column, int64_t stride) const {
    const int64_t base = slot * g.slot + head * g.head;
    return base + (T::kVFirst ? (first_column + column) * stride + row : row * stride + first_column + column);
  }
  __device__ __forceinline__ void load(const States& g, int64_t slot, int head, int first_column) {
    with_access(g, [&](auto access) {
      using A = decltype(access);
      const int64_t stride = A::kRowsAreDense ? kDim : g.row, at = origin(g, slot, head, first_column, stride);
#pragma unroll
      for (int i = 0; i < 8; ++i) A::read4(g.data, at + offset(i, stride), s[i]);
    });
  }
  __device__ __forceinline__ void store(const States& g, int64_t slot, int head, int first_column) const {
    with_access(g, [&](auto access) {
      using A = decltype(access);
      const int64_t stride = A::kRowsAreDense ? kDim : g.row, at = origin(g, slot, head, first_column, stride);
#pragma unroll
      for (int i = 0; i < 8; ++i) A::write4(g.data, at + offset(i, stride), s[i]);
    });
  }
};

template <class T>
struct StepShared {
  static constexpr int kDim = T::kConfig.dim, kWarps = kDim / 32;
  float kd[kDim], qd[kDim], k[kDim], d[kDim];  // k and q not normalised: the factors come with the sums
  float v[32];
  float sums[kWarps][4];         // q.q, k.k, q.k of a warp's channels
  float partial[kWarps][2][32];  // K-first: p and o of a warp's rows
};

template <class T>
__device__ __forceinline__ void step_token(const Params& p, const Item& item, StepShared<T>& shared, StepState<T>& state, float rate, float bias, int token) {
  using Io = typename T::Io;
  constexpr int kDim = T::kConfig.dim, kWarps = kDim / 32;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int at = item.first + token;
  const int qk_head = item.head / (p.HV / p.H), first_column = item.split * T::kConfig.columns();
  const int qkv_size = Io::qkv_size(p);
  typename Io::template QkvRaw<1> q_raw, k_raw, v_raw;
  typename Io::template GateRaw<1> g_raw;
  typename Io::BetaRaw beta_raw;
  q_raw.load(p, tokens_of(p.q, item.batch, at, qk_head, thread, qkv_size).first);
  k_raw.load(p, tokens_of(p.k, item.batch, at, qk_head, thread, qkv_size).first);
  g_raw.load(p, tokens_of(p.g, item.batch, at, item.head, thread, Io::gate_size(p)).first);
  v_raw.load(p, tokens_of(p.v, item.batch, at, item.head, first_column + thread % 32, qkv_size).first);
  beta_raw.load(p, tokens_of(p.beta, item.batch, at, item.head, 0, bytes_of(p.beta_type)).first);
  float q, k, g, v;
  q_raw.unpack(p, &q), k_raw.unpack(p, &k), g_raw.unpack(p, &g), v_raw.unpack(p, &v);
  const float beta = beta_of(p, beta_raw.value(p));

  float decay[1] = {g + bias};
  decays(p, decay, rate);
  const float d = decay[0];
  shared.kd[thread] = k * d, shared.qd[thread] = q * d, shared.k[thread] = k, shared.d[thread] = d;
  if (thread < 32) shared.v[thread] = v;
  float sums[4] = {q * q, k * k, q * k, 0};
  scatter_sum<32>(sums, lane);  // eight neighbours hold the same
  if (lane % 8 == 0) shared.sums[warp][lane / 8] = sums[0];
  __syncthreads();
  float qq = 0, kk = 0, qk = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float4 x = read4(shared.sums[w]);
    qq += x.x, kk += x.y, qk += x.z;
  }
  constexpr float kEps = 1e-6f;
  const float q_scale = p.scale * (p.qk_l2norm ? rsqrtf(qq + kEps) : 1.0f), k_scale = p.qk_l2norm ? rsqrtf(kk + kEps) : 1.0f;
  const auto out_at = [&] { return item.batch * p.out.batch + at * p.out.token + item.head * p.out.head + first_column; };
  qk *= q_scale * k_scale;

  if constexpr (T::kVFirst) {
    const float4 kd = read4(shared.kd + state.row), qd = read4(shared.qd + state.row);
    float x[16];  // [column][p, o]
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[2 * i] = kd.x * state.s[i][0] + kd.y * state.s[i][1] + kd.z * state.s[i][2] + kd.w * state.s[i][3];
      x[2 * i + 1] = qd.x * state.s[i][0] + qd.y * state.s[i][1] + qd.z * state.s[i][2] + qd.w * state.s[i][3];
    }
    constexpr int kLanes = StepState<T>::kLanes;
    scatter_sum<kLanes>(x, lane);
    constexpr int kTeam = kLanes / 8;  // threads that then hold p and o of one column
    const int base = lane - lane % kLanes, team = lane % kLanes / kTeam, own = state.column + 32 / kLanes * team;
    const float product = __shfl_sync(~0u, x[0], base + team * kTeam);  // p of the team's column
    const float mine = beta * (shared.v[own] - k_scale * product);
    if (lane % kTeam == kTeam / 2) write_out(p, out_at() + own, q_scale * x[0] + qk * mine);
    const float4 kn = read4(shared.k + state.row), dn = read4(shared.d + state.row);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float delta = k_scale * __shfl_sync(~0u, mine, base + i * kTeam);
      state.s[i][0] = dn.x * state.s[i][0] + kn.x * delta;
      state.s[i][1] = dn.y * state.s[i][1] + kn.y * delta;
      state.s[i][2] = dn.z * state.s[i][2] + kn.z * delta;
      state.s[i][3] = dn.w * state.s[i][3] + kn.w * delta;
    }
  } else {
    float x[8] = {};  // p of four columns, o of four columns
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float kd = shared.kd[state.row + 4 * i], qd = shared.qd[state.row + 4 * i];
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] += kd * state.s[i][j], x[4 + j] += qd * state.s[i][j];
    }
    // Over the four row groups of the warp; then lanes 0..7 hold p, 8..15 o, as whole quads.
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool upper = lane & 8;
      const float send = upper ? x[j] : x[4 + j], keep = upper ? x[4 + j] : x[j];
      x[j] = keep + __shfl_xor_sync(~0u, send, 8);
      x[j] += __shfl_xor_sync(~0u, x[j], 16);
    }
    if (lane < 16) *reinterpret_cast<float4*>(&shared.partial[warp][lane / 8][state.column]) = make_float4(x[0], x[1], x[2], x[3]);
    __syncthreads();
    float delta[4] = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float4 y = read4(&shared.partial[w][0][state.column]);
      delta[0] += y.x, delta[1] += y.y, delta[2] += y.z, delta[3] += y.w;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) delta[j] = beta * (shared.v[state.column + j] - k_scale * delta[j]);
    if (thread < 8) {
      float o[4] = {};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float4 y = read4(&shared.partial[w][1][state.column]);
        o[0] += y.x, o[1] += y.y, o[2] += y.z, o[3] += y.w;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) write_out(p, out_at() + state.column + j, q_scale * o[j] + qk * delta[j]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float dn = shared.d[state.row + 4 * i], kn = k_scale * shared.k[state.row + 4 * i];
#pragma unroll
      for (int j = 0; j < 4; ++j) state.s[i][j] = dn * state.s[i][j] + kn * delta[j];
    }
  }
}

template <class T>
__global__ void __launch_bounds__(T::kConfig.threads(), 768 / T::kConfig.threads()) step(const __grid_constant__ Params p) {
  constexpr StepConfig kC = T::kConfig;
  __shared__ StepShared<T> shared;
  const Item item = read_item(p, blockIdx.x, kC.splits());
  if (item.skipped) return zero_rows(p, item, kC.columns(), kC.threads());
  const int first_column = item.split * kC.columns(), lane = threadIdx.x % 32;
  StepState<T> state(threadIdx.x / 32, lane);
  if (item.initial_slot >= 0) {
    state.load(p.initial, item.initial_slot, item.head, first_column);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) state.s[i][j] = 0.0f;
  }
  const float bias = p.dt_bias != nullptr ? p.dt_bias[item.head * p.bias_head + threadIdx.x] : 0.0f;
  const float rate = p.A_log != nullptr ? fminf(expf(p.A_log[item.head * p.A_log_stride]), FLT_MAX) : 1.0f;
  Destinations destinations{p, item, 0};
  if (p.checkpoints.data != nullptr && p.checkpoint_offsets.data == nullptr && item.length >= kCheckpointTokens)
    destinations.first_row = first_checkpoint_row(p, item.sequence, lane);
  int done = 0;
  do {
    if (item.length > 0) {
      step_token(p, item, shared, state, rate, bias, done);
      if (++done < item.length) __syncthreads();
    }
    if (!destinations.possible(done)) continue;
    const States* states;
    int cursor = 0;
    int64_t slot;
    while (destinations.next(done, cursor, states, slot)) state.store(*states, slot, item.head, first_column);
  } while (done < item.length);
}

}  // namespace hyla::kda::sm80_recurrent
