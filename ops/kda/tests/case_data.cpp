#include "ops/kda/tests/case_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/numeric.h"
#include "testing/random.h"

namespace hyla::kda {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TensorView Args::*const kTensors[] = {&Args::q,
                                      &Args::k,
                                      &Args::v,
                                      &Args::g,
                                      &Args::beta,
                                      &Args::A_log,
                                      &Args::dt_bias,
                                      &Args::cu_seqlens,
                                      &Args::initial_state,
                                      &Args::state_indices,
                                      &Args::has_initial_state,
                                      &Args::final_state,
                                      &Args::checkpoints,
                                      &Args::checkpoint_offsets,
                                      &Args::checkpoint_indices,
                                      &Args::out};

class Builder {
 public:
  explicit Builder(const Case& c) : c_(c), random_(c.seed) {
    for (int64_t length : c.lengths) total_ += length;
    N_ = static_cast<int64_t>(c.lengths.size());
    B_ = c.dense ? N_ : 1, T_ = (c.dense ? c.lengths[0] : total_) + c.trailing;
    data_.buffers.reserve(64);
  }

  CaseData build() {
    Args& a = data_.args;
    a.gate = c_.gate, a.qk_l2norm = c_.norm, a.beta_is_logits = c_.logits, a.beta_doubled = c_.doubled, a.scale = c_.scale;
    a.state_layout = c_.v_first ? StateLayout::kVFirst : StateLayout::kKFirst, a.lowest_valid_slot = c_.lowest;
    make_rows();
    make_gate();
    if (!c_.dense) make_cu_seqlens();
    make_states();
    make_checkpoints();
    a.out = tensor(c_.out, {B_, T_, c_.HV, c_.D});
    fill(a.out, [](int64_t) { return kNaN; });
    return std::move(data_);
  }

 private:
  TensorView tensor(DType dtype, std::vector<int64_t> shape, bool shift = true) {
    int64_t n = 1;
    for (int64_t extent : shape) n *= extent;
    const size_t off = shift && c_.layout == Layout::kShifted ? static_cast<size_t>(size_of(dtype)) : 0;
    data_.buffers.emplace_back(static_cast<size_t>(n * size_of(dtype)) + off + 16, uint8_t{0xFF});
    return contiguous(data_.buffers.back().data() + off, dtype, shape.data(), static_cast<int>(shape.size()));
  }
  template <class F>
  void fill(const TensorView& t, F value) {
    for (int64_t i = 0; i < t.numel(); ++i) store_float(t.data, t.dtype, i, value(i));
  }
  template <class F>
  void fill_rows(const TensorView& t, F value) {  // value(token, head, channel)
    for (int64_t b = 0; b < t.shape[0]; ++b)
      for (int64_t s = 0; s < t.shape[1]; ++s)
        for (int64_t h = 0; h < t.shape[2]; ++h)
          for (int64_t d = 0; d < t.shape[3]; ++d) {
            const bool used = c_.dense || s < total_;
            store_float(t.data, t.dtype, b * t.stride[0] + s * t.stride[1] + h * t.stride[2] + d, used ? value(b * T_ + s, h, d) : kNaN);
          }
  }
  float normal() { return static_cast<float>(random_.normal()); }

  void make_rows() {
    Args& a = data_.args;
    if (c_.layout == Layout::kFused) {  // one projection [B, T, H + H + HV + HV + 1, D]; the last head belongs to nobody
      const int64_t heads = 2 * c_.H + 2 * c_.HV + 1;
      TensorView all = tensor(c_.dtype, {B_, T_, heads, c_.D});
      int64_t first = 0;
      for (auto [view, count] : {std::pair(&a.q, c_.H), std::pair(&a.k, c_.H), std::pair(&a.v, c_.HV), std::pair(&a.g, c_.HV)}) {
        *view = all;
        view->shape[2] = count;
        view->data = static_cast<char*>(all.data) + first * c_.D * size_of(c_.dtype);
        first += count;
      }
    } else {
      a.q = tensor(c_.dtype, {B_, T_, c_.H, c_.D}), a.k = tensor(c_.dtype, {B_, T_, c_.H, c_.D});
      a.v = tensor(c_.dtype, {B_, T_, c_.HV, c_.D}), a.g = tensor(c_.g, {B_, T_, c_.HV, c_.D});
    }
    const float norm = c_.norm ? 1.0f : 1.0f / std::sqrt(static_cast<float>(c_.D));
    std::vector<float> key(static_cast<size_t>(c_.D));
    for (float& x : key) x = normal();
    fill_rows(a.q, [&](int64_t, int64_t, int64_t) { return norm * normal(); });
    fill_rows(a.k, [&](int64_t t, int64_t, int64_t d) {
      const float x = normal();
      if (c_.profile == Profile::kZeroKeys && t % 3 == 0) return 0.0f;
      return norm * (c_.profile == Profile::kRepeated ? key[static_cast<size_t>(d)] : x);
    });
    fill_rows(a.v, [&](int64_t, int64_t, int64_t) { return c_.value_scale * normal(); });

    a.beta = tensor(c_.beta, {B_, T_, c_.HV});
    fill(a.beta, [&](int64_t i) {
      const float x = normal();
      if (!c_.dense && i / c_.HV >= total_) return kNaN;
      if (c_.profile == Profile::kRepeated) return c_.logits ? 8.0f : 0.9995f;
      return c_.logits ? x : 1.0f / (1.0f + std::exp(-x));
    });
  }

