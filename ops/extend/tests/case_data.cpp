#include "ops/extend/tests/case_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/numeric.h"
#include "ops/extend/reference.h"

namespace hyla::extend {
namespace {

constexpr uint8_t kPoison = 0xFF;  // NaN in every floating type, -1 in every integer one

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1p-24f; }
  float normal() { return (uniform() + uniform() + uniform() + uniform() - 2) * 1.7320508f; }
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }

 private:
  uint64_t state_;
};

int64_t total(const std::vector<int64_t>& lengths) { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }

class Maker {
 public:
  explicit Maker(const Case& c) : c_(c), random_(c.seed) {
    rows_ = total(c.extend) + c.trailing, listed_ = total(c.prefix), batch_ = static_cast<int64_t>(c.extend.size());
  }
  CaseData make() {
    data_.buffers.reserve(32);
    scalars(), indices(), new_tokens(), pool(), mask(), sinks(), outputs();
    poison_unseen();
    return std::move(data_);
  }

 private:
  Args& a() { return data_.args; }

  uint8_t* buffer(int64_t bytes) {
    data_.buffers.emplace_back(static_cast<size_t>(bytes), kPoison);
    return data_.buffers.back().data();
  }
  TensorView fresh(DType dtype, std::initializer_list<int64_t> shape) {
    TensorView t = contiguous(nullptr, dtype, shape);
    t.data = buffer(std::max<int64_t>(t.numel() * size_of(dtype), 1));
    return t;
  }
  TensorView integers(DType dtype, const std::vector<int64_t>& values) {
    TensorView t = fresh(dtype, {static_cast<int64_t>(values.size())});
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kI64) t.as<int64_t>()[i] = values[i];
      else t.as<int32_t>()[i] = static_cast<int32_t>(values[i]);
    }
    return t;
  }
  std::vector<int64_t> starts(const std::vector<int64_t>& lengths) {
    std::vector<int64_t> s{0};
    for (const int64_t l : lengths) s.push_back(s.back() + l);
    return s;
  }
  // Rows [0, rows) of a 3-D tensor get random values.
  void fill_row(const TensorView& t, int64_t offset, int64_t heads, int64_t head_stride, float size) {
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t d = 0; d < t.shape[t.rank - 1]; ++d) store_float(t.data, t.dtype, offset + h * head_stride + d, random_.normal() * size);
  }
  void fill_tokens(const TensorView& t, float size) {
    const int64_t used = rows_ - c_.trailing;
    for (int64_t row = 0; row < used; ++row) fill_row(t, row * t.stride[0], t.shape[1], t.stride[1], size);
  }

  void scalars() {
    a().causal = c_.causal, a().sliding_window = c_.window, a().logit_cap = c_.cap, a().k_scale = c_.k_scale, a().v_scale = c_.v_scale;
    a().xai_temperature_len = c_.temperature, a().skip_prefix = c_.skip_prefix, a().skip_extend = c_.skip_extend;
    a().skip_prefix_custom_mask = !c_.mask_prefix;
    a().max_extend = c_.extend.empty() ? 0 : *std::max_element(c_.extend.begin(), c_.extend.end());
    a().max_prefix = c_.prefix.empty() ? 0 : *std::max_element(c_.prefix.begin(), c_.prefix.end());
  }

  // Random slots of a pool with room for as many keys again, each request's in its own pages when pages are larger than one.
  void indices() {
    a().qo_indptr = integers(c_.index, starts(c_.extend)), a().kv_indptr = integers(c_.index, starts(c_.prefix));
    int64_t pages = 0;
    for (const int64_t p : c_.prefix) pages += (p + c_.page_size - 1) / c_.page_size;
    pages_ = 2 * pages + 3;
    std::vector<int64_t> order(static_cast<size_t>(pages_));
    std::iota(order.begin(), order.end(), 0);
    for (int64_t i = pages_ - 1; i > 0; --i) std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random_.below(i + 1))]);
    size_t next = 0;
    for (const int64_t p : c_.prefix)
      for (int64_t j = 0; j < p; ++j) {
        if (j % c_.page_size == 0) ++next;
        slots_.push_back(order[next - 1] * c_.page_size + j % c_.page_size);
      }
    const int64_t slots = pages_ * c_.page_size;
    for (int64_t b = 0; b < c_.bad_slots && listed_ > 0; ++b) {
      const int64_t outside[] = {-1, slots, slots + 1000000, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()};
      slots_[static_cast<size_t>(random_.below(listed_))] = outside[b % 5];
    }
    a().kv_indices = integers(c_.index, slots_);
  }

  void new_tokens() {
    const int64_t qd = c_.Hq * c_.Lq, kd = c_.Hkv * c_.Lq, vd = c_.latent ? 0 : c_.Hkv * c_.Lv;
    if (c_.fused) {
      TensorView all = fresh(c_.dtype, {rows_, qd + kd + vd});
      const auto slice = [&](int64_t column, int64_t heads, int64_t dim) {
        TensorView t = contiguous(static_cast<uint8_t*>(all.data) + column * size_of(c_.dtype), c_.dtype, {rows_, heads, dim});
        t.stride[0] = all.stride[0];
        return t;
      };
      a().q = slice(0, c_.Hq, c_.Lq), a().k = slice(qd, c_.Hkv, c_.Lq);
      if (!c_.latent) a().v = slice(qd + kd, c_.Hkv, c_.Lv);
    } else {
      a().q = fresh(c_.dtype, {rows_, c_.Hq, c_.Lq}), a().k = fresh(c_.dtype, {rows_, c_.Hkv, c_.Lq});
      if (!c_.latent) a().v = fresh(c_.dtype, {rows_, c_.Hkv, c_.Lv});
    }
    if (c_.latent) a().v = a().k, a().v.shape[2] = c_.Lv;
    fill_tokens(a().q, c_.gain), fill_tokens(a().k, 1);
    if (!c_.latent) fill_tokens(a().v, 1);
  }

  void pool() {
    const int64_t page = c_.page_size, slots = pages_ * page;
    const auto strided = [&](void* data, int64_t dim, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> stride) {
      TensorView t = contiguous(data, c_.pool_dtype, shape);
      std::copy(stride.begin(), stride.end(), t.stride.begin());
      t.shape[t.rank - 1] = dim;
      return t;
    };
    const auto build = [&](int64_t dim) {
      const int64_t row = c_.Hkv * dim, size = size_of(c_.pool_dtype);
      switch (c_.pool) {
        case Pool::kPages:
          return fresh(c_.pool_dtype, {pages_, page, c_.Hkv, dim});
        case Pool::kHeadsFirst:
          return strided(buffer(slots * row * size), dim, {pages_, page, c_.Hkv, dim}, {page * row, dim, page * dim, 1});
        case Pool::kStacked:
          return strided(buffer(slots * 3 * row * size) + row * size, dim, {slots, c_.Hkv, dim}, {3 * row, dim, 1});
        default:
          return fresh(c_.pool_dtype, {slots, c_.Hkv, dim});
      }
    };
    if (c_.pool == Pool::kBlocksFirst) {
      const int64_t k_row = c_.Hkv * c_.Lq, v_row = c_.Hkv * c_.Lv, block = page * (k_row + v_row), size = size_of(c_.pool_dtype);
      uint8_t* both = buffer(pages_ * block * size);
      a().k_buffer = strided(both, c_.Lq, {pages_, page, c_.Hkv, c_.Lq}, {block, k_row, c_.Lq, 1});
      a().v_buffer = strided(both + page * k_row * size, c_.Lv, {pages_, page, c_.Hkv, c_.Lv}, {block, v_row, c_.Lv, 1});
    } else {
      a().k_buffer = build(c_.Lq);
      if (!c_.latent) a().v_buffer = build(c_.Lv);
    }
    if (c_.latent) a().v_buffer = a().k_buffer, a().v_buffer.shape[a().v_buffer.rank - 1] = c_.Lv;
    for (const int64_t slot : slots_) {
      if (slot < 0 || slot >= slots) continue;
      fill_slot(a().k_buffer, slot, 1 / c_.k_scale);
      if (!c_.latent) fill_slot(a().v_buffer, slot, 1 / c_.v_scale);
    }
  }
  int64_t slot_offset(const TensorView& t, int64_t slot) const {
    return t.rank == 3 ? slot * t.stride[0] : slot / t.shape[1] * t.stride[0] + slot % t.shape[1] * t.stride[1];
  }
  void fill_slot(const TensorView& t, int64_t slot, float size) { fill_row(t, slot_offset(t, slot), t.shape[t.rank - 2], t.stride[t.rank - 2], size); }

  void mask() {
    if (c_.mask == Mask::kNone) return;
    std::vector<int64_t> begin{0};
    for (size_t i = 0; i < c_.extend.size(); ++i) begin.push_back(begin.back() + c_.extend[i] * (c_.extend[i] + c_.prefix[i] + c_.mask_offset));
    a().mask_indptr = integers(DType::kI64, begin);
    a().custom_mask = fresh(DType::kU8, {begin.back()});
    if (c_.mask_offset > 0) a().window_kv_offsets = integers(c_.index, std::vector<int64_t>(c_.extend.size(), c_.mask_offset));
    for (size_t i = 0; i < c_.extend.size(); ++i)
      for (int64_t q = 0; q < c_.extend[i]; ++q) {
        const int64_t columns = c_.extend[i] + c_.prefix[i] + c_.mask_offset;
        uint8_t* row = a().custom_mask.as<uint8_t>() + begin[i] + q * columns;
        for (int64_t column = 0; column < columns; ++column) row[column] = allow(q, column - c_.mask_offset - c_.prefix[i], c_.extend[i]);
      }
  }
  // `key` counts from the first new token; negative in the prefix.
  uint8_t allow(int64_t q, int64_t key, int64_t rows) {
    switch (c_.mask) {
      case Mask::kCausal:
        return key <= q;
      case Mask::kTree:
        return key < 0 ? random_.below(4) != 0 : key == q || (key < q && random_.below(3) == 0);
      case Mask::kBlockCausal:
        return key / 32 <= q / 32;
      case Mask::kSparse:
        return q < 14 || q == rows - 1 || (q > 30 && q < 40) ? 0 : random_.below(5) == 0;
      default:
        return 255;
    }
  }

  void sinks() {
    if (c_.sinks == Sinks::kNone) return;
    a().sinks = fresh(c_.sinks == Sinks::kFp32 ? DType::kFp32 : DType::kBf16, {c_.Hq});
    for (int64_t h = 0; h < c_.Hq; ++h)
      store_float(a().sinks.data, a().sinks.dtype, h, (h % 2 == 0 ? c_.sink_size : -c_.sink_size) * (1 - 0.2f * random_.uniform()));
  }

  void outputs() {
    data_.out_buffer = data_.buffers.size();
    a().out = fresh(c_.out, {rows_, c_.Hq, c_.Lv});
    if (!c_.lse) return;
    data_.lse_buffer = data_.buffers.size();
    a().lse = fresh(DType::kFp32, {rows_, c_.Hq});
  }

  void poison_row(const TensorView& t, int64_t offset) {
    for (int64_t h = 0; h < t.shape[t.rank - 2]; ++h)
      std::memset(static_cast<uint8_t*>(t.data) + (offset + h * t.stride[t.rank - 2]) * size_of(t.dtype), kPoison,
                  static_cast<size_t>(t.shape[t.rank - 1] * size_of(t.dtype)));
  }
  void poison_unseen() {
    int64_t first_row = 0, first_listed = 0;
    for (size_t i = 0; i < c_.extend.size(); ++i) {
      for (int64_t key = 0; key < c_.prefix[i] + c_.extend[i]; ++key) {
        bool seen = false;
        for (int64_t q = 0; q < c_.extend[i] && !seen; ++q) seen = key_allowed(a(), static_cast<int64_t>(i), q, key);
        if (seen) continue;
        if (key < c_.prefix[i]) {
          const int64_t slot = slots_[static_cast<size_t>(first_listed + key)];
          if (slot < 0 || slot >= pages_ * c_.page_size) continue;
          poison_row(a().k_buffer, slot_offset(a().k_buffer, slot)), poison_row(a().v_buffer, slot_offset(a().v_buffer, slot));
        } else {
          const int64_t row = first_row + key - c_.prefix[i];
          poison_row(a().k, row * a().k.stride[0]), poison_row(a().v, row * a().v.stride[0]);
        }
      }
      first_row += c_.extend[i], first_listed += c_.prefix[i];
    }
  }

  const Case& c_;
  Random random_;
  CaseData data_;
  int64_t rows_ = 0, listed_ = 0, batch_ = 0, pages_ = 0;
  std::vector<int64_t> slots_;
};

