// What a planner needs to know of a chip. Plain numbers, so that plans for any chip are made and tested on any machine.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hyla/status.h"
#include "hyla/tensor.h"

namespace hyla {

struct DeviceCaps {
  std::string name;  // "h200", or the driver's name of a queried device
  DeviceKind kind = DeviceKind::kCpu;
  int compute_capability = 0;  // 90 for Hopper; 0 for the CPU
  int sm_count = 0;            // multiprocessors; hardware threads for the CPU
  int64_t smem_per_block = 0;  // bytes a block may opt in to
  int64_t smem_per_sm = 0;     // bytes
  int64_t registers_per_sm = 0;
  int64_t l2_bytes = 0;
  double clock_ghz = 0;              // sustained under tensor load
  double copy_tbs = 0;               // device-to-device copy, bytes read + written, TB/s
  double tensor_flop_per_clock = 0;  // dense bf16, per SM; for the CPU fp32 FLOP per core and clock
  double graph_node_us = 0;          // marginal cost of one kernel in a replayed graph
  bool operator==(const DeviceCaps&) const = default;
};

// The chips whose figures are built in: h200, h100, a100, rtx4090, rtx-pro-6000, b200, cpu.
std::span<const DeviceCaps> known_devices();
// The built-in figures of `name`; the error lists the names known.
Result<DeviceCaps> find_device(std::string_view name);

// Number of CUDA devices that can be used; 0 in a build without CUDA or on a machine without a driver. Never an error.
int cuda_device_count();
// True when the library was built with its CUDA kernels.
bool built_with_cuda();
// The figures of a device of this machine: limits from the driver, rates from the built-in table where the chip is known.
Result<DeviceCaps> query_device(Device device);

// The CPU backend's number of threads: HYLA_NUM_THREADS, else the hardware threads this process may use.
int cpu_threads();

}  // namespace hyla
