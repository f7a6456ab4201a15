#include "testing/compare.h"

#include <gtest/gtest.h>

#include <vector>

#include "testing/guarded.h"
#include "testing/random.h"

namespace hyla::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

Difference difference(std::vector<float> got, std::vector<double> want) { return compare(std::span<const float>(got), std::span<const double>(want)); }

TEST(Compare, EqualArraysDoNotDiffer) {
  const Difference d = difference({1, -2, 3}, {1, -2, 3});
  EXPECT_EQ(d.rel_l2, 0);
  EXPECT_EQ(d.max_abs, 0);
  EXPECT_TRUE(d.within(0, 0));
}

TEST(Compare, MeasuresAgainstTheNormAndTheRms) {
  const Difference d = difference({3, 4.5}, {3, 4});
  EXPECT_DOUBLE_EQ(d.rel_l2, 0.1);
  EXPECT_DOUBLE_EQ(d.max_abs, 0.5);
  EXPECT_DOUBLE_EQ(d.max_over_rms, 0.5 / std::sqrt(12.5));
  EXPECT_EQ(d.worst, 1u);
  EXPECT_FALSE(d.within(0.09, 1));
  EXPECT_FALSE(d.within(1, 0.1));
  EXPECT_TRUE(d.within(0.11, 0.2));
}

TEST(Compare, NonFiniteValuesMustAgreeInKind) {
  EXPECT_TRUE(difference({kNan, kInf, 1}, {kNan, kInf, 1}).within(0, 0));
  EXPECT_EQ(difference({kNan, 1}, {0, 1}).kind_mismatches, 1u);
  EXPECT_EQ(difference({0, 1}, {kNan, 1}).kind_mismatches, 1u);
  EXPECT_EQ(difference({kInf}, {-kInf}).kind_mismatches, 1u);
  EXPECT_FALSE(difference({kNan, 1}, {0, 1}).within(1e9, 1e9));
}

TEST(Compare, AnErrorAgainstZerosIsSeen) {
  EXPECT_GT(difference({1e-3f, 0}, {0, 0}).rel_l2, 0);
  EXPECT_FALSE(difference({1}, {1, 1}).within(1e9, 1e9));
}

TEST(Random, IsTheSameEverywhere) {
  Random a(1), b(1), c(2);
  EXPECT_EQ(a.bits(), 0x910a2dec89025cc1u);
  EXPECT_EQ(b.bits(), 0x910a2dec89025cc1u);
  EXPECT_NE(c.bits(), 0x910a2dec89025cc1u);
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = a.normal();
    sum += x, squares += x * x;
  }
  EXPECT_NEAR(sum / 100000, 0, 0.02);
  EXPECT_NEAR(squares / 100000, 1, 0.02);
}

TEST(Guarded, ReportsAWriteOnEitherSide) {
  const auto backend = cpu_backend();
  for (const int64_t offset : {int64_t{-1}, int64_t{40}}) {
    Guarded buffer(*backend, 40, 8);
    ASSERT_TRUE(buffer.ok());
    ASSERT_TRUE(buffer.fill(0xFF).ok());
    EXPECT_TRUE(buffer.intact());
    static_cast<uint8_t*>(buffer.data())[offset] ^= 1;
    EXPECT_FALSE(buffer.intact());
  }
}

}  // namespace
}  // namespace hyla::testing
