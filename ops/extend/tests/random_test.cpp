// Random requests over the whole contract: what the planner accepts must run and agree with float64.
#include <gtest/gtest.h>

#include <random>

#include "ops/extend/tests/test_targets.h"

namespace hyla::extend {
namespace {

Case random_case(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const auto one_of = [&](auto... values) {
    const std::array all{values...};
    return all[static_cast<size_t>(below(static_cast<int64_t>(all.size())))];
  };
  Case c;
  c.name = "random_" + std::to_string(seed), c.seed = seed;
  const int64_t requests = 1 + below(4);
  for (int64_t i = 0; i < requests; ++i)
    c.extend.push_back(one_of(0, 1, 7, 64, 65, 130) * (below(4) > 0)), c.prefix.push_back(one_of(0, 1, 16, 63, 64, 200, 400) * (below(5) > 0));
  c.latent = below(6) == 0;
  if (c.latent) {
    c.Lq = one_of(576, 512), c.Lv = 512, c.Hkv = 1, c.Hq = one_of(1, 4, 6, 16);
  } else {
    c.Lq = one_of(64, 64, 96, 128, 128, 192, 256, 40), c.Lv = below(4) == 0 ? one_of(64, 128, 72) : c.Lq;
    c.Hkv = one_of(1, 2, 3), c.Hq = c.Hkv * one_of(1, 2, 3, 4, 8);
  }
  c.dtype = c.pool_dtype = c.out = below(4) == 0 ? DType::kFp16 : DType::kBf16;
  if (below(4) == 0) c.pool_dtype = one_of(DType::kE4m3, DType::kE5m2), c.k_scale = 0.1f, c.v_scale = 2;
  c.page_size = one_of(1, 1, 16, 32, 64);
  c.pool = c.page_size == 1 ? one_of(Pool::kSlots, Pool::kStacked) : c.latent ? Pool::kPages : one_of(Pool::kPages, Pool::kHeadsFirst, Pool::kBlocksFirst);
  c.causal = below(4) > 0;
  if (below(3) == 0) c.window = one_of(0, 3, 50, 127, 300);
  if (below(4) == 0) c.cap = one_of(5.0f, 30.0f), c.gain = one_of(1.0f, 10.0f);
  if (below(3) == 0) c.sinks = one_of(Sinks::kFp32, Sinks::kBf16), c.sink_size = one_of(1.0f, 20.0f);
  if (below(4) == 0)
    c.mask = one_of(Mask::kCausal, Mask::kTree, Mask::kBlockCausal, Mask::kSparse), c.mask_prefix = below(2) == 0, c.mask_offset = below(2) * 5;
  if (below(5) == 0) c.temperature = one_of(2, 32, 100);
  c.skip_prefix = below(8) == 0, c.skip_extend = below(8) == 0, c.lse = below(5) > 0;
  c.trailing = below(3) * 5, c.bad_slots = below(5) == 0 ? 3 : 0, c.index = one_of(DType::kI32, DType::kI64);
  c.fused = below(4) == 0, c.shift = one_of(0, 0, 8, 16);
  return c;
}

class ExtendRandom : public OnTargets {};

TEST_P(ExtendRandom, AgreesWithFloat64) {
  int taken = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Case c = random_case(seed);
    const CaseResult result = run_case(c, GetParam().variant, *testing::backend_named(GetParam().backend));
    if (!result.supported) {
      EXPECT_TRUE(on_gpu()) << result.message;
      continue;
    }
    ++taken;
    EXPECT_TRUE(result.pass) << c.name << ": " << result.line() << "\n" << result.plan;
  }
  EXPECT_GT(taken, 0);
}

HYLA_INSTANTIATE(ExtendRandom);

}  // namespace
}  // namespace hyla::extend
