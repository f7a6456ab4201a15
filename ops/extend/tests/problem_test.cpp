// Every wrong argument is refused by name, by plan() and by run() alike, and nothing is written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/overlap.h"
#include "ops/extend/problem.h"
#include "ops/extend/tests/case_data.h"

namespace hyla::extend {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

// A sound call with every optional tensor.
Case sound_case() {
  Case c;
  c.name = "sound", c.extend = {5, 3}, c.prefix = {7, 0}, c.Hq = 4, c.Hkv = 2, c.Lq = 64, c.Lv = 32;
  c.mask = Mask::kTree, c.mask_offset = 2, c.sinks = Sinks::kFp32;
  return c;
}

struct Wrong {
  const char* name;
  std::function<void(Args&)> spoil;
  const char* argument;                // Status::argument()
  std::vector<const char*> said = {};  // what expected or got must contain
};

const DeviceCaps& cpu() {
  static const DeviceCaps caps = find_device("cpu").value();
  return caps;
}

std::vector<Wrong> wrong_arguments() {
  const auto reshape = [](TensorView t, std::initializer_list<int64_t> shape) { return contiguous(t.data, t.dtype, shape, t.device); };
  return {
      {"q_absent", [](Args& a) { a.q = {}; }, "q", {"rank 3 [n, Hq, Lq]", "absent"}},
      {"q_rank",
       [=](Args& a) {
         a.q = reshape(a.q, {8, 256});
       },
       "q",
       {"rank 3", "[8, 256]"}},
      {"q_dtype", [](Args& a) { a.q.dtype = DType::kE4m3; }, "q.dtype", {"bf16, fp16 or fp32", "e4m3"}},
      {"q_no_heads",
       [=](Args& a) {
         a.q = reshape(a.q, {8, 0, 64});
       },
       "q.shape[1]",
       {"at least one head", "0"}},
      {"q_head_dim",
       [=](Args& a) {
         a.q = reshape(a.q, {8, 4, 60});
       },
       "q.shape[2]",
       {"multiple of 8 from 8 to 576", "60"}},
      {"q_head_dim_13",
       [=](Args& a) {
         a.q = reshape(a.q, {8, 4, 13});
       },
       "q.shape[2]",
       {"multiple of 8", "13"}},
      {"q_head_dim_large",
       [=](Args& a) {
         a.q.shape = {8, 1, 584}, a.q.stride = {584, 584, 1};
       },
       "q.shape[2]",
       {"576", "584"}},
      {"q_inner_stride", [](Args& a) { a.q.shape[0] = 2, a.q.stride[2] = 2; }, "q.stride[2]", {"1 (contiguous innermost dimension)", "2"}},
      {"q_null", [](Args& a) { a.q.data = nullptr; }, "q.data", {"null"}},
      {"q_misaligned", [](Args& a) { a.q.data = static_cast<char*>(a.q.data) + 1; }, "q.data", {"alignment", "2 bytes"}},
      {"q_negative_extent", [](Args& a) { a.q.shape[0] = -1; }, "q.shape[0]", {">= 0", "-1"}},
      {"q_negative_stride", [](Args& a) { a.q.stride[0] = -256; }, "q.stride[0]", {">= 0", "-256"}},
      {"q_overflow", [](Args& a) { a.q.shape[0] = int64_t{1} << 56; }, "q", {"int64"}},
      {"q_address_overflow", [](Args& a) { a.q.stride[0] = int64_t{1} << 62; }, "q", {"int64"}},
      {"rank_out_of_range", [](Args& a) { a.q.rank = 9; }, "q.rank", {"9"}},
      {"k_absent", [](Args& a) { a.k = {}; }, "k", {"rank 3", "absent"}},
      {"k_dtype", [](Args& a) { a.k.dtype = DType::kFp16; }, "k.dtype", {"bf16 (= q.dtype)", "fp16"}},
      {"k_tokens", [](Args& a) { a.k.shape[0] = 7; }, "k.shape[0]", {"8 (= q.shape[0])", "7"}},
      {"k_heads_not_a_divisor",
       [](Args& a) {
         a.k.shape[0] = 8, a.k.shape[1] = 3, a.k.stride = {128, 0, 1};
       },
       "k.shape[1]",
       {"a divisor of q.shape[1] = 4", "3"}},
      {"k_no_heads",
       [=](Args& a) {
         a.k = reshape(a.k, {8, 0, 64});
       },
       "k.shape[1]",
       {"a divisor", "0"}},
      {"k_more_heads_than_q", [](Args& a) { a.k.shape[1] = 8, a.k.stride[1] = 0; }, "k.shape[1]", {"a divisor", "8"}},
      {"k_head_dim", [](Args& a) { a.k.shape[2] = 56; }, "k.shape[2]", {"64 (= q.shape[2])", "56"}},
      {"k_device",
       [](Args& a) {
         a.k.device = {DeviceKind::kCuda, 0};
       },
       "k.device",
       {"cpu (= q.device)", "cuda:0"}},
      {"v_heads", [](Args& a) { a.v.shape[1] = 1; }, "v.shape[1]", {"2 (= k.shape[1])", "1"}},
      {"v_head_dim", [](Args& a) { a.v.shape[2] = 20; }, "v.shape[2]", {"multiple of 8", "20"}},
      {"v_tokens", [](Args& a) { a.v.shape[0] = 6; }, "v.shape[0]", {"8 (= q.shape[0])", "6"}},
      {"v_dtype", [](Args& a) { a.v.dtype = DType::kFp16; }, "v.dtype", {"bf16 (= q.dtype)", "fp16"}},
      {"k_buffer_absent", [](Args& a) { a.k_buffer = {}; }, "k_buffer", {"rank 3 [slots, Hkv, 64]", "absent"}},
      {"k_buffer_rank",
       [=](Args& a) {
         a.k_buffer = reshape(a.k_buffer, {17, 128});
       },
       "k_buffer",
       {"rank 3", "[17, 128]"}},
      {"k_buffer_dtype", [](Args& a) { a.k_buffer.dtype = DType::kFp16; }, "k_buffer.dtype", {"bf16 (= q.dtype), e4m3 or e5m2", "fp16"}},
      {"k_buffer_heads", [](Args& a) { a.k_buffer.shape[1] = 1; }, "k_buffer.shape[1]", {"2 (= k.shape[1])", "1"}},
      {"k_buffer_head_dim", [](Args& a) { a.k_buffer.shape[2] = 32; }, "k_buffer.shape[2]", {"64 (= q.shape[2])", "32"}},
      {"v_buffer_head_dim", [](Args& a) { a.v_buffer.shape[2] = 24; }, "v_buffer.shape[2]", {"32 (= v.shape[2])", "24"}},
      {"v_buffer_dtype", [](Args& a) { a.v_buffer.dtype = DType::kE4m3; }, "v_buffer.dtype", {"bf16 (= k_buffer.dtype)", "e4m3"}},
      {"v_buffer_slots", [](Args& a) { a.v_buffer.shape[0] = 3; }, "v_buffer.shape[0]", {"= k_buffer.shape[0]", "3"}},
      {"v_buffer_rank",
       [](Args& a) {
         a.v_buffer.rank = 4, a.v_buffer.shape = {a.v_buffer.shape[0], 1, 2, 32}, a.v_buffer.stride = {64, 64, 32, 1};
       },
       "v_buffer",
       {"rank 3 (= k_buffer.rank)"}},
      {"page_size_zero",
       [](Args& a) {
         a.k_buffer.rank = 4, a.k_buffer.shape = {17, 0, 2, 64}, a.k_buffer.stride = {128, 128, 64, 1};
       },
       "k_buffer.shape[1]",
       {"a page size >= 1", "0"}},
      {"k_buffer_device",
       [](Args& a) {
         a.k_buffer.device = {DeviceKind::kCuda, 1};
       },
       "k_buffer.device",
       {"cpu", "cuda:1"}},
      {"qo_indptr_absent", [](Args& a) { a.qo_indptr = {}; }, "qo_indptr", {"rank 1", "absent"}},
      {"qo_indptr_dtype", [](Args& a) { a.qo_indptr.dtype = DType::kFp32; }, "qo_indptr.dtype", {"int32 or int64", "fp32"}},
      {"qo_indptr_empty", [](Args& a) { a.qo_indptr.shape[0] = 0; }, "qo_indptr.shape[0]", {"batch + 1 >= 1", "0"}},
      {"qo_indptr_stride", [](Args& a) { a.qo_indptr.stride[0] = 2; }, "qo_indptr.stride[0]", {"1", "2"}},
      {"kv_indptr_length", [](Args& a) { a.kv_indptr.shape[0] = 2; }, "kv_indptr.shape[0]", {"3 (= qo_indptr.shape[0])", "2"}},
      {"kv_indices_dtype", [](Args& a) { a.kv_indices.dtype = DType::kBf16; }, "kv_indices.dtype", {"int32 or int64", "bf16"}},
      {"kv_indices_device",
       [](Args& a) {
         a.kv_indices.device = {DeviceKind::kCuda, 0};
       },
       "kv_indices.device",
       {"cpu", "cuda:0"}},
      {"max_extend_negative", [](Args& a) { a.max_extend = -1; }, "max_extend", {">= 0", "-1"}},
      {"max_prefix_negative", [](Args& a) { a.max_prefix = -4; }, "max_prefix", {">= 0", "-4"}},
      {"mask_without_indptr", [](Args& a) { a.mask_indptr = {}; }, "mask_indptr", {"[3] beside custom_mask", "absent"}},
      {"indptr_without_mask", [](Args& a) { a.custom_mask = {}; }, "custom_mask", {"beside mask_indptr", "absent"}},
      {"mask_dtype", [](Args& a) { a.custom_mask.dtype = DType::kBf16, a.custom_mask.shape[0] = 8; }, "custom_mask.dtype", {"u8 or bool", "bf16"}},
      {"mask_rank",
       [](Args& a) {
         a.custom_mask = contiguous(a.custom_mask.data, DType::kU8, {2, 4});
       },
       "custom_mask",
       {"rank 1", "[2, 4]"}},
      {"mask_indptr_length", [](Args& a) { a.mask_indptr.shape[0] = 2; }, "mask_indptr.shape[0]", {"3", "2"}},
      {"window_offsets_length", [](Args& a) { a.window_kv_offsets.shape[0] = 1; }, "window_kv_offsets.shape[0]", {"2", "1"}},
      {"sinks_dtype", [](Args& a) { a.sinks.dtype = DType::kFp16; }, "sinks.dtype", {"fp32 or bf16", "fp16"}},
      {"sinks_length", [](Args& a) { a.sinks.shape[0] = 2; }, "sinks.shape[0]", {"4 (= q.shape[1])", "2"}},
      {"out_absent", [](Args& a) { a.out = {}; }, "out", {"rank 3 [n, Hq, Lv]", "absent"}},
      {"out_dtype", [](Args& a) { a.out.dtype = DType::kFp16; }, "out.dtype", {"bf16 (= q.dtype) or fp32", "fp16"}},
      {"out_shape", [](Args& a) { a.out.shape[2] = 24; }, "out.shape[2]", {"32 (= v.shape[2])", "24"}},
      {"out_heads", [](Args& a) { a.out.shape[1] = 2; }, "out.shape[1]", {"4", "2"}},
      {"out_overlaps_itself", [](Args& a) { a.out.stride[0] = 32; }, "out.stride", {"its own place", "[32, 32, 1]"}},
      {"out_broadcast", [](Args& a) { a.out.stride[1] = 0; }, "out.stride", {"its own place"}},
      {"out_is_q", [](Args& a) { a.out.data = a.q.data; }, "out", {"apart from every input", "an overlap with q"}},
      {"out_in_pool", [](Args& a) { a.out.data = a.k_buffer.data; }, "out", {"an overlap with k_buffer"}},
      {"out_is_v", [](Args& a) { a.out.data = static_cast<char*>(a.v.data) + 2; }, "out", {"an overlap with"}},
      {"lse_dtype", [](Args& a) { a.lse.dtype = DType::kBf16; }, "lse.dtype", {"fp32", "bf16"}},
      {"lse_shape", [](Args& a) { a.lse.shape[1] = 2; }, "lse.shape[1]", {"4", "2"}},
      {"lse_in_out", [](Args& a) { a.lse.data = a.out.data; }, "lse", {"apart from out"}},
      {"lse_is_sinks", [](Args& a) { a.lse.data = a.sinks.data; }, "lse", {"an overlap with sinks"}},
      {"sm_scale_nan", [](Args& a) { a.sm_scale = kNan; }, "sm_scale", {"finite", "nan"}},
      {"sm_scale_inf", [](Args& a) { a.sm_scale = kInf; }, "sm_scale", {"finite", "inf"}},
      {"logit_cap_nan", [](Args& a) { a.logit_cap = kNan; }, "logit_cap", {"finite"}},
      {"logit_cap_inf", [](Args& a) { a.logit_cap = kInf; }, "logit_cap", {"finite"}},
      {"k_scale_zero", [](Args& a) { a.k_scale = 0; }, "k_scale", {"> 0", "0"}},
      {"k_scale_nan", [](Args& a) { a.k_scale = kNan; }, "k_scale", {"> 0", "nan"}},
      {"v_scale_negative", [](Args& a) { a.v_scale = -1; }, "v_scale", {"> 0", "-1"}},
      {"v_scale_inf", [](Args& a) { a.v_scale = kInf; }, "v_scale", {"finite"}},
      {"window", [](Args& a) { a.sliding_window = -2; }, "sliding_window", {"-1 (off)", "-2"}},
      {"temperature_one", [](Args& a) { a.xai_temperature_len = 1; }, "xai_temperature_len", {">= 2", "1"}},
      {"cuda_device_on_cpu_plan",
       [](Args& a) {
         for (TensorView* t : {&a.q, &a.k, &a.v, &a.k_buffer, &a.v_buffer, &a.qo_indptr, &a.kv_indptr, &a.kv_indices, &a.custom_mask, &a.mask_indptr,
                               &a.window_kv_offsets, &a.sinks, &a.out, &a.lse})
           t->device = {DeviceKind::kCuda, 0};
       },
       "device",
       {"cuda:0"}},
      {"fp32_on_cuda",
       [=](Args& a) {
         a.q = reshape(a.q, {4, 4, 64}), a.q.dtype = DType::kFp32, a.q.device = {DeviceKind::kCuda, 0};
       },
       "q.dtype",
       {"CPU only", "fp32"}},
  };
}

class WrongArguments : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongArguments, RefusedByName) {
  const Wrong& wrong = GetParam();
  CaseData data = make_data(sound_case());
  const Result<Plan> sound = plan(data.args, cpu());
  ASSERT_TRUE(sound.ok()) << sound.status().message();
  std::vector<std::byte> workspace(sound->workspace_bytes + 256);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(workspace.data()) + 255) / 256 * 256);

  const std::vector<std::vector<uint8_t>> before = data.buffers;
  Args args = data.args;
  wrong.spoil(args);
  const Status planned = plan(args, cpu()).status(), asked = can_run(args, cpu()), ran = run(sound.value(), args, {aligned, sound->workspace_bytes});
  EXPECT_EQ(planned.code(), Code::kInvalidArgument);
  EXPECT_EQ(planned.argument(), wrong.argument) << planned.message();
  for (const char* text : wrong.said) EXPECT_NE(planned.message().find(text), std::string::npos) << "'" << text << "' is not in: " << planned.message();
  EXPECT_EQ(asked.message(), planned.message());
  EXPECT_FALSE(ran.ok());
  EXPECT_EQ(ran.argument(), wrong.argument) << ran.message();
  EXPECT_TRUE(data.buffers == before) << "something was written";
}

