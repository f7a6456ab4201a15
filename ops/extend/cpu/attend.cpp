#include "ops/extend/cpu/attend.h"

#include <Eigen/Core>
#include <cmath>
#include <limits>

#include "core/threads.h"
#include "ops/extend/cpu/convert.h"
#include "ops/extend/cpu/request.h"
#include "ops/extend/problem.h"

namespace hyla::extend::cpu {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowsMap = Eigen::Map<Matrix>;
using StridedMap = Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;
using RowMap = Eigen::Map<Eigen::ArrayXf>;

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
// Eigen's exp does not reach zero (it clamps its argument): subtracting the smallest normal number turns what is masked into an exact zero and
// changes no weight above 1e-30.
constexpr float kExpFloor = std::numeric_limits<float>::min();

// Rows [first, first + rows) of request x group for one KV head: row = token * group + head in the group.
struct RowTile {
  Request request;
  int64_t head = 0;  // KV head
  int64_t first = 0, rows = 0;
};

// Keys of one segment, all visible keys of the tile within it.
struct Segment {
  const TensorView &k, &v;
  PoolLayout k_at, v_at;
  const void* slots = nullptr;  // kv_indices; null: key j is row `base + j`
  DType slot_type = DType::kI64;
  int64_t base = 0;      // first entry of kv_indices, or first row
  int64_t position = 0;  // of key 0
  float scale = 1;       // of the raw scores
  bool prefix = false;
  bool v_aliases_k = false;
};

class TileTask {
 public:
  TileTask(const Problem& p, const Args& args, const Scratch& s, const RowTile& tile)
      : p_(p), args_(args), s_(s), tile_(tile), r_(tile.request), group_(p.Hq / p.Hkv), n_tile_(tile_of(p.Lq, p.Lv).n) {}

  void run() {
    load_q();
    RowMap(s_.row_max, tile_.rows).setConstant(kMinusInf);
    RowMap(s_.row_sum, tile_.rows).setZero();
    RowMap(s_.o, tile_.rows * p_.Lv).setZero();
    const Visible first = visible_to(p_, r_, token_of(0)), last = visible_to(p_, r_, token_of(tile_.rows - 1));
    walk(prefix_segment(), first.prefix_begin, r_.prefix);
    // v_scale belongs to the prefix part alone; folded into O between the two parts it costs nothing and rounds once.
    if (p_.v_scale != 1) RowMap(s_.o, tile_.rows * p_.Lv) *= p_.v_scale;
    walk(new_segment(), first.new_begin, last.new_end);
    store();
  }

 private:
  int64_t token_of(int64_t row) const { return (tile_.first + row) / group_; }
  int64_t head_of(int64_t row) const { return tile_.head * group_ + (tile_.first + row) % group_; }

  Segment prefix_segment() const {
    return {args_.k_buffer,
            args_.v_buffer,
            pool_layout(args_.k_buffer),
            pool_layout(args_.v_buffer),
            args_.kv_indices.data,
            args_.kv_indices.dtype,
            r_.listed,
            0,
            p_.sm_scale * p_.k_scale,
            true,
            p_.v_aliases_k};
  }
  Segment new_segment() const {
    const auto layout = [](const TensorView& t) { return PoolLayout{t.shape[0], 1, t.stride[0], t.stride[0], t.stride[1]}; };
    return {args_.k, args_.v, layout(args_.k), layout(args_.v), nullptr, DType::kI64, r_.row, r_.prefix, p_.sm_scale, false, p_.v_aliases_k};
  }

  void load_q() {
    const ConvertRow convert = convert_row_of(p_.dtype);
    for (int64_t row = 0; row < tile_.rows; ++row)
      convert(args_.q.data, (r_.row + token_of(row)) * args_.q.stride[0] + head_of(row) * args_.q.stride[1], p_.Lq, s_.q + row * p_.Lq);
  }

  // Key tiles start at multiples of the tile size wherever a window begins.
  void walk(const Segment& segment, int64_t begin, int64_t end) {
    for (int64_t j = begin / n_tile_ * n_tile_; j < end; j += n_tile_) key_tile(segment, j, std::min(n_tile_, end - j));
  }

  struct Range {
    int64_t begin = 0, end = 0;
    bool empty() const { return begin >= end; }
  };
  // Keys of the tile at j0 that the row's position allows.
  Range keys_of(const Segment& segment, int64_t row, int64_t j0, int64_t keys) const {
    const Visible seen = visible_to(p_, r_, token_of(row));
    Range r;
    r.begin = std::clamp<int64_t>((segment.prefix ? seen.prefix_begin : seen.new_begin) - j0, 0, keys);
    r.end = std::clamp<int64_t>((segment.prefix ? r_.prefix : seen.new_end) - j0, r.begin, keys);
    return r;
  }