template <class Visit>
void for_each_view(Args& a, Visit visit) {
  for (TensorView* t : {&a.q, &a.k, &a.v, &a.k_buffer, &a.v_buffer, &a.qo_indptr, &a.kv_indptr, &a.kv_indices, &a.custom_mask, &a.mask_indptr,
                        &a.window_kv_offsets, &a.sinks, &a.out, &a.lse})
    if (t->defined()) visit(*t);
}

}  // namespace

CaseData make_data(const Case& c) { return Maker(c).make(); }

PlacedCase::PlacedCase(const CaseData& data, testing::Backend& backend, size_t shift) : data_(data), args_(data.args) {
  for (const auto& bytes : data.buffers) {
    bool fits = true;  // a shift must leave elements aligned
    for_each_view(args_, [&](TensorView& t) {
      const auto* p = static_cast<const uint8_t*>(t.data);
      if (p >= bytes.data() && p < bytes.data() + bytes.size()) fits = fits && shift % static_cast<size_t>(size_of(t.dtype)) == 0;
    });
    buffers_.push_back(std::make_unique<testing::Guarded>(backend, bytes.size(), fits ? shift : 0));
    if (!buffers_.back()->ok() || !buffers_.back()->upload(bytes.data()).ok()) return;
  }
  for_each_view(args_, [&](TensorView& t) {
    t.device = backend.device();
    const auto* p = static_cast<const uint8_t*>(t.data);
    for (size_t b = 0; b < data.buffers.size(); ++b) {
      const auto& bytes = data.buffers[b];
      if (p >= bytes.data() && p < bytes.data() + bytes.size()) {
        t.data = static_cast<uint8_t*>(buffers_[b]->data()) + (p - bytes.data());
        return;
      }
    }
  });
}

