#include "benchlib/peers.h"

#include <gtest/gtest.h>

#include "benchlib/presets.h"

namespace hyla::bench {
namespace {

Peers recorded() {
  auto peers = Peers::read(HYLA_RECORDED_PEERS);
  EXPECT_TRUE(peers.ok()) << peers.status().message();
  return std::move(peers).value();
}

TEST(Peers, ServeTheirOwnKindOfDeviceOnly) {
  const Peers peers = recorded();
  DeviceCaps caps;
  caps.kind = DeviceKind::kCuda;
  for (const auto& [name, serves] :
       {std::pair("h200", true), {"NVIDIA H200", true}, {"NVIDIA H200 NVL", true}, {"NVIDIA H100", false}, {"b200", false}, {"gh200x", false}}) {
    caps.name = name;
    EXPECT_EQ(peers.serve(caps), serves) << name;
  }
  EXPECT_FALSE(peers.serve(find_device("cpu").value()));
  EXPECT_FALSE(Peers().serve(find_device("h200").value()));
}

TEST(Peers, FoundByShape) {
  const Peers peers = recorded();
  nlohmann::json row = {{"peers", peers.find("kda", to_json(parse_kda_shape("B=1,T=8192,H=4").value()))}};
  ASSERT_TRUE(best_peer(row).has_value());
  EXPECT_EQ(best_peer(row)->name, "fla");
  EXPECT_NEAR(best_peer(row)->graph_ms, 0.4165, 1e-4);
  EXPECT_EQ(row["peers"]["fla"]["recorded"], true);
  EXPECT_TRUE(peers.find("kda", to_json(parse_kda_shape("B=1,T=8192,H=4,gate=unbounded").value())).empty());
  EXPECT_TRUE(peers.find("kda", to_json(parse_kda_shape("B=3,T=8192,H=4").value())).empty());
  EXPECT_FALSE(best_peer({{"peers", nlohmann::json::object()}}).has_value());
  // A request with sinks is another problem than the recorded one without.
  EXPECT_FALSE(peers.find("extend", to_json(parse_extend_shape("n=16384,Hq=16,Hkv=8,D=128").value())).empty());
  EXPECT_TRUE(peers.find("extend", to_json(parse_extend_shape("n=16384,Hq=16,Hkv=8,D=128,sinks=1").value())).empty());
}

TEST(Peers, MostRecordsAreCellsOfThePresets) {
  const Peers peers = recorded();
  size_t kda = 0, extend = 0;
  for (const char* name : {"grid", "varlen", "kimi-k3", "glm-5.3-flash"}) {
    const auto list = kda_preset(name).value();
    for (const auto& item : list) kda += !peers.find("kda", to_json(item.shape)).empty();
  }
  const auto list = extend_preset("grid").value();
  for (const auto& item : list) extend += !peers.find("extend", to_json(item.shape)).empty();
  EXPECT_GE(kda, 45u);
  EXPECT_GE(extend, 12u);
}

TEST(Peers, BrokenFilesAreErrors) { EXPECT_EQ(Peers::read("/no/such/file").status().code(), Code::kIo); }

}  // namespace
}  // namespace hyla::bench
