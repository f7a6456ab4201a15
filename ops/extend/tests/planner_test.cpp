// Choosing a variant, without a GPU, for every chip.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/extend/problem.h"
#include "ops/extend/variants.h"
#include "ops/extend/work.h"

namespace hyla::extend {
namespace {

Problem problem(int64_t n, int64_t prefix, int64_t Hq, int64_t Hkv, int64_t Lq, int64_t Lv, DeviceKind kind) {
  Problem p;
  p.n = n, p.batch = 1, p.Hq = Hq, p.Hkv = Hkv, p.Lq = Lq, p.Lv = Lv, p.slots = prefix + 1, p.prefix_capacity = p.max_prefix = prefix, p.max_extend = n,
  p.sm_scale = 0.1f;
  p.device = {kind, 0};
  return p;
}

TEST(ExtendPlanner, TheCpuVariantTakesEverythingOnTheCpu) {
  const DeviceCaps cpu = find_device("cpu").value();
  for (const int64_t d : {8, 64, 80, 128, 512, 576}) {
    const Result<Plan> p = plan(problem(100, 50, 4, 2, d, d, DeviceKind::kCpu), cpu);
    ASSERT_TRUE(p.ok()) << p.status().message();
    EXPECT_EQ(p->variant, "cpu");
    EXPECT_GT(p->workspace_bytes, 0u);
    EXPECT_LT(p->workspace_bytes, size_t{64} << 20);
    EXPECT_GT(p->modelled_us, 0);
    EXPECT_EQ(p->threads, cpu_threads());
    EXPECT_EQ(p->candidates.size(), variants().size());
  }
}

TEST(ExtendPlanner, WorkspaceOfTheCpuDoesNotGrowWithLength) {
  const DeviceCaps cpu = find_device("cpu").value();
  const size_t small = plan(problem(16, 0, 8, 1, 128, 128, DeviceKind::kCpu), cpu)->workspace_bytes;
  EXPECT_EQ(plan(problem(1 << 20, 1 << 24, 8, 1, 128, 128, DeviceKind::kCpu), cpu)->workspace_bytes, small);
}

// Every head dimension, type and feature on every chip: either a plan within the chip's limits, or each variant's reason.
TEST(ExtendPlanner, APlanFitsTheChipOrTheReasonIsGiven) {
  int planned = 0, refused = 0;
  for (const DeviceCaps& caps : known_devices())
    for (int64_t Lq = 8; Lq <= 576; Lq += Lq < 128 ? 8 : 64)
      for (const int64_t Lv : {Lq, int64_t{64}, int64_t{128}, int64_t{512}})
        for (int features = 0; features < 128; ++features) {
          Problem p = problem(300, 5000, 16, features & 1 ? 1 : 4, Lq, Lv, caps.kind);
          if (features & 2) p.dtype = p.pool = p.out = DType::kFp16;
          if (features & 4) p.pool = DType::kE4m3, p.k_scale = 0.5f;
          if (features & 8) p.sliding_window = 127, p.has_sinks = true;
          if (features & 16) p.logit_cap = 30, p.xai_temperature_len = 64;
          if (features & 32) p.has_mask = true, p.causal = false, p.aligned16 = false;
          if (features & 64) p.page_size = 16, p.v_aliases_k = Lv <= Lq;
          const Result<Plan> made = plan(p, caps);
          if (made.ok()) {
            ++planned;
            EXPECT_TRUE(made->problem == p);
            EXPECT_LE(made->smem_bytes, caps.smem_per_block) << made->str();
            EXPECT_GT(made->tile_m, 0);
            EXPECT_GT(made->tile_n, 0);
            EXPECT_GE(made->splits, 1);
            EXPECT_FALSE(made->why.empty());
            for (const Candidate& c : made->candidates) EXPECT_FALSE(c.reason.empty()) << c.variant;
          } else {
            ++refused;
            ASSERT_EQ(made.status().code(), Code::kUnsupported) << made.status().message();
            for (const std::string& name : variants()) EXPECT_NE(made.status().message().find(name + ": "), std::string::npos) << made.status().message();
          }
        }
  EXPECT_GT(planned, 0);
  RecordProperty("planned", planned);
  RecordProperty("refused", refused);
}

TEST(ExtendPlanner, ForcedVariants) {
  const DeviceCaps cpu = find_device("cpu").value();
  const Problem p = problem(10, 5, 2, 1, 64, 64, DeviceKind::kCpu);
  PlanOptions options;
  options.variant = "cpu";
  const Result<Plan> forced = plan(p, cpu, options);
  ASSERT_TRUE(forced.ok());
  EXPECT_EQ(forced->variant, "cpu");
  EXPECT_NE(forced->why.find("by name"), std::string::npos);
  options.variant = "nothing";
  EXPECT_EQ(plan(p, cpu, options).status().argument(), "options.variant");
  EXPECT_NE(plan(p, cpu, options).status().expected().find("cpu"), std::string::npos);
  options.variant = "cpu";
  const Status elsewhere = plan(problem(10, 5, 2, 1, 64, 64, DeviceKind::kCuda), find_device("h200").value(), options).status();
  EXPECT_EQ(elsewhere.code(), Code::kUnsupported);
  EXPECT_NE(elsewhere.message().find("h200"), std::string::npos) << elsewhere.message();
}

TEST(ExtendPlanner, ForcedSplits) {
  const DeviceCaps cpu = find_device("cpu").value();
  const Problem p = problem(10, 5, 2, 1, 64, 64, DeviceKind::kCpu);
  PlanOptions options;
  options.splits = 1;
  EXPECT_TRUE(plan(p, cpu, options).ok());
  options.splits = 4;
  const Status status = plan(p, cpu, options).status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("splits"), std::string::npos) << status.message();
  options.splits = -1;
  EXPECT_EQ(plan(p, cpu, options).status().argument(), "options.splits");
}

TEST(ExtendPlanner, DeviceAndChipMustAgree) {
  const Status status = plan(problem(10, 5, 2, 1, 64, 64, DeviceKind::kCpu), find_device("h200").value()).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.argument(), "device");
}