bool PlacedCase::ok() const {
  return buffers_.size() == data_.buffers.size() && std::all_of(buffers_.begin(), buffers_.end(), [](const auto& b) { return b->ok(); });
}

Status PlacedCase::replace_contents(const CaseData& other) {
  if (other.buffers.size() != buffers_.size()) return Status::invalid("other.buffers", std::to_string(buffers_.size()), std::to_string(other.buffers.size()));
  for (size_t b = 0; b < buffers_.size(); ++b) {
    if (other.buffers[b].size() != buffers_[b]->bytes())
      return Status::invalid("other.buffers[" + std::to_string(b) + "]", std::to_string(buffers_[b]->bytes()) + " bytes",
                             std::to_string(other.buffers[b].size()));
    HYLA_RETURN_IF_ERROR(buffers_[b]->upload(other.buffers[b].data()));
  }
  return {};
}

Status PlacedCase::poison_outputs() {
  HYLA_RETURN_IF_ERROR(buffers_[data_.out_buffer]->fill(kPoison));
  return args_.lse.defined() ? buffers_[data_.lse_buffer]->fill(kPoison) : Status{};
}

Status PlacedCase::outputs(std::vector<uint8_t>& out, std::vector<uint8_t>& lse) const {
  out.resize(buffers_[data_.out_buffer]->bytes());
  HYLA_RETURN_IF_ERROR(buffers_[data_.out_buffer]->download(out.data()));
  if (!args_.lse.defined()) return lse.clear(), Status{};
  lse.resize(buffers_[data_.lse_buffer]->bytes());
  return buffers_[data_.lse_buffer]->download(lse.data());
}

