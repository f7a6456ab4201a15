#include "benchlib/shapes.h"

#include <gtest/gtest.h>

#include "benchlib/inputs.h"
#include "benchlib/presets.h"

namespace hyla::bench {
namespace {

TEST(Shapes, KdaKeys) {
  const auto s = parse_kda_shape("B=2,T=100,H=4,HV=8,D=64,gate=unbounded,state=bf16,checkpoints=64");
  ASSERT_TRUE(s.ok()) << s.status().message();
  EXPECT_EQ(s->B, 2);
  EXPECT_EQ(s->HV, 8);
  EXPECT_EQ(s->gate, kda::Gate::kUnbounded);
  EXPECT_TRUE(s->bf16_state && s->checkpoints);
  EXPECT_EQ(parse_kda_shape("H=12")->HV, 12);
  EXPECT_EQ(parse_kda_shape("seqlens=1+0+63")->T, 64);
}

TEST(Shapes, ExtendKeys) {
  const auto s = parse_extend_shape("batch=2,n=5,prefix=9,Hq=16,Hkv=1,Lq=576,Lv=512,latent=1,window=3,sinks=1,cap=50,page_size=16,dtype=fp16");
  ASSERT_TRUE(s.ok()) << s.status().message();
  EXPECT_EQ(s->Lv, 512);
  EXPECT_EQ(s->window, 3);
  EXPECT_EQ(s->dtype, DType::kFp16);
  EXPECT_EQ(parse_extend_shape("D=64")->Lv, 64);
}

TEST(Shapes, ErrorsNameTheKey) {
  for (const auto& [text, named] : {std::pair("T=x", "T"),
                                    {"T=-1", "T"},
                                    {"B=0", "B"},
                                    {"Q=1", "Q=1"},
                                    {"T", "'T'"},
                                    {"", "''"},
                                    {"gate=open", "gate"},
                                    {"T=99999999999999999999", "T"},
                                    {"checkpoints=32", "checkpoints"},
                                    {"B=2,seqlens=1+2", "B"},
                                    {"T=1,", "''"}}) {
    const auto s = parse_kda_shape(text);
    ASSERT_FALSE(s.ok()) << text;
    EXPECT_NE(s.status().message().find(named), std::string::npos) << s.status().message();
  }
  EXPECT_FALSE(parse_extend_shape("Lq=64,Lv=128,latent=1").ok());
  EXPECT_FALSE(parse_extend_shape("sinks=2").ok());
}

template <class List>
void expect_valid(const List& list) {
  for (const auto& item : list) {
    const auto problem = make_problem(bare_args(item.shape, {DeviceKind::kCuda, 0}));
    EXPECT_TRUE(problem.ok()) << item.group << " " << name_of(item.shape) << ": " << problem.status().message();
  }
}
TEST(Shapes, EveryPresetIsAValidProblem) {
  for (const std::string& name : kda_presets()) expect_valid(*kda_preset(name));
  for (const std::string& name : extend_presets()) expect_valid(*extend_preset(name));
  for (const bool cpu : {true, false}) expect_valid(kda_demo(cpu)), expect_valid(extend_demo(cpu));
  EXPECT_EQ(kda_preset("grid")->size(), 17u * 9);
  EXPECT_FALSE(kda_preset("nothing").has_value());
}

TEST(Shapes, JsonHasTheResultFormatsFields) {
  const auto kda = to_json(parse_kda_shape("seqlens=10+20,H=2").value());
  EXPECT_EQ(kda.dump(), R"({"B":1,"H":2,"HV":2,"K":128,"T":30,"V":128,"checkpoints":null,"gate":"bounded","seqlens":[10,20],"state":"fp32"})");
  const auto extend = to_json(parse_extend_shape("n=8,latent=1,Lq=576,Lv=512,Hkv=1").value());
  EXPECT_EQ(extend["features"].dump(), R"(["latent"])");
  EXPECT_EQ(extend["window"], -1);
}

}  // namespace
}  // namespace hyla::bench