TEST(ExtendPlanner, WrongNumbersAreRefusedWithoutTensors) {
  const DeviceCaps cpu = find_device("cpu").value();
  const Problem sound = problem(10, 5, 4, 2, 64, 64, DeviceKind::kCpu);
  const auto argument = [&](auto change) {
    Problem p = sound;
    change(p);
    return plan(p, cpu).status().argument();
  };
  EXPECT_EQ(argument([](Problem& p) { p.Hkv = 3; }), "Hkv");
  EXPECT_EQ(argument([](Problem& p) { p.Hq = 0; }), "Hq");
  EXPECT_EQ(argument([](Problem& p) { p.Lq = 100; }), "Lq");
  EXPECT_EQ(argument([](Problem& p) { p.Lv = 584; }), "Lv");
  EXPECT_EQ(argument([](Problem& p) { p.n = -1; }), "n");
  EXPECT_EQ(argument([](Problem& p) { p.n = int64_t{1} << 60; }), "n * Hq");
  EXPECT_EQ(argument([](Problem& p) { p.page_size = 0; }), "page_size");
  EXPECT_EQ(argument([](Problem& p) { p.pool = DType::kFp16; }), "pool");
  EXPECT_EQ(argument([](Problem& p) { p.out = DType::kI32; }), "out");
  EXPECT_EQ(argument([](Problem& p) { p.dtype = DType::kU8; }), "dtype");
  EXPECT_EQ(argument([](Problem& p) { p.v_aliases_k = true, p.Lv = 128; }), "v_aliases_k");
}

TEST(ExtendPlanner, PlansAndProblemsPrintInOneLine) {
  const Plan p = plan(problem(1000, 500, 32, 8, 128, 128, DeviceKind::kCpu), find_device("cpu").value()).value();
  EXPECT_EQ(p.str().find('\n'), std::string::npos);
  EXPECT_EQ(p.str().find("cpu on cpu: tile "), 0u) << p.str();
  EXPECT_NE(p.str().find("workspace="), std::string::npos);
  EXPECT_EQ(p.problem.str(), "n=1000 batch=1 Hq=32 Hkv=8 D=128 bf16 pool=501xbf16 prefix=500 causal scale=0.1 cpu");
}

TEST(ExtendWork, PairsOfEvenLengths) {
  Problem p = problem(100, 40, 2, 1, 64, 64, DeviceKind::kCpu);
  EXPECT_DOUBLE_EQ(estimated_pairs(p), 100 * 40 + 100 * 101 / 2);
  EXPECT_DOUBLE_EQ(estimated_flop(p), 2 * estimated_pairs(p) * 2 * 128);
  p.causal = false;
  EXPECT_DOUBLE_EQ(estimated_pairs(p), 100 * 140);
  p.skip_prefix = true;
  EXPECT_DOUBLE_EQ(estimated_pairs(p), 100 * 100);
  p.skip_prefix = false, p.skip_extend = true;
  EXPECT_DOUBLE_EQ(estimated_pairs(p), 100 * 40);
  p = problem(1000, 0, 1, 1, 64, 64, DeviceKind::kCpu);
  p.sliding_window = 99;
  EXPECT_NEAR(estimated_pairs(p), 1000 * 100 - 100 * 99 / 2, 100);
  p = problem(10, 5000, 1, 1, 64, 64, DeviceKind::kCpu);
  p.sliding_window = 99;
  EXPECT_NEAR(estimated_pairs(p), 10 * 100, 5);
  EXPECT_EQ(estimated_pairs(Problem{}), 0);
}

}  // namespace
}  // namespace hyla::extend
