#include "benchlib/check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "benchlib/errors.h"
#include "benchlib/inputs.h"
#include "core/numeric.h"
#include "ops/extend/reference.h"
#include "ops/kda/reference.h"

namespace hyla::bench {
namespace {

void store(const TensorView& t, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isnan(values[i])) store_float(t.data, t.dtype, static_cast<int64_t>(i), static_cast<float>(values[i]));
}
// Fills the outputs with the oracle's own result.
void solve(const kda::Args& a) {
  const auto want = kda::reference(a);
  store(a.out, want.out), store(a.final_state, want.final_state);
  if (a.checkpoints.defined()) store(a.checkpoints, want.checkpoints);
}
void solve(const extend::Args& a) {
  const auto want = extend::reference(a);
  store(a.out, want.out), store(a.lse, want.lse);
}
void spoil(const TensorView& t, int64_t index) { store_float(t.data, t.dtype, index, load_float(t.data, t.dtype, index) + 10); }

const char* const kKda[] = {"B=2,T=70,H=2,HV=4,D=64,checkpoints=64", "seqlens=5+0+130+64,H=3,D=64,checkpoints=64", "T=33,H=1,D=64,gate=unbounded",
                            "T=20,H=1,D=64,gate=given"};
TEST(Check, AcceptsTheOraclesOwnResultAndNoPoison) {
  for (const char* text : kKda) {
    const KdaCase c = make_inputs(parse_kda_shape(text).value());
    EXPECT_FALSE(all_pass(check_all(c.args))) << text;  // poison
    EXPECT_FALSE(all_pass(check_sample(c.args))) << text;
    solve(c.args);
    for (const auto& list : {check_all(c.args), check_sample(c.args)}) {
      EXPECT_TRUE(all_pass(list)) << text << " " << list[0].rel_l2;
      EXPECT_EQ(list.size(), c.args.checkpoints.defined() ? 3u : 2u);
      EXPECT_GT(list[0].rel_l2, 0) << "bf16 rounding must show";
    }
  }
}
TEST(Check, SeesASpoiltValueInAnyKdaResult) {
  const KdaCase c = make_inputs(parse_kda_shape("seqlens=70+64,H=2,D=64,checkpoints=64").value());
  for (const TensorView* t : {&c.args.out, &c.args.final_state, &c.args.checkpoints}) {
    solve(c.args);
    spoil(*t, t->numel() - 1);
    EXPECT_FALSE(all_pass(check_all(c.args)));
    EXPECT_FALSE(all_pass(check_sample(c.args)));
  }
}

const char* const kExtend[] = {"n=40,prefix=30,Hq=4,Hkv=2,D=64", "batch=3,n=9,prefix=20,Hq=2,Hkv=1,Lq=96,Lv=64,latent=1,page_size=4",
                               "n=33,Hq=2,Hkv=2,D=64,window=7,sinks=1,cap=20", "batch=2,n=1,prefix=50,Hq=1,Hkv=1,D=64,window=10,dtype=fp16"};
TEST(Check, SampledRowsAgreeWithTheWholeProblem) {
  for (const char* text : kExtend) {
    const ExtendCase c = make_inputs(parse_extend_shape(text).value());
    EXPECT_FALSE(all_pass(check_sample(c.args))) << text;
    solve(c.args);
    for (const auto& list : {check_all(c.args), check_sample(c.args), check_sample(c.args, 100)}) {
      EXPECT_TRUE(all_pass(list)) << text << " " << list[0].rel_l2 << " " << list[1].max_scaled;
      EXPECT_EQ(list.size(), 2u);
    }
    spoil(c.args.out, c.args.out.numel() - 1);
    EXPECT_FALSE(all_pass(check_sample(c.args))) << text;
    solve(c.args);
    spoil(c.args.lse, c.args.lse.numel() - 1);
    EXPECT_FALSE(all_pass(check_sample(c.args))) << text;
  }
}

TEST(Check, ErrorsCountWhatIsNotFinite) {
  ErrorSum sum;
  sum.add(1, 1), sum.add(-INFINITY, -INFINITY);
  EXPECT_EQ(sum.rel_l2(), 0);
  sum.add(NAN, 1);
  EXPECT_TRUE(std::isinf(sum.rel_l2()));
  ErrorSum two;
  two.add(1.1, 1), two.add(2, 2);
  EXPECT_NEAR(two.rel_l2(), 0.1 / std::sqrt(5.0), 1e-12);
}

}  // namespace
}  // namespace hyla::bench