  // A log decay of the profile.
  float decay(int64_t d) {
    const float x = normal(), u = static_cast<float>(random_.uniform());
    switch (c_.profile) {
      case Profile::kStandard:
      case Profile::kZeroKeys:
        return -2.5f - std::abs(x) * 0.5f;
      case Profile::kMixed:
        return -5.0f * static_cast<float>(d % 16) / 15.0f * (0.5f + 0.5f * u);
      case Profile::kWeak:
        return -std::pow(10.0f, -5.0f + 3.0f * u);
      case Profile::kStrong:
        return c_.gate == Gate::kBounded ? -5.0f : -40.0f * (1.0f + 64.0f * u * u);
      case Profile::kSpikes:
        return u < 0.02f ? (c_.gate == Gate::kBounded ? -5.0f : -500.0f - 2000.0f * u) : -1e-4f;
      case Profile::kRepeated:
        return c_.gate == Gate::kGiven ? 0.0f : -1e-5f;
    }
    return 0;
  }

  void make_gate() {
    Args& a = data_.args;
    std::vector<float> rate(static_cast<size_t>(c_.HV), 1.0f), bias(static_cast<size_t>(c_.HV * c_.D), 0.0f);
    if (c_.gate != Gate::kGiven && (c_.A_log || c_.gate == Gate::kUnbounded)) {
      a.A_log = tensor(DType::kFp32, {c_.HV});
      fill(a.A_log, [&](int64_t h) {
        const float log = c_.profile == Profile::kStrong || c_.profile == Profile::kSpikes ? 4.0f : 0.5f * normal();
        rate[static_cast<size_t>(h)] = std::exp(log);
        return log;
      });
    }
    if (c_.gate != Gate::kGiven && c_.dt_bias) {
      a.dt_bias = c_.flat_bias ? tensor(DType::kFp32, {c_.HV * c_.D}) : tensor(DType::kFp32, {c_.HV, c_.D});
      fill(a.dt_bias, [&](int64_t i) { return bias[static_cast<size_t>(i)] = normal(); });
    }
    // Raw gates that give about the wanted decay: the inverse of the activation, before rounding.
    fill_rows(a.g, [&](int64_t, int64_t h, int64_t d) {
      const float want = decay(d), r = rate[static_cast<size_t>(h)], b = bias[static_cast<size_t>(h * c_.D + d)];
      if (c_.gate == Gate::kGiven) return want;
      if (c_.gate == Gate::kBounded) {
        const float p = std::clamp(want / a.lower_bound, 1e-6f, 1.0f - 1e-6f);
        return std::log(p / (1 - p)) / r - b;
      }
      const float y = -want / r;
      return (y > 20 ? y : std::log(std::expm1(std::max(y, 1e-8f)))) - b;
    });
  }

  void put_index(const TensorView& t, int64_t i, int64_t value) {
    if (t.dtype == DType::kI64) t.as<int64_t>()[i] = value;
    else t.as<int32_t>()[i] = static_cast<int32_t>(value);
  }

  void make_cu_seqlens() {
    TensorView& cu = data_.args.cu_seqlens = tensor(c_.index, {N_ + 1}, false);
    int64_t end = 0;
    put_index(cu, 0, 0);
    for (int64_t n = 0; n < N_; ++n) put_index(cu, n + 1, end += c_.lengths[static_cast<size_t>(n)]);
  }

  void make_states() {
    Args& a = data_.args;
    const bool pool = c_.state == State::kPool || c_.state == State::kPoolInPlace;
    const int64_t rows = pool ? 2 * N_ + 3 : N_;
    std::vector<int64_t> row_of(static_cast<size_t>(N_));
    for (int64_t n = 0; n < N_; ++n) row_of[static_cast<size_t>(n)] = pool ? 2 * (N_ - n) + c_.lowest : n;
    if (pool) {
      a.state_indices = tensor(c_.index, {N_}, false);
      for (int64_t n = 0; n < N_; ++n) {
        if (c_.skipped && n % 3 == 1) row_of[static_cast<size_t>(n)] = n % 2 == 1 ? c_.lowest - 1 : rows + 5;
        put_index(a.state_indices, n, row_of[static_cast<size_t>(n)]);
      }
    }
    if (c_.flags) {
      a.has_initial_state = tensor(DType::kBool, {N_}, false);
      for (int64_t n = 0; n < N_; ++n) a.has_initial_state.as<uint8_t>()[n] = n % 2 == 0;
    }
    const int64_t size = c_.HV * c_.D * c_.D;
    if (c_.state != State::kNone) {
      a.initial_state = tensor(c_.state_dtype, {rows, c_.HV, c_.D, c_.D});
      fill(a.initial_state, [](int64_t) { return kNaN; });
      for (int64_t n = 0; n < N_; ++n) {
        const int64_t row = row_of[static_cast<size_t>(n)];
        if (row < 0 || row >= rows || row < c_.lowest || (c_.flags && n % 2 == 1)) continue;
        for (int64_t i = 0; i < size; ++i) store_float(a.initial_state.data, c_.state_dtype, row * size + i, 0.3f * c_.value_scale * normal());
      }
    }
    if (c_.state == State::kPoolInPlace) {
      a.final_state = a.initial_state;
    } else if (c_.final_state) {
      a.final_state = tensor(c_.state_dtype, {rows, c_.HV, c_.D, c_.D});
      fill(a.final_state, [](int64_t) { return kNaN; });
    }
  }

