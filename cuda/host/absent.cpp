// A build without CUDA.
#include "hyla/device.h"

namespace hyla {

bool built_with_cuda() { return false; }

int cuda_device_count() { return 0; }

Result<DeviceCaps> query_device(Device device) {
  if (device.kind == DeviceKind::kCpu) return find_device("cpu");
  return Status::unsupported("device", "cpu (this build of hyla has no CUDA kernels)", to_string(device));
}

}  // namespace hyla
