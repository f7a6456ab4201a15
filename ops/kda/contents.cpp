// Checks that read indices and lengths: for debugging, on arguments that the CPU can read.
#include <fmt/format.h>

#include <set>

#include "core/numeric.h"
#include "ops/kda/problem.h"

namespace hyla::kda {
namespace {

int64_t at(const TensorView& t, int64_t i) { return load_index(t.data, t.dtype, i * t.stride[0]); }

Status check_cu_seqlens(const TensorView& cu, const Problem& p) {
  int64_t last = 0;
  for (int64_t n = 0; n <= p.N; ++n) {
    const int64_t value = at(cu, n);
    const std::string name = fmt::format("cu_seqlens[{}]", n);
    if (n == 0 && value != 0) return Status::invalid(name, "0", std::to_string(value));
    if (value < last) return Status::invalid(name, fmt::format("at least {} (the value before it)", last), std::to_string(value));
    if (value > p.T) return Status::invalid(name, fmt::format("at most {} (= q.shape[1])", p.T), std::to_string(value));
    last = value;
  }
  return {};
}

Status check_state_indices(const Args& a, const Problem& p) {
  std::set<int64_t> seen;
  for (int64_t n = 0; n < p.N; ++n) {
    const int64_t slot = at(a.state_indices, n);
    const std::string name = fmt::format("state_indices[{}]", n);
    if (slot < a.lowest_valid_slot) continue;
    if (slot >= p.slots) return Status::invalid(name, fmt::format("a slot below {} (the pool)", p.slots), std::to_string(slot));
    if (!seen.insert(slot).second) return Status::invalid(name, "each slot once", fmt::format("{} again", slot));
  }
  return {};
}

Status check_offsets(const Args& a, const Problem& p) {
  for (int64_t n = 0; n < p.N; ++n) {
    const int64_t length = p.varlen ? at(a.cu_seqlens, n + 1) - at(a.cu_seqlens, n) : p.T;
    for (int64_t i = 0; i < p.checkpoint_slots_per_seq; ++i) {
      const int64_t offset =
          load_index(a.checkpoint_offsets.data, a.checkpoint_offsets.dtype, n * a.checkpoint_offsets.stride[0] + i * a.checkpoint_offsets.stride[1]);
      if (offset == -1) continue;
      if (offset <= 0 || offset % kChunk != 0 || offset > length)
        return Status::invalid(fmt::format("checkpoint_offsets[{}, {}]", n, i), fmt::format("-1 or a multiple of {} from {} to {}", kChunk, kChunk, length),
                               std::to_string(offset));
    }
  }
  return {};
}

}  // namespace

Status check_contents(const Args& a) {
  const Result<Problem> problem = make_problem(a);
  if (!problem.ok()) return problem.status();
  const Problem& p = problem.value();
  if (p.device.kind != DeviceKind::kCpu) return Status::unsupported("device", "arguments that the CPU can read", to_string(p.device));
  if (p.varlen) HYLA_RETURN_IF_ERROR(check_cu_seqlens(a.cu_seqlens, p));
  if (p.has_pool) HYLA_RETURN_IF_ERROR(check_state_indices(a, p));
  if (p.checkpoint_slots_per_seq > 0) HYLA_RETURN_IF_ERROR(check_offsets(a, p));
  return {};
}

}  // namespace hyla::kda