INSTANTIATE_TEST_SUITE_P(Extend, WrongArguments, ::testing::ValuesIn(wrong_arguments()), [](const auto& info) { return std::string(info.param.name); });

TEST(ExtendProblem, HoldsWhatWasAsked) {
  const CaseData data = make_data(sound_case());
  const Result<Problem> made = make_problem(data.args);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Problem& p = made.value();
  EXPECT_EQ(p.n, 8);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.Hq, 4);
  EXPECT_EQ(p.Hkv, 2);
  EXPECT_EQ(p.Lq, 64);
  EXPECT_EQ(p.Lv, 32);
  EXPECT_EQ(p.page_size, 1);
  EXPECT_EQ(p.slots, data.args.k_buffer.shape[0]);
  EXPECT_EQ(p.prefix_capacity, 7);
  EXPECT_EQ(p.max_extend, 5);
  EXPECT_EQ(p.max_prefix, 7);
  EXPECT_FLOAT_EQ(p.sm_scale, 0.125f);
  EXPECT_TRUE(p.has_mask && p.has_sinks && p.has_lse && p.has_window_offsets);
  EXPECT_FALSE(p.causal) << "a mask replaces causality";
  EXPECT_FALSE(p.v_aliases_k);
  EXPECT_EQ(p.str().find('\n'), std::string::npos);
  EXPECT_NE(p.str().find("Lq=64 Lv=32"), std::string::npos) << p.str();
}

