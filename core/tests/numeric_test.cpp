#include "core/numeric.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hyla {
namespace {

// Every value of a format must survive the way to fp32 and back.
template <class ToFloat, class FromFloat>
void expect_round_trip(uint32_t count, ToFloat to_float, FromFloat from_float) {
  for (uint32_t bits = 0; bits < count; ++bits) {
    const float value = to_float(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(from_float(value)))) << bits;
    } else {
      ASSERT_EQ(from_float(value), bits) << value;
    }
  }
}

TEST(Numeric, EveryValueOfEveryFormatSurvives) {
  expect_round_trip(
      1u << 16, [](uint32_t b) { return bf16_to_float(static_cast<uint16_t>(b)); }, [](float f) { return float_to_bf16(f); });
  expect_round_trip(
      1u << 16, [](uint32_t b) { return fp16_to_float(static_cast<uint16_t>(b)); }, [](float f) { return float_to_fp16(f); });
  expect_round_trip(1u << 16, Half::to_float, Half::from_float);
  expect_round_trip(1u << 8, E4m3::to_float, E4m3::from_float);
  expect_round_trip(1u << 8, E5m2::to_float, E5m2::from_float);
}

TEST(Numeric, RoundsToNearestEven) {
  EXPECT_EQ(bf16_to_float(float_to_bf16(1.0f + 0x1p-8f)), 1.0f);                // a tie goes to the even mantissa
  EXPECT_EQ(bf16_to_float(float_to_bf16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);  // the other tie goes up
  EXPECT_EQ(bf16_to_float(float_to_bf16(std::nextafter(1.0f + 0x1p-8f, 2.0f))), 1.0f + 0x1p-7f);
  EXPECT_EQ(Half::to_float(Half::from_float(1.0f + 0x1p-11f)), 1.0f);
  EXPECT_EQ(E4m3::to_float(E4m3::from_float(1.0625f)), 1.0f);
  EXPECT_TRUE(std::isnan(E4m3::to_float(E4m3::from_float(1000.0f))));
  EXPECT_TRUE(std::isinf(E5m2::to_float(E5m2::from_float(1e6f))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
}

}  // namespace
}  // namespace hyla
