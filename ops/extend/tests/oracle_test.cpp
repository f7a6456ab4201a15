// The oracle itself, against values worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/extend/tests/test_targets.h"

namespace hyla::extend {
namespace {

CaseData two_keys(float first, float second) {
  Case c;
  c.extend = {1}, c.prefix = {1}, c.Hq = c.Hkv = 1, c.Lq = c.Lv = 8;
  CaseData data = make_data(c);
  Args& a = data.args;
  for (int64_t d = 0; d < 8; ++d) {
    store_float(a.q.data, a.q.dtype, d, d == 0), store_float(a.k.data, a.k.dtype, d, second), store_float(a.v.data, a.v.dtype, d, 10);
    for (int64_t s = 0; s < a.k_buffer.shape[0]; ++s)
      store_float(a.k_buffer.data, a.k_buffer.dtype, s * 8 + d, first), store_float(a.v_buffer.data, a.v_buffer.dtype, s * 8 + d, 2);
  }
  a.sm_scale = 1;
  return data;
}

TEST(ExtendOracle, TwoKeys) {
  const ReferenceResult r = reference(two_keys(1, 1).args);
  EXPECT_NEAR(r.out[0], 6, 1e-12);
  EXPECT_NEAR(r.lse[0], 1 + std::log(2.0), 1e-12);
  const ReferenceResult s = reference(two_keys(0, 2).args);
  const double w = 1 / (1 + std::exp(-2.0));
  EXPECT_NEAR(s.out[7], (1 - w) * 2 + w * 10, 1e-12);
  EXPECT_NEAR(s.lse[0], std::log(1 + std::exp(2.0)), 1e-12);
}

TEST(ExtendOracle, DefaultScaleIsTheRootOfTheHeadDimension) {
  CaseData data = two_keys(2, 2);
  data.args.sm_scale = 0;
  EXPECT_NEAR(reference(data.args).lse[0], 2 / std::sqrt(8.0) + std::log(2.0), 1e-12);
}

TEST(ExtendOracle, PrefixScalesCapTemperatureAndFlags) {
  CaseData data = two_keys(1, 1);
  Args& a = data.args;
  a.k_scale = 3, a.v_scale = 0.5f;
  double w = 1 / (1 + std::exp(-2.0));
  EXPECT_NEAR(reference(a).out[0], w * 1 + (1 - w) * 10, 1e-7);
  a.logit_cap = 2;
  const double prefix = 2 * std::tanh(1.5), own = 2 * std::tanh(0.5);
  EXPECT_NEAR(reference(a).lse[0], std::log(std::exp(prefix) + std::exp(own)), 1e-12);
  a.skip_prefix = true;
  EXPECT_NEAR(reference(a).lse[0], own, 1e-12);
  EXPECT_NEAR(reference(a).out[0], 10, 1e-12);
  a.skip_extend = true;
  EXPECT_EQ(reference(a).lse[0], -INFINITY);
  EXPECT_EQ(reference(a).out[0], 0);
}

TEST(ExtendOracle, RowsOfNoRequestStayNan) {
  const CaseData data = make_data(*find_case("trailing_rows"));
  const ReferenceResult r = reference(data.args);
  EXPECT_TRUE(std::isnan(r.out.back()));
  EXPECT_TRUE(std::isnan(r.lse.back()));
  EXPECT_FALSE(std::isnan(r.out.front()));
}

TEST(ExtendOracle, CountsPairs) {
  Case c;
  c.extend = {5, 0, 3}, c.prefix = {2, 9, 0};
  EXPECT_EQ(count_pairs(make_data(c).args), 5 * 2 + 15 + 6);
  c.window = 1;
  EXPECT_EQ(count_pairs(make_data(c).args), 5 * 2 + 5);
}

TEST(ExtendCases, NamesAreUniqueAndFound) {
  for (const Case& c : all_cases()) {
    EXPECT_EQ(find_case(c.name), &c);
    EXPECT_EQ(c.extend.size(), c.prefix.size()) << c.name;
    const CaseData data = make_data(c);
    const Status contents = check_contents(data.args);
    if (c.bad_slots == 0) {
      EXPECT_TRUE(contents.ok()) << c.name << ": " << contents.message();
    } else {
      EXPECT_EQ(contents.argument().rfind("kv_indices[", 0), 0u) << c.name;
    }
  }
  EXPECT_EQ(find_case("no such case"), nullptr);
}

// The runner notices what it is there to notice.
TEST(ExtendRunner, NoticesWrongValues) {
  const CaseData data = make_data(*find_case("d64"));
  const ReferenceResult want = reference(data.args);
  const Outputs good = compute(data, {}, *testing::backend_named("cpu"));
  std::string problem;
  EXPECT_LE(compare(data.args, good.out_bytes, good.lse_bytes, want, problem).rel_l2, 0.004);
  EXPECT_EQ(problem, "");
  std::vector<uint8_t> bad = good.out_bytes;
  bad[1] ^= 0x40;  // one value's exponent
  EXPECT_GT(compare(data.args, bad, good.lse_bytes, want, problem).element, 0.02);
  bad = good.out_bytes, bad[4] = bad[5] = 0xFF;
  (void)compare(data.args, bad, good.lse_bytes, want, problem);
  EXPECT_NE(problem, "");
  problem.clear(), bad = good.lse_bytes;
  for (size_t i = 0; i < bad.size(); i += 4) {
    float x;
    std::memcpy(&x, bad.data() + i, 4);
    x *= 1.442695f;  // the wrong base
    std::memcpy(bad.data() + i, &x, 4);
  }
  EXPECT_GT(compare(data.args, good.out_bytes, bad, want, problem).lse, 0.1);
}

TEST(ExtendRunner, NoticesWritesOutsideTheOutput) {
  const CaseData data = make_data(*find_case("trailing_rows"));
  PlacedCase placed(data, *testing::backend_named("cpu"), 0);
  ASSERT_TRUE(placed.ok());
  EXPECT_EQ(placed.damage(), "");
  const Args& a = placed.args();
  a.out.as<uint8_t>()[a.out.numel() * 2 - 1] = 0;
  EXPECT_NE(placed.damage().find("past the last request"), std::string::npos);
  ASSERT_TRUE(placed.poison_outputs().ok());
  a.out.as<uint8_t>()[a.out.numel() * 2] ^= 1;
  EXPECT_NE(placed.damage().find("canary"), std::string::npos);
  a.out.as<uint8_t>()[a.out.numel() * 2] ^= 1;
  a.q.as<uint8_t>()[0] ^= 1;
  EXPECT_NE(placed.damage().find("input"), std::string::npos);
}

}  // namespace
}  // namespace hyla::extend
