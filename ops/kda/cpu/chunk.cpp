// The chunked delta rule in fp32. With P_t the product of the decays e^g up to token t of the chunk (per channel of K):
//   A_kk[i, j] = beta_i k_i . (k_j P_i / P_j), j < i     A_qk[i, j] = q_i . (k_j P_i / P_j), j <= i
//   x_i = beta_i (v_i - (k_i P_i) S)    u = (I + A_kk)^-1 x    o = scale ((q P) S + A_qk u)    S = P_C S + (k P_C / P)^T u
// The quotients P_i / P_j are products of the decays between j and i, formed by multiplication alone: exact for any decay, no anchors, no overflow.
// u comes by forward substitution, which stays finite where powers of A_kk would not (repeated keys, beta near 1).
#include "ops/kda/cpu/chunk.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/numeric.h"

namespace hyla::kda::cpu {
namespace {

using Matrix = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
using Row = Eigen::Map<Eigen::ArrayXf>;

Row row(float* data, int64_t n) { return Row(data, n); }

// `n` contiguous elements from offset `at` of a tensor, as fp32.
void read_row(const TensorView& t, int64_t at, int64_t n, float* to) {
  switch (t.dtype) {
    case DType::kBf16: {
      const uint16_t* from = t.as<uint16_t>() + at;
      for (int64_t i = 0; i < n; ++i) to[i] = bf16_to_float(from[i]);
      break;
    }
    case DType::kFp16: {
      const uint16_t* from = t.as<uint16_t>() + at;
      for (int64_t i = 0; i < n; ++i) to[i] = fp16_to_float(from[i]);
      break;
    }
    default:
      std::copy_n(t.as<float>() + at, n, to);
  }
}

void write_row(const TensorView& t, int64_t at, int64_t n, const float* from) {
  switch (t.dtype) {
    case DType::kBf16: {
      uint16_t* to = t.as<uint16_t>() + at;
      for (int64_t i = 0; i < n; ++i) to[i] = float_to_bf16(from[i]);
      break;
    }
    case DType::kFp16: {
      uint16_t* to = t.as<uint16_t>() + at;
      for (int64_t i = 0; i < n; ++i) to[i] = float_to_fp16(from[i]);
      break;
    }
    default:
      std::copy_n(from, n, t.as<float>() + at);
  }
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// Raw gate values become decays e^g in place.
void activate(const Head& h, float* g, int64_t K) {
  const Args& a = h.args;
  Row x = row(g, K);
  if (a.gate != Gate::kGiven) {
    if (a.dt_bias.defined()) x += row(a.dt_bias.as<float>() + (a.dt_bias.rank == 2 ? h.head * a.dt_bias.stride[0] : h.head * K), K);
    // At most the largest float: an infinite rate times zero would be NaN.
    const float rate = a.A_log.defined() ? std::min(std::exp(a.A_log.as<float>()[h.head * a.A_log.stride[0]]), std::numeric_limits<float>::max()) : 1.0f;
    if (a.gate == Gate::kBounded) {
      // Clamped where the sigmoid is 0 or 1 in fp32, so that a huge rate cannot make infinity times zero.
      x = a.lower_bound / (1.0f + (-(x * rate).max(-80.0f).min(80.0f)).exp());
    } else {
      x = -rate * (x.max(0.0f) + (-x.abs()).exp().log1p());
    }
  }
  x = x.max(-200.0f).exp();  // e^-200 is 0 in fp32
}

void read_inputs(const Head& h, int64_t begin, int64_t count, const Scratch& s) {
  const Args& a = h.args;
  const int64_t K = h.problem.K, V = h.problem.V, key_head = h.head / (h.problem.HV / h.problem.H);
  const auto offset = [&](const TensorView& t, int64_t token, int64_t head) { return h.batch * t.stride[0] + token * t.stride[1] + head * t.stride[2]; };
  for (int64_t i = 0; i < count; ++i) {
    const int64_t t = begin + i;
    read_row(a.q, offset(a.q, t, key_head), K, s.q + i * K);
    read_row(a.k, offset(a.k, t, key_head), K, s.k + i * K);
    read_row(a.v, offset(a.v, t, h.head), V, s.x + i * V);
    read_row(a.g, offset(a.g, t, h.head), K, s.decay + i * K);
    if (a.qk_l2norm)
      for (float* x : {s.q + i * K, s.k + i * K}) row(x, K) *= 1.0f / std::sqrt(row(x, K).square().sum() + 1e-6f);
    activate(h, s.decay + i * K, K);
    float beta = load_float(a.beta.data, a.beta.dtype, offset(a.beta, t, h.head));
    if (a.beta_is_logits) beta = sigmoid(beta);
    s.beta[i] = a.beta_doubled ? 2 * beta : beta;
  }
}

// ke, qe, kd and the two triangles. The k_j that fades from token j on is kept in kd[j]: at the end it is k e^(G_C - G).
void prepare(int64_t count, int64_t K, const Scratch& s) {
  Row product = row(s.out, K);  // free until the output is computed; V == K
  product.setOnes();
  for (int64_t i = 0; i < count; ++i) {
    const Row decay = row(s.decay + i * K, K), q = row(s.q + i * K, K), k = row(s.k + i * K, K);
    product *= decay;
    row(s.ke + i * K, K) = k * product;
    row(s.qe + i * K, K) = q * product;
    for (int64_t j = 0; j < i; ++j) {
      Row faded = row(s.kd + j * K, K);
      faded *= decay;
      s.a_kk[i * kChunk + j] = s.beta[i] * (faded * k).sum();
      s.a_qk[i * kChunk + j] = (faded * q).sum();
    }
    row(s.kd + i * K, K) = k;
    s.a_qk[i * kChunk + i] = (k * q).sum();
    for (int64_t j = i + 1; j < count; ++j) s.a_qk[i * kChunk + j] = 0.0f;
  }
}

}  // namespace

int64_t Scratch::floats(int64_t K, int64_t V) { return K * V + 6 * kChunk * K + 2 * kChunk * V + 2 * kChunk * kChunk + kChunk; }

Scratch::Scratch(float* base, int64_t K, int64_t V) {
  const auto take = [&](int64_t n) {
    float* p = base;
    base += n;
    return p;
  };
  state = take(K * V);
  q = take(kChunk * K), k = take(kChunk * K), decay = take(kChunk * K);
  ke = take(kChunk * K), qe = take(kChunk * K), kd = take(kChunk * K);
  x = take(kChunk * V), out = take(kChunk * V);
  a_kk = take(kChunk * kChunk), a_qk = take(kChunk * kChunk), beta = take(kChunk);
}

void advance(const Head& h, int64_t begin, int64_t count, const Scratch& s) {
  const int64_t K = h.problem.K, V = h.problem.V;
  read_inputs(h, begin, count, s);
  prepare(count, K, s);

  Matrix S(s.state, K, V), X(s.x, count, V), O(s.out, count, V), Ke(s.ke, count, K), Qe(s.qe, count, K), Kd(s.kd, count, K);
  X.noalias() -= Ke * S;
  for (int64_t i = 0; i < count; ++i) {
    Row u = row(s.x + i * V, V);
    u *= s.beta[i];
    for (int64_t j = 0; j < i; ++j) u -= s.a_kk[i * kChunk + j] * row(s.x + j * V, V);
  }
  Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0, Eigen::OuterStride<>> A(s.a_qk, count, count,
                                                                                                               Eigen::OuterStride<>(kChunk));
  O.noalias() = Qe * S;
  O.noalias() += A * X;
  O *= h.problem.scale;
  for (int64_t c = 0; c < K; ++c) {
    float decay = 1.0f;
    for (int64_t i = 0; i < count; ++i) decay *= s.decay[i * K + c];
    row(s.state + c * V, V) *= decay;
  }
  S.noalias() += Kd.transpose() * X;

  const TensorView& out = h.args.out;
  for (int64_t i = 0; i < count; ++i) write_row(out, h.batch * out.stride[0] + (begin + i) * out.stride[1] + h.head * out.stride[2], V, s.out + i * V);
}

}  // namespace hyla::kda::cpu