TEST(ExtendProblem, BoundsResolveToWhatTheTensorsHold) {
  CaseData data = make_data(sound_case());
  data.args.max_extend = data.args.max_prefix = 0;
  EXPECT_EQ(make_problem(data.args)->max_extend, 8);
  EXPECT_EQ(make_problem(data.args)->max_prefix, 7);
  data.args.max_extend = data.args.max_prefix = 1000;
  EXPECT_EQ(make_problem(data.args)->max_extend, 8);
  EXPECT_EQ(make_problem(data.args)->max_prefix, 7);
}

TEST(ExtendProblem, PoolsOfPages) {
  Case c = sound_case();
  c.pool = Pool::kHeadsFirst, c.page_size = 16;
  const CaseData data = make_data(c);
  const Problem p = make_problem(data.args).value();
  EXPECT_EQ(p.page_size, 16);
  EXPECT_EQ(p.slots, data.args.k_buffer.shape[0] * 16);
  const PoolLayout layout = pool_layout(data.args.k_buffer);
  EXPECT_EQ(layout.page, 16 * 2 * 64);
  EXPECT_EQ(layout.token, 64);
  EXPECT_EQ(layout.head, 16 * 64);
  const PoolLayout flat = pool_layout(make_data(sound_case()).args.k_buffer);
  EXPECT_EQ(flat.page, flat.token);
  EXPECT_EQ(flat.page_size, 1);
}

