#include "ops/kda/reference.h"

#include <cmath>
#include <limits>

#include "core/numeric.h"

namespace hyla::kda {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

int64_t index_at(const TensorView& t, int64_t i, int64_t j = 0) { return load_index(t.data, t.dtype, i * t.stride[0] + j * t.stride[1]); }

double value_at(const TensorView& t, int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0) {
  return load_float(t.data, t.dtype, a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3]);
}

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

double log_decay(const Args& a, int64_t b, int64_t t, int64_t h, int64_t c) {
  const double raw = value_at(a.g, b, t, h, c);
  if (a.gate == Gate::kGiven) return raw;
  double bias = 0;
  if (a.dt_bias.defined()) bias = a.dt_bias.rank == 2 ? value_at(a.dt_bias, h, c) : value_at(a.dt_bias, h * a.q.shape[3] + c);
  const double rate = a.A_log.defined() ? std::exp(value_at(a.A_log, h)) : 1.0;
  return a.gate == Gate::kBounded ? a.lower_bound * sigmoid(rate * (raw + bias)) : -rate * softplus(raw + bias);
}

double write_strength(const Args& a, int64_t b, int64_t t, int64_t h) {
  double beta = value_at(a.beta, b, t, h);
  if (a.beta_is_logits) beta = sigmoid(beta);
  return a.beta_doubled ? 2 * beta : beta;
}

// A row of q or k, normalised where asked.
std::vector<double> row_of(const TensorView& x, int64_t b, int64_t t, int64_t h, bool normalise) {
  std::vector<double> row(x.shape[3]);
  double squares = 0;
  for (size_t c = 0; c < row.size(); ++c) row[c] = value_at(x, b, t, h, c), squares += row[c] * row[c];
  if (normalise)
    for (double& value : row) value /= std::sqrt(squares + 1e-6);
  return row;
}

struct Sequence {
  int64_t batch, begin, length;
  int64_t state_row;  // -1: skipped
  int64_t first_checkpoint;
};

std::vector<Sequence> sequences_of(const Args& a) {
  const bool packed = a.cu_seqlens.defined();
  const int64_t N = packed ? a.cu_seqlens.shape[0] - 1 : a.q.shape[0];
  std::vector<Sequence> list;
  int64_t checkpoints = 0;
  for (int64_t n = 0; n < N; ++n) {
    Sequence s{packed ? 0 : n, packed ? index_at(a.cu_seqlens, n) : 0, packed ? index_at(a.cu_seqlens, n + 1) - index_at(a.cu_seqlens, n) : a.q.shape[1], n,
               checkpoints};
    checkpoints += s.length / 64;
    if (a.state_indices.defined()) {
      const int64_t slots = (a.initial_state.defined() ? a.initial_state : a.final_state).shape[0], slot = index_at(a.state_indices, n);
      s.state_row = slot < a.lowest_valid_slot || slot >= slots ? -1 : slot;
    }
    list.push_back(s);
  }
  return list;
}

// Where the state of sequence n after `tokens` tokens is stored among the checkpoints; -1: nowhere. Several offsets may name one count.
std::vector<int64_t> checkpoint_rows(const Args& a, int64_t n, const Sequence& s, int64_t tokens) {
  std::vector<int64_t> rows;
  if (!a.checkpoints.defined() || tokens % 64 != 0) return rows;
  if (a.checkpoint_offsets.defined()) {
    const int64_t P = a.checkpoint_offsets.shape[1];
    for (int64_t p = 0; p < P; ++p)
      if (index_at(a.checkpoint_offsets, n, p) == tokens) rows.push_back(n * P + p);
  } else {
    rows.push_back(s.first_checkpoint + tokens / 64 - 1);
  }
  std::vector<int64_t> stored;
  for (int64_t row : rows) {
    if (a.checkpoint_indices.defined()) {
      if (row >= a.checkpoint_indices.shape[0]) continue;
      row = index_at(a.checkpoint_indices, row);
      if (row < a.lowest_valid_slot) continue;
    }
    if (row >= 0 && row < a.checkpoints.shape[0]) stored.push_back(row);
  }
  return stored;
}

}  // namespace

ReferenceResult reference(const Args& a) {
  const int64_t T = a.q.shape[1], HV = a.v.shape[2], K = a.q.shape[3], V = a.v.shape[3], group = HV / a.q.shape[2];
  const double scale = a.scale != 0 ? a.scale : 1 / std::sqrt(static_cast<double>(K));
  const bool v_first = a.state_layout == StateLayout::kVFirst;
  ReferenceResult result;
  result.out.assign(a.q.shape[0] * T * HV * V, kNaN);
  if (a.final_state.defined()) result.final_state.assign(a.final_state.shape[0] * HV * K * V, kNaN);
  if (a.checkpoints.defined()) result.checkpoints.assign(a.checkpoints.shape[0] * HV * K * V, kNaN);
  const auto store = [&](std::vector<double>& to, int64_t row, int64_t h, const std::vector<double>& S) {
    for (int64_t k = 0; k < K; ++k)
      for (int64_t v = 0; v < V; ++v) to[(row * HV + h) * K * V + (v_first ? v * K + k : k * V + v)] = S[k * V + v];
  };

  const std::vector<Sequence> sequences = sequences_of(a);
  for (size_t n = 0; n < sequences.size(); ++n) {
    const Sequence& s = sequences[n];
    for (int64_t h = 0; h < HV; ++h) {
      std::vector<double> S(K * V, 0.0);
      const bool starts = a.initial_state.defined() && s.state_row >= 0 &&
                          (!a.has_initial_state.defined() || a.has_initial_state.as<uint8_t>()[n * a.has_initial_state.stride[0]] != 0);
      if (starts)
        for (int64_t k = 0; k < K; ++k)
          for (int64_t v = 0; v < V; ++v)
            S[k * V + v] = v_first ? value_at(a.initial_state, s.state_row, h, v, k) : value_at(a.initial_state, s.state_row, h, k, v);
      for (int64_t i = 0; i < s.length; ++i) {
        const int64_t t = s.begin + i;
        double* out = &result.out[((s.batch * T + t) * HV + h) * V];
        if (s.state_row < 0) {
          std::fill(out, out + V, 0.0);
          continue;
        }
        const std::vector<double> q = row_of(a.q, s.batch, t, h / group, a.qk_l2norm), k = row_of(a.k, s.batch, t, h / group, a.qk_l2norm);
        const double beta = write_strength(a, s.batch, t, h);
        for (int64_t c = 0; c < K; ++c) {
          const double decay = std::exp(log_decay(a, s.batch, t, h, c));
          for (int64_t v = 0; v < V; ++v) S[c * V + v] *= decay;
        }
        for (int64_t v = 0; v < V; ++v) {
          double read = 0;
          for (int64_t c = 0; c < K; ++c) read += k[c] * S[c * V + v];
          const double write = beta * (value_at(a.v, s.batch, t, h, v) - read);
          double sum = 0;
          for (int64_t c = 0; c < K; ++c) {
            S[c * V + v] += k[c] * write;
            sum += q[c] * S[c * V + v];
          }
          out[v] = scale * sum;
        }
        for (const int64_t row : checkpoint_rows(a, static_cast<int64_t>(n), s, i + 1)) store(result.checkpoints, row, h, S);
      }
      if (a.final_state.defined() && s.state_row >= 0) store(result.final_state, s.state_row, h, S);
    }
  }
  return result;
}

}  // namespace hyla::kda