  void key_tile(const Segment& segment, int64_t j0, int64_t keys) {
    // Rows above the diagonal or past the window see nothing here. What rows see moves with them, so the rows that see something are one range.
    Range rows{0, tile_.rows};
    while (!rows.empty() && keys_of(segment, rows.begin, j0, keys).empty()) ++rows.begin;
    while (!rows.empty() && keys_of(segment, rows.end - 1, j0, keys).empty()) --rows.end;
    if (rows.empty()) return;
    const int64_t count = rows.end - rows.begin;
    const bool all_listed = load_keys(segment, j0, keys);
    RowsMap scores(s_.s + rows.begin * keys, count, keys);
    scores.noalias() = RowsMap(s_.q + rows.begin * p_.Lq, count, p_.Lq) * RowsMap(s_.k, keys, p_.Lq).transpose();
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      transform(segment, row, keys);
      mask(segment, row, j0, keys, all_listed);
      softmax(row, keys);
    }
    const StridedMap values(segment.v_aliases_k ? s_.k : s_.v, keys, p_.Lv, Eigen::OuterStride<>(segment.v_aliases_k ? p_.Lq : p_.Lv));
    // Weight 0 times a NaN or Inf of a key that some rows must not see would spoil them: such tiles add up only what is seen.
    const float probe = (values.array() * 0.0f).sum();
    if (probe == 0) RowsMap(s_.o + rows.begin * p_.Lv, count, p_.Lv).noalias() += scores * values;
    else add_seen(rows.begin, scores, values);
  }

  // Rows of K and V to fp32. A slot outside the pool is never read: its row becomes zero. False when there was one.
  bool load_keys(const Segment& segment, int64_t j0, int64_t keys) {
    const ConvertRow convert = convert_row_of(segment.k.dtype);
    bool all = true;
    for (int64_t j = 0; j < keys; ++j) {
      float* k = s_.k + j * p_.Lq;
      float* v = s_.v + j * p_.Lv;
      const int64_t slot = slot_of(segment, j0 + j);
      if (slot < 0) {
        std::fill_n(k, p_.Lq, 0.0f), std::fill_n(v, p_.Lv, 0.0f);
        all = false;
        continue;
      }
      convert(segment.k.data, offset_of(segment.k_at, slot), p_.Lq, k);
      if (!segment.v_aliases_k) convert(segment.v.data, offset_of(segment.v_at, slot), p_.Lv, v);
    }
    return all;
  }
  // -1 when kv_indices names no slot of the pool.
  int64_t slot_of(const Segment& segment, int64_t j) const {
    if (!segment.prefix) return segment.base + j;
    const int64_t slot = load_index(segment.slots, segment.slot_type, segment.base + j);
    return slot >= 0 && slot < segment.k_at.slots ? slot : -1;
  }
  int64_t offset_of(const PoolLayout& at, int64_t slot) const { return slot / at.page_size * at.page + slot % at.page_size * at.token + tile_.head * at.head; }

  // Scale, cap, temperature.
  void transform(const Segment& segment, int64_t row, int64_t keys) {
    RowMap s(s_.s + row * keys, keys);
    float factor = 1;
    if (p_.xai_temperature_len > 0) {
      const int64_t position = r_.prefix + token_of(row);
      if (position > p_.xai_temperature_len)
        factor = static_cast<float>(std::log2(static_cast<double>(position)) / std::log2(static_cast<double>(p_.xai_temperature_len)));
    }
    if (p_.logit_cap > 0) s = (s * (segment.scale / p_.logit_cap)).tanh() * (p_.logit_cap * factor);
    else s *= segment.scale * factor;
  }

  void mask(const Segment& segment, int64_t row, int64_t j0, int64_t keys, bool all_listed) {
    float* s = s_.s + row * keys;
    const auto [begin, end] = keys_of(segment, row, j0, keys);
    std::fill(s, s + begin, kMinusInf);
    std::fill(s + end, s + keys, kMinusInf);
    if (p_.has_mask && !(segment.prefix && p_.skip_prefix_custom_mask)) {
      const int64_t column = r_.mask + token_of(row) * r_.mask_row + segment.position + j0, size = args_.custom_mask.shape[0];
      const uint8_t* allowed = args_.custom_mask.as<const uint8_t>();
      for (int64_t j = begin; j < end; ++j)
        if (column + j >= size || allowed[column + j] == 0) s[j] = kMinusInf;
    }
    if (!all_listed)
      for (int64_t j = begin; j < end; ++j)
        if (slot_of(segment, j0 + j) < 0) s[j] = kMinusInf;
  }

