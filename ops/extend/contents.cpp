// check_contents(): what can only be known by reading the index tensors.
#include <fmt/format.h>

#include "core/numeric.h"
#include "ops/extend/problem.h"

namespace hyla::extend {
namespace {

int64_t at(const TensorView& t, int64_t i) { return load_index(t.data, t.dtype, i); }

Status check_indptr(const char* name, const TensorView& t, int64_t limit, const char* limit_source) {
  if (at(t, 0) < 0) return Status::invalid(fmt::format("{}[0]", name), "an offset >= 0", std::to_string(at(t, 0)));
  for (int64_t i = 1; i < t.shape[0]; ++i)
    if (at(t, i) < at(t, i - 1))
      return Status::invalid(fmt::format("{}[{}]", name, i), fmt::format("at least {} (= {}[{}])", at(t, i - 1), name, i - 1), std::to_string(at(t, i)));
  const int64_t last = t.shape[0] - 1;
  if (at(t, last) > limit)
    return Status::invalid(fmt::format("{}[{}]", name, last), fmt::format("at most {} (= {})", limit, limit_source), std::to_string(at(t, last)));
  return {};
}

// The bytes of the mask that request i reads lie inside custom_mask.
Status check_mask(const Args& args, const Problem& p, int64_t i) {
  const int64_t rows = at(args.qo_indptr, i + 1) - at(args.qo_indptr, i), prefix = at(args.kv_indptr, i + 1) - at(args.kv_indptr, i);
  const int64_t start = at(args.mask_indptr, i), offset = p.has_window_offsets ? at(args.window_kv_offsets, i) : 0;
  if (offset < 0) return Status::invalid(fmt::format("window_kv_offsets[{}]", i), "a number of columns >= 0", std::to_string(offset));
  if (start < 0) return Status::invalid(fmt::format("mask_indptr[{}]", i), "an offset >= 0", std::to_string(start));
  int64_t row, size, end;
  if (__builtin_add_overflow(prefix + rows, offset, &row) || __builtin_mul_overflow(rows, row, &size) || __builtin_add_overflow(start, size, &end) ||
      end > args.custom_mask.shape[0])
    return Status::invalid("custom_mask.shape[0]",
                           fmt::format("room for request {}: {} rows of {} columns from offset {}", i, rows, prefix + rows + offset, start),
                           std::to_string(args.custom_mask.shape[0]));
  return {};
}

}  // namespace

Status check_contents(const Args& args) {
  const Result<Problem> made = make_problem(args);
  if (!made.ok()) return made.status();
  const Problem& p = made.value();
  if (p.device.kind != DeviceKind::kCpu) return Status::unsupported("device", "tensors that the CPU can read", to_string(p.device));
  HYLA_RETURN_IF_ERROR(check_indptr("qo_indptr", args.qo_indptr, p.n, "q.shape[0]"));
  HYLA_RETURN_IF_ERROR(check_indptr("kv_indptr", args.kv_indptr, p.prefix_capacity, "kv_indices.shape[0]"));
  const int64_t listed = at(args.kv_indptr, p.batch);
  for (int64_t j = 0; j < listed; ++j)
    if (const int64_t slot = at(args.kv_indices, j); slot < 0 || slot >= p.slots)
      return Status::invalid(fmt::format("kv_indices[{}]", j), fmt::format("a slot of the pool, 0 to {}", p.slots - 1), std::to_string(slot));
  for (int64_t i = 0; i < p.batch; ++i) {
    const int64_t rows = at(args.qo_indptr, i + 1) - at(args.qo_indptr, i), prefix = at(args.kv_indptr, i + 1) - at(args.kv_indptr, i);
    if (rows > p.max_extend) return Status::invalid("max_extend", fmt::format("at least {} (request {})", rows, i), std::to_string(p.max_extend));
    if (prefix > p.max_prefix) return Status::invalid("max_prefix", fmt::format("at least {} (request {})", prefix, i), std::to_string(p.max_prefix));
    if (p.has_mask) HYLA_RETURN_IF_ERROR(check_mask(args, p, i));
  }
  return {};
}

}  // namespace hyla::extend