TEST(ExtendProblem, ViewsOfKAreFoundByPointerAndStrides) {
  Case c = *find_case("latent576");
  CaseData data = make_data(c);
  EXPECT_TRUE(make_problem(data.args)->v_aliases_k);
  CaseData other = make_data(c);
  Args args = data.args;
  args.v = other.args.v;
  EXPECT_FALSE(make_problem(args)->v_aliases_k) << "new V elsewhere";
  args = data.args;
  args.v_buffer = other.args.v_buffer;
  EXPECT_FALSE(make_problem(args)->v_aliases_k) << "V pool elsewhere";
  args = data.args;
  args.v_buffer.data = static_cast<char*>(args.v_buffer.data) + 128;
  args.v_buffer.shape[0] -= 1, args.k_buffer.shape[0] -= 1;
  EXPECT_FALSE(make_problem(args)->v_aliases_k) << "not the first columns";
}

TEST(ExtendProblem, AlignmentOfBasesAndStrides) {
  Case c = sound_case();
  CaseData data = make_data(c);
  std::vector<uint8_t> q(data.args.q.numel() * 2 + 64);
  auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(q.data()) + 15) / 16 * 16);
  data.args.q.data = aligned;
  ASSERT_EQ(reinterpret_cast<uintptr_t>(data.args.k.data) % 16, 0u) << "the allocator aligns to 16";
  EXPECT_TRUE(make_problem(data.args)->aligned16);
  data.args.q.data = aligned + 8;
  EXPECT_FALSE(make_problem(data.args)->aligned16);
  data.args.q.data = aligned;
  data.args.k.stride[0] = 132, data.args.k.stride[1] = 64;
  data.args.k.shape[0] = 8;
  std::vector<uint8_t> k(132 * 8 * 2 + 64);
  data.args.k.data = k.data();
  EXPECT_FALSE(make_problem(data.args)->aligned16);
}