  // Scores of a row to weights; rescales what the row has gathered so far.
  void softmax(int64_t row, int64_t keys) {
    RowMap s(s_.s + row * keys, keys);
    const float tile_max = s.maxCoeff<Eigen::PropagateNaN>();
    const float old_max = s_.row_max[row];
    const float new_max = tile_max > old_max || std::isnan(tile_max) ? tile_max : old_max;
    if (new_max == kMinusInf) {  // no key seen yet
      s.setZero();
      return;
    }
    s = ((s - new_max).exp() - kExpFloor).max(0.0f);  // a NaN stays
    const float kept = old_max == kMinusInf ? 0 : std::exp(old_max - new_max);
    if (kept != 1) RowMap(s_.o + row * p_.Lv, p_.Lv) *= kept;
    s_.row_sum[row] = s_.row_sum[row] * kept + s.sum();
    s_.row_max[row] = new_max;
  }

  template <class Scores, class Values>
  void add_seen(int64_t first, const Scores& weights, const Values& values) {
    for (int64_t row = 0; row < weights.rows(); ++row)
      for (int64_t j = 0; j < weights.cols(); ++j)
        if (weights(row, j) != 0) RowMap(s_.o + (first + row) * p_.Lv, p_.Lv) += weights(row, j) * values.row(j).transpose().array();
  }

  void store() {
    for (int64_t row = 0; row < tile_.rows; ++row) {
      const int64_t token = r_.row + token_of(row), head = head_of(row);
      float max = s_.row_max[row], sum = s_.row_sum[row], weight = 1;
      if (p_.has_sinks) {
        const float sink = load_float(args_.sinks.data, args_.sinks.dtype, head);
        const float top = std::max(max, sink);
        if (top != kMinusInf) {
          weight = max == kMinusInf ? 0 : std::exp(max - top);
          sum = sum * weight + std::exp(sink - top), max = top;
        }
      }
      const float factor = sum == 0 ? 0 : weight / sum;
      const float* o = s_.o + row * p_.Lv;
      const int64_t at = token * args_.out.stride[0] + head * args_.out.stride[1];
      for (int64_t c = 0; c < p_.Lv; ++c) store_float(args_.out.data, p_.out, at + c, o[c] * factor);
      if (p_.has_lse) args_.lse.as<float>()[token * args_.lse.stride[0] + head * args_.lse.stride[1]] = sum == 0 ? kMinusInf : max + std::log(sum);
    }
  }

  const Problem& p_;
  const Args& args_;
  const Scratch& s_;
  const RowTile& tile_;
  const Request& r_;
  const int64_t group_, n_tile_;
};

}  // namespace

void attend(const Problem& p, const Args& args, const Buffers& buffers) {
  const int64_t group = p.Hq / p.Hkv, m = tile_of(p.Lq, p.Lv).m;
  buffers.tile_start[0] = 0;
  for (int64_t i = 0; i < p.batch; ++i) buffers.tile_start[i + 1] = buffers.tile_start[i] + (request_at(p, args, i).rows * group + m - 1) / m;
  const int64_t tiles = buffers.tile_start[p.batch];

  // Heads vary slowest: a head's keys stay in the shared cache while its tiles run. Within a request the last tile, the longest when causal, goes first.
  parallel_for(tiles * p.Hkv, 1, [&](int64_t begin, int64_t end, int worker) {
    WorkspaceLayout layout(buffers.scratch + static_cast<size_t>(worker) * buffers.scratch_bytes);
    const Scratch scratch = take_scratch(layout, p);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t t = item % tiles;
      const int64_t i = std::upper_bound(buffers.tile_start, buffers.tile_start + p.batch + 1, t) - buffers.tile_start - 1;
      RowTile tile;
      tile.request = request_at(p, args, i);
      tile.head = item / tiles;
      tile.first = (buffers.tile_start[i + 1] - 1 - t) * m;
      tile.rows = std::min(m, tile.request.rows * group - tile.first);
      TileTask(p, args, scratch, tile).run();
    }
  });
}

}  // namespace hyla::extend::cpu
