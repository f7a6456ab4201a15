#include <cuda_runtime.h>

#include "testing/backend.h"

namespace hyla::testing {
namespace {

Status check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  return {Code::kDevice, call, "success", cudaGetErrorString(error)};
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(cudaStream_t stream, DeviceCaps caps) : stream_(stream), caps_(std::move(caps)) {}
  ~CudaBackend() override { (void)cudaStreamDestroy(stream_); }
  std::string name() const override { return "cuda"; }
  Device device() const override { return {DeviceKind::kCuda, 0}; }
  DeviceCaps caps() const override { return caps_; }
  Stream stream() const override { return {stream_}; }
  void* allocate(size_t bytes) override {
    void* data = nullptr;
    return cudaMalloc(&data, bytes + 256) == cudaSuccess ? data : nullptr;
  }
  void release(void* data) override { (void)cudaFree(data); }
  Status upload(void* to, const void* from, size_t bytes) override { return copy(to, from, bytes, cudaMemcpyHostToDevice); }
  Status download(void* to, const void* from, size_t bytes) override { return copy(to, from, bytes, cudaMemcpyDeviceToHost); }
  Status synchronize() override { return check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  Status copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return {};
    HYLA_RETURN_IF_ERROR(check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync"));
    return synchronize();
  }

  cudaStream_t stream_;
  DeviceCaps caps_;
};

}  // namespace

std::unique_ptr<Backend> cuda_backend() {
  if (cuda_device_count() == 0) return nullptr;
  Result<DeviceCaps> caps = query_device({DeviceKind::kCuda, 0});
  cudaStream_t stream = nullptr;
  if (!caps.ok() || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return nullptr;
  return std::make_unique<CudaBackend>(stream, std::move(caps).value());
}

}  // namespace hyla::testing
