#include "hyla/device.h"

#include <cuda_runtime.h>

#include <array>
#include <mutex>
#include <optional>

#include "cuda/host/launch.h"

namespace hyla {
namespace {

// Words of the driver's device names, and whose figures they stand for. First match wins.
struct KnownName {
  const char* word;
  const char* device;
};
constexpr std::array<KnownName, 6> kKnownNames{
    {{"H200", "h200"}, {"H100", "h100"}, {"A100", "a100"}, {"RTX 4090", "rtx4090"}, {"RTX PRO 6000", "rtx-pro-6000"}, {"B200", "b200"}}};

Status read_attribute(int device, cudaDeviceAttr attribute, int& value) {
  return cuda::check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
}

Result<DeviceCaps> query(int device) {
  cudaDeviceProp properties{};
  HYLA_RETURN_IF_ERROR(cuda::check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
  const std::string name = properties.name;
  const int capability = properties.major * 10 + properties.minor;

  // Rates: of the chip itself, else of a chip of the same generation with the memory rate of this one.
  std::optional<DeviceCaps> caps;
  for (const KnownName& known : kKnownNames)
    if (!caps && name.find(known.word) != std::string::npos) caps = find_device(known.device).value();
  if (!caps || caps->compute_capability != capability) {
    caps.reset();
    for (const DeviceCaps& known : known_devices())
      if (!caps && known.kind == DeviceKind::kCuda && known.compute_capability / 10 == properties.major) caps = known;
    if (!caps) caps = find_device("a100").value();
    int memory_khz = 0, bus_bits = 0;
    HYLA_RETURN_IF_ERROR(read_attribute(device, cudaDevAttrMemoryClockRate, memory_khz));
    HYLA_RETURN_IF_ERROR(read_attribute(device, cudaDevAttrGlobalMemoryBusWidth, bus_bits));
    constexpr double kReached = 0.89;  // copy rate over the data sheet's, as on the h200; two transfers a clock
    if (memory_khz > 0 && bus_bits > 0) caps->copy_tbs = kReached * 2.0 * memory_khz * 1e3 * (bus_bits / 8.0) * 1e-12;
    caps->name = name;
  }
  caps->kind = DeviceKind::kCuda;
  caps->compute_capability = capability;
  caps->sm_count = properties.multiProcessorCount;
  caps->smem_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  caps->smem_per_sm = static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
  caps->registers_per_sm = properties.regsPerMultiprocessor;
  caps->l2_bytes = properties.l2CacheSize;
  return *std::move(caps);
}

}  // namespace

bool built_with_cuda() { return true; }

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver, or no device: not an error of the program
  return 0;
}

Result<DeviceCaps> query_device(Device device) {
  if (device.kind == DeviceKind::kCpu) return find_device("cpu");
  const int count = cuda_device_count();
  if (device.index < 0 || device.index >= count)
    return Status::invalid("device", "cuda:0 to cuda:" + std::to_string(count - 1) + (count == 0 ? " (no CUDA device was found)" : ""), to_string(device));
  constexpr int kCached = 16;  // the driver's answer takes a millisecond
  static std::mutex mutex;
  static std::array<std::optional<DeviceCaps>, kCached> cache;
  std::lock_guard lock(mutex);
  if (device.index < kCached && cache[device.index]) return *cache[device.index];
  auto caps = query(device.index);
  if (caps.ok() && device.index < kCached) cache[device.index] = caps.value();
  return caps;
}

}  // namespace hyla