  void make_checkpoints() {
    if (c_.checkpoints == Checkpoints::kNone) return;
    Args& a = data_.args;
    int64_t rows = 0;
    for (int64_t length : c_.lengths) rows += length / 64;
    if (c_.checkpoints == Checkpoints::kOffsets || c_.checkpoints == Checkpoints::kScattered) {
      constexpr int64_t kP = 2;
      a.checkpoint_offsets = tensor(c_.index, {N_, kP}, false);
      for (int64_t n = 0; n < N_; ++n) {
        const int64_t last = c_.lengths[static_cast<size_t>(n)] / 64 * 64;
        put_index(a.checkpoint_offsets, n * kP, last > 0 ? last : -1);
        put_index(a.checkpoint_offsets, n * kP + 1, last > 64 ? 64 : -1);
      }
      rows = N_ * kP;
    }
    int64_t slots = rows + 1;
    if (c_.checkpoints == Checkpoints::kScattered) {
      slots = rows + 4;
      a.checkpoint_indices = tensor(c_.index, {rows}, false);
      for (int64_t r = 0; r < rows; ++r) put_index(a.checkpoint_indices, r, r == 1 ? -1 : rows + 2 - r);
    }
    a.checkpoints = tensor(c_.checkpoint_dtype, {slots, c_.HV, c_.D, c_.D});
    fill(a.checkpoints, [](int64_t) { return kNaN; });
  }

  const Case& c_;
  testing::Random random_;
  CaseData data_;
  int64_t total_ = 0, N_ = 0, B_ = 0, T_ = 0;
};

// Does a view that starts at `at` lie in this buffer? An empty buffer holds views of no elements; the end of one may be the start of the next.
bool inside(const uint8_t* at, const uint8_t* begin, size_t size) { return at == begin || (at > begin && at < begin + size); }

// Moves the views of `args` from the memory in `from` to that in `to`.
template <class Address>
void rebase(Args& args, const std::vector<std::vector<uint8_t>>& from, Device device, Address to) {
  for (auto member : kTensors) {
    TensorView& t = args.*member;
    if (!t.defined()) continue;
    const auto* at = static_cast<const uint8_t*>(t.data);
    for (size_t i = 0; i < from.size(); ++i)
      if (inside(at, from[i].data(), from[i].size())) {
        t.data = static_cast<uint8_t*>(to(i)) + (at - from[i].data());
        break;
      }
    t.device = device;
  }
}

}  // namespace

CaseData make_data(const Case& c) { return Builder(c).build(); }

PlacedCase::PlacedCase(const CaseData& data, testing::Backend& backend) : args_(data.args) {
  for (const auto& bytes : data.buffers) buffers_.push_back(std::make_unique<testing::Guarded>(backend, bytes.size()));
  if (!ok() || !upload(data).ok()) return;
  rebase(args_, data.buffers, backend.device(), [&](size_t i) { return buffers_[i]->data(); });
}

bool PlacedCase::ok() const {
  return std::all_of(buffers_.begin(), buffers_.end(), [](const auto& b) { return b->ok(); });
}

Status PlacedCase::upload(const CaseData& data) {
  for (size_t i = 0; i < buffers_.size(); ++i) HYLA_RETURN_IF_ERROR(buffers_[i]->upload(data.buffers[i].data()));
  return {};
}

CaseData PlacedCase::download() const {
  CaseData host{args_, {}};
  host.buffers.reserve(buffers_.size());
  for (const auto& b : buffers_) {
    host.buffers.emplace_back(b->bytes());
    if (!b->download(host.buffers.back().data()).ok()) std::fill(host.buffers.back().begin(), host.buffers.back().end(), uint8_t{0xEE});
  }
  for (auto member : kTensors) {
    TensorView& t = host.args.*member;
    if (!t.defined()) continue;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const auto* base = static_cast<const uint8_t*>(buffers_[i]->data());
      const auto* at = static_cast<const uint8_t*>(t.data);
      if (inside(at, base, buffers_[i]->bytes())) {
        t.data = host.buffers[i].data() + (at - base);
        break;
      }
    }
    t.device = {};
  }
  return host;
}

bool PlacedCase::intact() const {
  return std::all_of(buffers_.begin(), buffers_.end(), [](const auto& b) { return b->intact(); });
}

}  // namespace hyla::kda
