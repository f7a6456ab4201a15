#include "core/overlap.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace hyla {
namespace {

struct Range {
  uintptr_t begin = 0, end = 0;
};

// Bytes that dimensions [first, rank) reach from the start of the view.
int64_t reach(const TensorView& t, int first) {
  int64_t last = 0;
  for (int i = first; i < t.rank; ++i) last += (t.shape[i] - 1) * t.stride[i];
  return (last + 1) * size_of(t.dtype);
}

Range range_of(const TensorView& t) {
  const auto begin = reinterpret_cast<uintptr_t>(t.data);
  return {begin, begin + static_cast<uintptr_t>(reach(t, 0))};
}

}  // namespace

bool overlaps_itself(const TensorView& t) {
  if (t.numel() == 0) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, extent
  for (int i = 0; i < t.rank; ++i)
    if (t.shape[i] > 1) dims.emplace_back(t.stride[i], t.shape[i]);
  std::sort(dims.begin(), dims.end());
  int64_t span = 1;  // elements reached by the dimensions seen so far
  for (const auto& [stride, extent] : dims) {
    if (stride < span) return true;
    span += (extent - 1) * stride;
  }
  return false;
}

bool overlap(const TensorView& a, const TensorView& b) {
  if (a.numel() == 0 || b.numel() == 0 || !(a.device == b.device)) return false;
  const Range ra = range_of(a), rb = range_of(b);
  if (ra.end <= rb.begin || rb.end <= ra.begin) return false;
  // Slices of one projection: equal row pitch, and each row's bytes lie apart from the other's within the pitch.
  // (The stride of a single row is not checked and may be any number.)
  int64_t pitch, other;
  if (__builtin_mul_overflow(a.stride[0], size_of(a.dtype), &pitch) || __builtin_mul_overflow(b.stride[0], size_of(b.dtype), &other)) return true;
  if (pitch > 0 && pitch == other) {
    const int64_t wa = reach(a, 1), wb = reach(b, 1);
    const int64_t shift = static_cast<int64_t>(ra.begin >= rb.begin ? (ra.begin - rb.begin) % pitch : (pitch - (rb.begin - ra.begin) % pitch) % pitch);
    if (shift >= wb && shift + wa <= pitch) return false;  // a's row starts `shift` bytes into b's pitch
  }
  return true;
}

std::string describe_strides(const TensorView& t) {
  std::string text = "[";
  for (int i = 0; i < t.rank; ++i) text += (i ? ", " : "") + std::to_string(t.stride[i]);
  return text + "]";
}

}  // namespace hyla
