// One request as the index tensors describe it, with every offset clamped into its tensor, whatever they hold.
#pragma once
#include <algorithm>

#include "core/numeric.h"
#include "hyla/extend.h"

namespace hyla::extend::cpu {

struct Request {
  int64_t row = 0, rows = 0;       // of the packed new tokens
  int64_t listed = 0, prefix = 0;  // first entry in kv_indices, and how many
  int64_t mask = 0, mask_row = 0;  // first element of the mask (column 0 of query 0) and elements a query; columns are positions
};

// Keys a query sees by position: prefix positions [prefix_begin, P) and new tokens [new_begin, new_end).
struct Visible {
  int64_t prefix_begin = 0, new_begin = 0, new_end = 0;
};

inline Request request_at(const Problem& p, const Args& args, int64_t i) {
  const auto at = [](const TensorView& t, int64_t j) { return load_index(t.data, t.dtype, j); };
  Request r;
  r.row = std::clamp<int64_t>(at(args.qo_indptr, i), 0, p.n);
  r.rows = std::max<int64_t>(std::min(at(args.qo_indptr, i + 1), p.n) - r.row, 0);
  r.listed = std::clamp<int64_t>(at(args.kv_indptr, i), 0, p.prefix_capacity);
  r.prefix = std::max<int64_t>(std::min(at(args.kv_indptr, i + 1), p.prefix_capacity) - r.listed, 0);
  if (p.has_mask) {
    const int64_t offset = p.has_window_offsets ? std::clamp<int64_t>(at(args.window_kv_offsets, i), 0, args.custom_mask.shape[0]) : 0;
    r.mask_row = r.prefix + r.rows + offset;
    r.mask = std::clamp<int64_t>(at(args.mask_indptr, i), 0, args.custom_mask.shape[0]) + offset;
  }
  return r;
}

inline Visible visible_to(const Problem& p, const Request& r, int64_t token) {
  // Clipped so that sums with positions cannot overflow.
  const int64_t window = p.sliding_window < 0 ? -1 : std::min<int64_t>(p.sliding_window, int64_t{1} << 60);
  Visible v;
  if (window >= 0) v.prefix_begin = std::min(std::max<int64_t>(r.prefix + token - window, 0), r.prefix), v.new_begin = std::max<int64_t>(token - window, 0);
  v.new_end = p.has_mask ? r.rows : p.causal ? token + 1 : window >= 0 ? std::min(r.rows, token + window + 1) : r.rows;
  if (p.skip_prefix) v.prefix_begin = r.prefix;
  if (p.skip_extend) v.new_end = v.new_begin = 0;
  return v;
}

}  // namespace hyla::extend::cpu
