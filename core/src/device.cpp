#include "hyla/device.h"

#include <array>

namespace hyla {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * 1024;

// Limits: CUDA C++ Programming Guide, "Compute Capabilities". Rates: h200 measured (docs/architecture.md says how); the others from the
// vendors' data sheets, scaled by the fraction of the data sheet that the h200 reached (0.89 of bandwidth, clock under tensor load).
const std::array<DeviceCaps, 7> kDevices{{
    {"h200", DeviceKind::kCuda, 90, 132, 227 * kKiB, 228 * kKiB, 65536, 60 * kMiB, 1.60, 4.26, 4096, 0.5},
    {"h100", DeviceKind::kCuda, 90, 132, 227 * kKiB, 228 * kKiB, 65536, 50 * kMiB, 1.60, 2.95, 4096, 0.5},
    {"a100", DeviceKind::kCuda, 80, 108, 163 * kKiB, 164 * kKiB, 65536, 40 * kMiB, 1.35, 1.75, 2048, 0.7},
    {"rtx4090", DeviceKind::kCuda, 89, 128, 99 * kKiB, 100 * kKiB, 65536, 72 * kMiB, 2.40, 0.90, 1024, 0.6},
    {"rtx-pro-6000", DeviceKind::kCuda, 120, 188, 99 * kKiB, 100 * kKiB, 65536, 128 * kMiB, 2.30, 1.60, 1024, 0.6},
    {"b200", DeviceKind::kCuda, 100, 148, 227 * kKiB, 228 * kKiB, 65536, 126 * kMiB, 1.70, 7.00, 8192, 0.5},
    {"cpu", DeviceKind::kCpu, 0, 2, 0, 0, 0, 32 * kMiB, 3.0, 0.03, 32, 0.0},
}};

}  // namespace

std::span<const DeviceCaps> known_devices() { return kDevices; }

Result<DeviceCaps> find_device(std::string_view name) {
  std::string names;
  for (const DeviceCaps& caps : kDevices) {
    if (caps.name == name) {
      DeviceCaps found = caps;
      if (found.kind == DeviceKind::kCpu) found.sm_count = cpu_threads();
      return found;
    }
    names += (names.empty() ? "" : ", ") + caps.name;
  }
  return Status::invalid("device", "one of " + names, std::string(name));
}

}  // namespace hyla
