#include "benchlib/placed.h"

#include <gtest/gtest.h>

#include "benchlib/inputs.h"

namespace hyla::bench {
namespace {

// A "device" of its own memory: what runs there must not touch the host's.
class FarBackend final : public testing::Backend {
 public:
  std::string name() const override { return "far"; }
  Device device() const override { return {DeviceKind::kCuda, 0}; }
  DeviceCaps caps() const override { return find_device("h200").value(); }
  Stream stream() const override { return {}; }
  void* allocate(size_t bytes) override { return ++live, std::aligned_alloc(256, (bytes + 511) / 256 * 256); }
  void release(void* data) override { --live, std::free(data); }
  Status upload(void* to, const void* from, size_t bytes) override { return std::memcpy(to, from, bytes), Status(); }
  Status download(void* to, const void* from, size_t bytes) override { return std::memcpy(to, from, bytes), Status(); }
  Status synchronize() override { return {}; }
  int live = 0;
};

TEST(Placed, CopiesInputsKeepsAliasesAndFetchesOutputs) {
  const ExtendShape shape{.n = 6, .prefix = 10, .Hq = 4, .Hkv = 1, .Lq = 96, .Lv = 64, .latent = true};
  FarBackend backend;
  {
    const ExtendCase host = make_inputs(shape);
    auto placed = Placed<extend::Args>::make(host.args, backend);
    ASSERT_TRUE(placed.ok());
    const extend::Args& a = placed->args();
    EXPECT_EQ(a.v.data, a.k.data);
    EXPECT_EQ(a.v_buffer.data, a.k_buffer.data);
    EXPECT_NE(a.q.data, host.args.q.data);
    EXPECT_EQ(a.q.device, backend.device());
    EXPECT_EQ(std::memcmp(a.k_buffer.data, host.args.k_buffer.data, static_cast<size_t>(extent_bytes(a.k_buffer))), 0);
    EXPECT_FALSE(a.custom_mask.defined());
    std::memset(a.out.data, 0x11, static_cast<size_t>(extent_bytes(a.out)));
    ASSERT_TRUE(placed->fetch(backend).ok());
    EXPECT_EQ(host.args.out.as<uint8_t>()[5], 0x11);
    EXPECT_EQ(make_problem(a)->v_aliases_k, true);
  }
  EXPECT_EQ(backend.live, 0);
}

}  // namespace
}  // namespace hyla::bench
