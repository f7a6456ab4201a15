// main() of the tests that run on a device: by default the instances of the CPU backend are left out, and a machine without a device says so.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "hyla/device.h"

int main(int argc, char** argv) {
  // Before InitGoogleTest, so that --gtest_filter on the command line wins.
  GTEST_FLAG_SET(filter, "-*cpu*");
  ::testing::InitGoogleTest(&argc, argv);
  if (hyla::cuda_device_count() == 0) std::printf("no CUDA device: every test that needs one is skipped\n");
  return RUN_ALL_TESTS();
}
