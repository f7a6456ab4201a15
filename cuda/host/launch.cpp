#include "cuda/host/launch.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

namespace hyla::cuda {
namespace {

constexpr unsigned kMaxGridX = 2147483647u, kMaxGridYZ = 65535u;
constexpr int64_t kDefaultSmem = 48 * 1024;  // what a kernel may ask without opting in

std::string text_of(dim3 d) { return std::to_string(d.x) + " x " + std::to_string(d.y) + " x " + std::to_string(d.z); }

}  // namespace

Status check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();
  return {Code::kDevice, call, "success", std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")"};
}

DeviceGuard::DeviceGuard(Device device) {
  int current = 0;
  status_ = check(cudaGetDevice(&current), "cudaGetDevice");
  if (!status_.ok() || device.kind != DeviceKind::kCuda || device.index == current) return;
  status_ = check(cudaSetDevice(device.index), "cudaSetDevice");
  if (status_.ok()) previous_ = current;
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

Status prepare_launch(const void* kernel, const char* name, const LaunchConfig& config) {
  const dim3 g = config.grid;
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > kMaxGridX || g.y > kMaxGridYZ || g.z > kMaxGridYZ)
    return {Code::kDevice, name, "a grid within 2147483647 x 65535 x 65535", text_of(g)};
  if (config.smem_bytes <= kDefaultSmem) return {};
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, int64_t> granted;
  int device = 0;
  HYLA_RETURN_IF_ERROR(check(cudaGetDevice(&device), "cudaGetDevice"));
  std::lock_guard lock(mutex);
  int64_t& limit = granted[{kernel, device}];
  if (config.smem_bytes <= limit) return {};
  HYLA_RETURN_IF_ERROR(check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(config.smem_bytes)), name));
  limit = config.smem_bytes;
  return {};
}

}  // namespace hyla::cuda