TEST(ExtendProblem, InterleavedSlicesOfOneBufferDoNotOverlap) {
  // A fused projection whose last columns take the output.
  std::vector<uint16_t> all(8 * 1000);
  const auto slice = [&](int64_t column, int64_t heads, int64_t dim) {
    TensorView t = contiguous(all.data() + column, DType::kBf16, {8, heads, dim});
    t.stride[0] = 1000;
    return t;
  };
  EXPECT_FALSE(overlap(slice(0, 4, 64), slice(256, 2, 64)));
  EXPECT_FALSE(overlap(slice(256, 2, 64), slice(0, 4, 64)));
  EXPECT_TRUE(overlap(slice(0, 4, 64), slice(255, 2, 64)));
  EXPECT_TRUE(overlap(slice(0, 4, 64), slice(0, 4, 64)));
  EXPECT_TRUE(overlap(slice(900, 1, 96), contiguous(all.data() + 950, DType::kBf16, {16})));
  EXPECT_FALSE(overlap(slice(0, 4, 64), TensorView{}));
  EXPECT_FALSE(overlaps_itself(slice(0, 4, 64)));
  TensorView transposed = contiguous(all.data(), DType::kBf16, {4, 8, 16});
  transposed.stride = {16, 32, 1, 0, 0};
  EXPECT_TRUE(overlaps_itself(transposed));
  transposed.stride = {16, 64, 1, 0, 0};
  EXPECT_FALSE(overlaps_itself(transposed));
}

TEST(ExtendProblem, NamesTheFieldThatDiffers) {
  Problem a;
  EXPECT_FALSE(first_difference(a, a).has_value());
  Problem b = a;
  b.Lv = 128;
  EXPECT_EQ(first_difference(a, b)->field, "Lv");
  EXPECT_EQ(first_difference(a, b)->got, "128");
  b = a, b.pool = DType::kE4m3;
  EXPECT_EQ(first_difference(a, b)->field, "pool");
  EXPECT_EQ(first_difference(a, b)->got, "e4m3");
  b = a, b.device = {DeviceKind::kCuda, 1};
  EXPECT_EQ(first_difference(a, b)->field, "device");
  EXPECT_EQ(first_difference(a, b)->got, "cuda:1");
}

}  // namespace
}  // namespace hyla::extend
