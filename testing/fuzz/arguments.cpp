// Argument checks take any shape, stride, dtype, pointer and number: they answer, and never read a tensor, overflow or crash. What they accept can be
// planned or is refused with a reason, for every chip.
#include <cstdlib>
#include <cstring>

#include "hyla/extend.h"
#include "hyla/kda.h"

namespace {

using hyla::TensorView;

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  // Mostly small and plausible, sometimes any 64 bits.
  int64_t number() {
    static constexpr int64_t kUsual[] = {0, 1, 2, 3, 4, 8, 16, 64, 128, 256, 512, 576, -1, INT64_MAX, int64_t{1} << 31, int64_t{1} << 40};
    const uint8_t choice = byte();
    if (choice < 0xF0) return kUsual[choice % 16];
    int64_t value = 0;
    for (int i = 0; i < 8; ++i) value = static_cast<int64_t>(static_cast<uint64_t>(value) << 8 | byte());
    return value;
  }
  float real() {
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits = bits << 8 | byte();
    float value;
    std::memcpy(&value, &bits, 4);
    return byte() & 1 ? value : 0.0f;
  }
  bool flag() { return byte() & 1; }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

TensorView view(Bytes& in, int usual_rank) {
  TensorView t;
  const uint8_t choice = in.byte();
  if (choice < 32) return t;
  t.rank = choice < 224 ? usual_rank : in.byte() % (TensorView::kMaxRank + 3) - 1;
  t.dtype = static_cast<hyla::DType>(in.byte() % 9);
  t.data = reinterpret_cast<void*>(static_cast<uintptr_t>(in.flag() ? 4096 : in.number()));  // never to be read
  int64_t stride = 1;
  for (int d = TensorView::kMaxRank - 1; d >= 0; --d) t.shape[d] = in.number();
  for (int d = TensorView::kMaxRank - 1; d >= 0; --d) {
    if (d >= t.rank) continue;
    t.stride[d] = in.byte() < 200 ? stride : in.number();
    if (__builtin_mul_overflow(stride, t.shape[d], &stride)) stride = 1;
  }
  if (in.byte() > 240) t.device = {hyla::DeviceKind::kCuda, in.byte() % 3};
  return t;
}

// Gives the tensor the shape of a well-formed one, so that the checks behind the first few are reached too.
void shape(TensorView& t, std::initializer_list<int64_t> extents) {
  if (!t.defined()) return;
  const auto wanted = hyla::contiguous(t.data, t.dtype, extents, t.device);
  t.rank = wanted.rank, t.shape = wanted.shape, t.stride = wanted.stride;
}

template <class Op, class Args, class Plan>
void exercise(const Args& args, Op make_problem, Plan plan) {
  const auto problem = make_problem(args);
  if (!problem.ok()) {
    if (problem.status().message().empty()) std::abort();
    return;
  }
  if (problem->str().empty()) std::abort();
  for (const hyla::DeviceCaps& caps : hyla::known_devices()) {
    auto asked = problem.value();
    asked.device.kind = caps.kind;
    const auto made = plan(asked, caps);
    if ((made.ok() ? made->str() : made.status().message()).empty()) std::abort();
  }
}

void kda(Bytes& in) {
  hyla::kda::Args a;
  TensorView* const tensors[] = {&a.q, &a.k, &a.v, &a.g, &a.beta, &a.out};
  const int ranks[] = {4, 4, 4, 4, 3, 4};
  for (int i = 0; i < 6; ++i) *tensors[i] = view(in, ranks[i]);
  a.A_log = view(in, 1), a.dt_bias = view(in, 2), a.cu_seqlens = view(in, 1);
  a.initial_state = view(in, 4), a.state_indices = view(in, 1), a.has_initial_state = view(in, 1), a.final_state = view(in, 4);
  a.checkpoints = view(in, 4), a.checkpoint_offsets = view(in, 2), a.checkpoint_indices = view(in, 1);
  a.max_seqlen = in.number(), a.lowest_valid_slot = in.number();
  a.state_layout = static_cast<hyla::kda::StateLayout>(in.byte() % 2);
  a.gate = static_cast<hyla::kda::Gate>(in.byte() % 3);
  a.lower_bound = in.flag() ? -5.0f : in.real(), a.scale = in.real();
  a.qk_l2norm = in.flag(), a.beta_is_logits = in.flag(), a.beta_doubled = in.flag();
  if (in.byte() < 200) {
    const int64_t B = in.number(), T = in.number(), H = in.number(), HV = in.number(), D = in.flag() ? 128 : in.number();
    shape(a.q, {B, T, H, D}), shape(a.k, {B, T, H, D}), shape(a.v, {B, T, HV, D}), shape(a.g, {B, T, HV, D}), shape(a.beta, {B, T, HV});
    shape(a.out, {B, T, HV, D}), shape(a.A_log, {HV}), shape(a.dt_bias, {HV, D});
    for (TensorView* t : tensors) t->dtype = hyla::DType::kBf16, t->device = {};
  }
  exercise(a, hyla::kda::make_problem, [](const hyla::kda::Problem& p, const hyla::DeviceCaps& c) { return hyla::kda::plan(p, c); });
}

void extend(Bytes& in) {
  hyla::extend::Args a;
  TensorView* const tensors[] = {&a.q, &a.k, &a.v, &a.k_buffer, &a.v_buffer, &a.out};
  for (TensorView* t : tensors) *t = view(in, 3);
  a.qo_indptr = view(in, 1), a.kv_indptr = view(in, 1), a.kv_indices = view(in, 1);
  a.custom_mask = view(in, 1), a.mask_indptr = view(in, 1), a.window_kv_offsets = view(in, 1), a.sinks = view(in, 1), a.lse = view(in, 2);
  a.max_extend = in.number(), a.max_prefix = in.number(), a.sliding_window = in.number(), a.xai_temperature_len = in.number();
  a.sm_scale = in.real(), a.logit_cap = in.real(), a.k_scale = in.flag() ? 1.0f : in.real(), a.v_scale = in.flag() ? 1.0f : in.real();
  a.causal = in.flag(), a.skip_prefix = in.flag(), a.skip_extend = in.flag(), a.skip_prefix_custom_mask = in.flag();
  if (in.byte() < 200) {
    const int64_t n = in.number(), batch = in.number(), Hq = in.number(), Hkv = in.number(), Lq = in.number(), Lv = in.number(), slots = in.number();
    shape(a.q, {n, Hq, Lq}), shape(a.k, {n, Hkv, Lq}), shape(a.v, {n, Hkv, Lv}), shape(a.out, {n, Hq, Lv}), shape(a.lse, {n, Hq});
    shape(a.k_buffer, {slots, Hkv, Lq}), shape(a.v_buffer, {slots, Hkv, Lv}), shape(a.sinks, {Hq});
    int64_t entries;
    if (!__builtin_add_overflow(batch, 1, &entries))
      for (TensorView* t : {&a.qo_indptr, &a.kv_indptr, &a.mask_indptr}) shape(*t, {entries}), t->dtype = hyla::DType::kI32, t->device = {};
    for (TensorView* t : tensors) t->dtype = hyla::DType::kBf16, t->device = {};
  }
  exercise(a, hyla::extend::make_problem, [](const hyla::extend::Problem& p, const hyla::DeviceCaps& c) { return hyla::extend::plan(p, c); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes in(data, size);
  in.flag() ? kda(in) : extend(in);
  return 0;
}
