// Ratios of times within one run: the CPU backend against this machine's SGEMM, and cost against work.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "ops/extend/tests/sgemm.h"
#include "ops/extend/tests/test_targets.h"

namespace hyla::extend {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
constexpr bool kOptimised = false;
#else
constexpr bool kOptimised = true;
#endif

class ExtendSpeed : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kOptimised) GTEST_SKIP() << "times mean nothing in a debug or sanitizer build";
  }
  // The least of several runs.
  static double seconds(const Case& c) {
    const CaseData data = make_data(c);
    const Plan p = plan(data.args, find_device("cpu").value()).value();
    testing::Guarded workspace(*testing::backend_named("cpu"), p.workspace_bytes);
    double best = 1e9;
    for (int run = 0; run < 5; ++run) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_TRUE(hyla::extend::run(p, data.args, {workspace.data(), p.workspace_bytes}).ok());
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
  }
  // The first value within the limit, or the last of six: whatever else runs on the machine can only make a measurement worse.
  template <class Measure>
  static double best_of_tries(double limit, Measure measure) {
    double value = measure();
    for (int attempt = 1; attempt < 6 && value > limit; ++attempt) value = measure();
    return value;
  }
  static Case shape(std::vector<int64_t> extend, std::vector<int64_t> prefix) {
    Case c;
    c.extend = std::move(extend), c.prefix = std::move(prefix), c.Hq = 4, c.Hkv = 2, c.Lq = c.Lv = 128;
    return c;
  }
};

TEST_F(ExtendSpeed, AQuarterOfSgemm) {
  Case c = shape({2048}, {0});
  c.Hq = c.Hkv = 8;
  double sgemm_rate = 0, rate = 0;
  const double times_slower = best_of_tries(4, [&] {
    double sgemm = 1e9;
    for (int run = 0; run < 5; ++run) sgemm = std::min(sgemm, sgemm_seconds(768));
    sgemm_rate = cpu_threads() * 2.0 * 768 * 768 * 768 / sgemm;
    rate = 2.0 * 2048 * 2049 / 2 * 8 * 256 / seconds(c);
    return sgemm_rate / rate;
  });
  RecordProperty("sgemm_gflops", static_cast<int>(sgemm_rate * 1e-9));
  RecordProperty("extend_gflops", static_cast<int>(rate * 1e-9));
  EXPECT_LE(times_slower, 4) << "useful GFLOP/s " << rate * 1e-9 << ", SGEMM " << sgemm_rate * 1e-9;
}

// With a fixed window the time grows with the length, not with its square.
TEST_F(ExtendSpeed, WindowsAreLinear) {
  Case small = shape({1024}, {0}), large = shape({8192}, {0});
  small.window = large.window = 127;
  EXPECT_LE(best_of_tries(24, [&] { return seconds(large) / seconds(small); }), 24) << "8 times the tokens; a sweep over all keys would take 64 times as long";
}

// One long row among many short ones costs about the sum of the two.
TEST_F(ExtendSpeed, MixedBatchesCostTheSumOfTheirParts) {
  std::vector<int64_t> ones(63, 1), extend = ones, prefix(63, 256);
  const Case many = shape(ones, prefix), one = shape({2048}, {0});
  extend.push_back(2048), prefix.push_back(0);
  const Case mixed = shape(extend, prefix);
  EXPECT_LE(best_of_tries(2, [&] { return seconds(mixed) / (seconds(many) + seconds(one)); }), 2);
}

}  // namespace
}  // namespace hyla::extend
