#include "benchlib/model.h"

#include <gtest/gtest.h>

namespace hyla::bench {
namespace {

int64_t counted_pairs(int64_t n, int64_t prefix, int64_t window) {
  int64_t pairs = 0;
  for (int64_t query = 0; query < n; ++query)
    for (int64_t key = 0; key <= prefix + query; ++key) pairs += window < 0 || prefix + query - key <= window;
  return pairs;
}

TEST(Model, PairsAreExact) {
  for (const int64_t n : {0, 1, 2, 7, 20})
    for (const int64_t prefix : {0, 1, 5, 30})
      for (const int64_t window : {-1, 0, 1, 5, 6, 19, 24, 25, 49, 100})
        EXPECT_EQ(allowed_pairs(n, prefix, window), counted_pairs(n, prefix, window)) << n << " " << prefix << " " << window;
}

TEST(Model, AttentionFlopIsTheFieldsFormula) {
  const ExtendShape s{.n = 16384, .prefix = 0, .Hq = 16, .Hkv = 8, .Lq = 64, .Lv = 64};
  EXPECT_NEAR(work_of(s).flop, 0.5498e12, 0.0001e12);  // as the recorded peers count
  EXPECT_DOUBLE_EQ(work_of(s).bytes, 16384.0 * (16 * 128 + 8 * 128) * 2);
}

TEST(Model, LatentValuesAreNotReadTwice) {
  ExtendShape s{.n = 10, .prefix = 90, .Hq = 16, .Hkv = 1, .Lq = 576, .Lv = 512};
  const double apart = work_of(s).bytes;
  s.latent = true;
  EXPECT_DOUBLE_EQ(apart - work_of(s).bytes, 100 * 512 * 2);
}

TEST(Model, KdaBytesPerTokenAndHead) {
  KdaShape s{.B = 1, .T = 1000, .H = 1, .HV = 1};
  EXPECT_DOUBLE_EQ(work_of(s).bytes, 1000 * 1282.0 + 2 * 65536);
  EXPECT_DOUBLE_EQ(work_of(s).flop, 6.0 * 1000 * 128 * 128);
  s.checkpoints = true;
  EXPECT_DOUBLE_EQ(work_of(s).bytes, 1000 * 1282.0 + (2 + 15) * 65536);
}

TEST(Model, RowsOfResultFilesHaveTheSameWork) {
  const KdaShape kda{.B = 2, .T = 100, .H = 2, .HV = 4, .D = 64, .checkpoints = true};
  EXPECT_EQ(work_of_row("kda", to_json(kda))->bytes, work_of(kda).bytes);
  const ExtendShape extend{.batch = 3, .n = 10, .prefix = 90, .Hq = 16, .Hkv = 1, .Lq = 576, .Lv = 512, .window = 20, .latent = true};
  EXPECT_EQ(work_of_row("extend", to_json(extend))->bytes, work_of(extend).bytes);
  EXPECT_EQ(work_of_row("extend", to_json(extend))->flop, work_of(extend).flop);
  nlohmann::json lists = to_json(extend);
  lists["n"] = {1, 2, 3};
  EXPECT_FALSE(work_of_row("extend", lists).has_value());
  EXPECT_FALSE(work_of_row("other", lists).has_value());
}

TEST(Model, FloorIsTheLongerOfMemoryAndTensorTime) {
  DeviceCaps caps;
  caps.copy_tbs = 1, caps.tensor_flop_per_clock = 1000, caps.sm_count = 100, caps.clock_ghz = 1;  // 100 TFLOP/s
  EXPECT_DOUBLE_EQ(floor_ms({.flop = 1e12, .bytes = 1e9}, caps), 10.0);
  EXPECT_DOUBLE_EQ(floor_ms({.flop = 1e9, .bytes = 1e10}, caps), 10.0);
}

}  // namespace
}  // namespace hyla::bench
