// Launching kernels: every runtime call checked, on the tensors' device, without the <<<>>> syntax, so plain C++ may include this.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "hyla/status.h"
#include "hyla/tensor.h"

namespace hyla::cuda {

// OK, or kDevice naming the call and the runtime's error. Clears the runtime's last error, so that it is reported once.
Status check(cudaError_t error, const char* call);

// Makes `device` current and restores the previous one. The runtime keeps the current device per thread.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  const Status& status() const { return status_; }

 private:
  int previous_ = -1;  // -1: nothing to restore
  Status status_;
};

struct LaunchConfig {
  dim3 grid{1, 1, 1};
  dim3 block{1, 1, 1};
  int64_t smem_bytes = 0;  // dynamic shared memory
  int cluster = 1;         // blocks of a cluster along x
  bool pdl = false;        // programmatic dependent launch: may start before the previous kernel of the stream ends; the kernel waits itself
};

// Refuses grids beyond the limits and raises the kernel's dynamic shared memory limit on the current device. The limit is set once a
// device and kernel and only ever raised, so that concurrent callers with other sizes do not disturb each other.
Status prepare_launch(const void* kernel, const char* name, const LaunchConfig& config);

// Launches on the current device (see DeviceGuard). `name` appears in errors.
template <class... Params, class... Args>
Status launch(void (*kernel)(Params...), const char* name, const LaunchConfig& config, Stream stream, Args&&... args) {
  static_assert(sizeof...(Params) == sizeof...(Args));
  HYLA_RETURN_IF_ERROR(prepare_launch(reinterpret_cast<const void*>(kernel), name, config));
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (config.pdl) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (config.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = static_cast<unsigned>(config.cluster);
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  cudaLaunchConfig_t launch_config{};
  launch_config.gridDim = config.grid;
  launch_config.blockDim = config.block;
  launch_config.dynamicSmemBytes = static_cast<size_t>(config.smem_bytes);
  launch_config.stream = static_cast<cudaStream_t>(stream.handle);
  launch_config.attrs = attributes;
  launch_config.numAttrs = count;
  return check(cudaLaunchKernelEx(&launch_config, kernel, static_cast<Params>(std::forward<Args>(args))...), name);
}

}  // namespace hyla::cuda
