#include "hyla/device.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace hyla {
namespace {

TEST(Devices, KnownChipsAreFoundByName) {
  for (const char* name : {"h200", "h100", "a100", "rtx4090", "rtx-pro-6000", "b200", "cpu"}) {
    const auto caps = find_device(name);
    ASSERT_TRUE(caps.ok()) << caps.status().message();
    EXPECT_EQ(caps->name, name);
    EXPECT_GT(caps->sm_count, 0);
    EXPECT_GT(caps->clock_ghz, 0);
    EXPECT_GT(caps->copy_tbs, 0);
    EXPECT_GT(caps->tensor_flop_per_clock, 0);
    if (caps->kind == DeviceKind::kCuda) {
      EXPECT_GE(caps->compute_capability, 80);
      EXPECT_LE(caps->smem_per_block, caps->smem_per_sm);
    }
  }
  EXPECT_EQ(known_devices().size(), 7u);
}

TEST(Devices, UnknownNameIsAnErrorThatListsTheKnownOnes) {
  const auto caps = find_device("h300");
  ASSERT_FALSE(caps.ok());
  EXPECT_NE(caps.status().message().find("rtx-pro-6000"), std::string::npos);
  EXPECT_NE(caps.status().message().find("h300"), std::string::npos);
}

TEST(Devices, QueryOfTheCpuAndOfAnAbsentGpu) {
  const auto cpu = query_device({});
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  EXPECT_EQ(cpu->kind, DeviceKind::kCpu);
  EXPECT_EQ(cpu->sm_count, cpu_threads());
  const auto absent = query_device({DeviceKind::kCuda, 1000});
  EXPECT_FALSE(absent.ok());
  EXPECT_FALSE(absent.status().message().empty());
}

TEST(Devices, CudaIsAbsentInABuildWithoutIt) {
  EXPECT_GE(cuda_device_count(), 0);
  if (!built_with_cuda()) {
    EXPECT_EQ(cuda_device_count(), 0);
  }
}

}  // namespace
}  // namespace hyla
