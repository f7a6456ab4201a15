// Any arguments: make_problem refuses them with a named argument, or they are consistent and can be planned for every chip.
#include "testing/fuzz/bytes.h"
#include "hyla/extend.h"

namespace {

using namespace hyla;
using fuzz::require;

extend::Args draw(fuzz::Bytes& in) {
  extend::Args a;
  constexpr int64_t kDims[] = {64, 96, 128, 192, 256, 512, 576, 8};
  const int64_t n = in.byte() % 70, Hkv = 1 + in.byte() % 3, Hq = Hkv * (1 + in.byte() % 4), Lq = kDims[in.byte() % 8];
  const int64_t Lv = in.flag() ? Lq : kDims[in.byte() % 8], batch = in.byte() % 5, slots = in.byte(), listed = in.byte(), page = 1 + in.byte() % 16;
  const DType dtype = in.flag() ? DType::kBf16 : DType::kFp16, pool = in.flag() ? dtype : DType::kE4m3, index = in.flag() ? DType::kI32 : DType::kI64;
  size_t count = 0;
  const auto make = [&](DType type, std::initializer_list<int64_t> shape) { return in.change(contiguous(fuzz::place(count++), type, shape)); };
  a.q = make(dtype, {n, Hq, Lq});
  a.k = make(dtype, {n, Hkv, Lq});
  a.v = make(dtype, {n, Hkv, Lv});
  a.out = make(dtype, {n, Hq, Lv});
  if (in.flag()) {
    a.k_buffer = make(pool, {slots, Hkv, Lq}), a.v_buffer = make(pool, {slots, Hkv, Lv});
  } else {
    a.k_buffer = make(pool, {slots, page, Hkv, Lq}), a.v_buffer = make(pool, {slots, page, Hkv, Lv});
  }
  a.qo_indptr = make(index, {batch + 1});
  a.kv_indptr = make(index, {batch + 1});
  a.kv_indices = make(index, {listed});
  if (in.flag()) a.custom_mask = make(DType::kU8, {in.byte()}), a.mask_indptr = make(DType::kI64, {batch + 1});
  if (in.flag()) a.window_kv_offsets = make(index, {batch});
  if (in.flag()) a.sinks = make(DType::kFp32, {Hq});
  if (in.flag()) a.lse = make(DType::kFp32, {n, Hq});
  if (in.flag()) a.max_extend = in.number();
  if (in.flag()) a.max_prefix = in.number();
  if (in.flag()) a.sliding_window = in.number();
  if (in.flag()) a.xai_temperature_len = in.number();
  if (in.flag()) a.sm_scale = in.real();
  if (in.flag()) a.logit_cap = in.real();
  if (in.flag()) a.k_scale = in.real(), a.v_scale = in.real();
  a.causal = in.flag(), a.skip_prefix = in.flag(), a.skip_extend = in.flag(), a.skip_prefix_custom_mask = in.flag();
  return a;
}

void check_consistent(const extend::Args& a, const extend::Problem& p) {
  require(a.q.rank == 3 && a.k.rank == 3 && a.v.rank == 3 && a.out.rank == 3);
  require(a.q.shape[0] == p.n && a.q.shape[1] == p.Hq && a.q.shape[2] == p.Lq && a.k.shape[0] == p.n && a.k.shape[1] == p.Hkv && a.k.shape[2] == p.Lq);
  require(a.v.shape[0] == p.n && a.v.shape[1] == p.Hkv && a.v.shape[2] == p.Lv && a.out.shape[0] == p.n && a.out.shape[1] == p.Hq && a.out.shape[2] == p.Lv);
  require(p.Hkv > 0 && p.Hq % p.Hkv == 0 && p.Lq % 8 == 0 && p.Lv % 8 == 0 && p.Lq <= 576 && p.Lv <= 576 && p.Lq > 0 && p.Lv > 0);
  require(a.qo_indptr.rank == 1 && a.qo_indptr.shape[0] == p.batch + 1 && p.batch >= 0);
  require(p.sm_scale == p.sm_scale && p.max_extend >= 0 && p.max_prefix >= 0 && p.sliding_window >= -1);
  for (const TensorView* t : {&a.q, &a.k, &a.v, &a.k_buffer, &a.v_buffer, &a.qo_indptr, &a.kv_indptr, &a.kv_indices, &a.custom_mask, &a.sinks, &a.out, &a.lse})
    fuzz::require_sound(*t, p.device);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Bytes in(data, size);
  const extend::Args args = draw(in);
  const auto problem = extend::make_problem(args);
  if (!problem.ok()) {
    require(!problem.status().argument().empty() && !problem.status().expected().empty());
    return 0;
  }
  check_consistent(args, problem.value());
  for (const DeviceCaps& caps : known_devices()) {
    const auto plan = extend::plan(problem.value(), caps);
    if (plan.ok()) require(plan->problem == problem.value() && !plan->variant.empty() && !plan->str().empty());
  }
  return 0;
}