std::string PlacedCase::damage() const {
  std::vector<uint8_t> now;
  const Args& host = data_.args;
  const int64_t used = load_index(host.qo_indptr.data, host.qo_indptr.dtype, host.qo_indptr.shape[0] - 1);
  for (size_t b = 0; b < buffers_.size(); ++b) {
    if (!buffers_[b]->intact()) return "a canary around buffer " + std::to_string(b) + " was overwritten";
    now.resize(buffers_[b]->bytes());
    if (!buffers_[b]->download(now.data()).ok()) return "buffer " + std::to_string(b) + " could not be read back";
    const bool out = b == data_.out_buffer, lse = host.lse.defined() && b == data_.lse_buffer;
    if (!out && !lse) {
      if (now != data_.buffers[b]) return "input buffer " + std::to_string(b) + " was changed";
      continue;
    }
    const TensorView& t = out ? host.out : host.lse;
    for (size_t i = static_cast<size_t>(used * t.stride[0] * size_of(t.dtype)); i < now.size() && t.numel() > 0; ++i)
      if (now[i] != kPoison) return std::string(out ? "out" : "lse") + " was written past the last request's rows";
  }
  return {};
}

int64_t count_pairs(const Args& args) {
  int64_t pairs = 0;
  for (int64_t i = 0; i + 1 < args.qo_indptr.shape[0]; ++i) {
    const auto length = [i](const TensorView& t) { return load_index(t.data, t.dtype, i + 1) - load_index(t.data, t.dtype, i); };
    const int64_t rows = length(args.qo_indptr), keys = rows + length(args.kv_indptr);
    for (int64_t q = 0; q < rows; ++q)
      for (int64_t key = 0; key < keys; ++key) pairs += key_allowed(args, i, q, key);
  }
  return pairs;
}

}  // namespace hyla::extend
