#include "testing/gpu.h"

#include <cuda_runtime.h>

#include "cuda/host/launch.h"

namespace hyla::testing {

using cuda::check;

GpuStream::GpuStream() {
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess) handle_ = stream;
}
GpuStream::~GpuStream() {
  if (handle_) (void)cudaStreamDestroy(static_cast<cudaStream_t>(handle_));
}
Status GpuStream::synchronize() const { return check(cudaStreamSynchronize(static_cast<cudaStream_t>(handle_)), "cudaStreamSynchronize"); }

Result<std::shared_ptr<GpuGraph>> GpuGraph::capture(const GpuStream& stream, const std::function<Status(Stream)>& enqueue) {
  const auto handle = static_cast<cudaStream_t>(stream.stream().handle);
  // Global mode: any call that could synchronise or allocate, on any thread, ends the capture with an error.
  HYLA_RETURN_IF_ERROR(check(cudaStreamBeginCapture(handle, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture"));
  const Status enqueued = enqueue(stream.stream());
  cudaGraph_t graph = nullptr;
  const Status ended = check(cudaStreamEndCapture(handle, &graph), "cudaStreamEndCapture");
  HYLA_RETURN_IF_ERROR(enqueued);
  HYLA_RETURN_IF_ERROR(ended);
  auto result = std::make_shared<GpuGraph>();
  cudaGraphExec_t exec = nullptr;
  Status status = check(cudaGraphGetNodes(graph, nullptr, &result->nodes_), "cudaGraphGetNodes");
  if (status.ok()) status = check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  (void)cudaGraphDestroy(graph);
  HYLA_RETURN_IF_ERROR(status);
  result->exec_ = exec;
  return result;
}
GpuGraph::~GpuGraph() {
  if (exec_) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(exec_));
}
Status GpuGraph::replay(const GpuStream& stream) const {
  return check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(exec_), static_cast<cudaStream_t>(stream.stream().handle)), "cudaGraphLaunch");
}

int64_t free_device_memory() {
  size_t available = 0, total = 0;
  return cudaMemGetInfo(&available, &total) == cudaSuccess ? static_cast<int64_t>(available) : -1;
}

GpuMemory::GpuMemory(size_t bytes) {
  if (cudaMalloc(&data_, bytes) != cudaSuccess) {
    data_ = nullptr;
    (void)cudaGetLastError();
    return;
  }
  (void)cudaMemset(data_, 0xFF, bytes);
  (void)cudaDeviceSynchronize();
}
GpuMemory::~GpuMemory() { (void)cudaFree(data_); }

Status GpuMemory::upload_rows(size_t offset, size_t pitch, const void* from, size_t row_bytes, size_t rows) {
  if (rows == 0 || row_bytes == 0) return {};
  char* to = static_cast<char*>(data_) + offset;
  // A copy from pageable memory may return before its last bytes have landed, and streams that do not wait for the default one would not see them.
  if (pitch == row_bytes || rows == 1) {
    HYLA_RETURN_IF_ERROR(check(cudaMemcpy(to, from, row_bytes * rows, cudaMemcpyHostToDevice), "cudaMemcpy"));
    return check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  for (size_t r = 0; r < rows; ++r)  // a pitch may be beyond what two-dimensional copies take
    HYLA_RETURN_IF_ERROR(check(cudaMemcpy(to + r * pitch, static_cast<const char*>(from) + r * row_bytes, row_bytes, cudaMemcpyHostToDevice), "cudaMemcpy"));
  return check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}
Status GpuMemory::download_rows(void* to, size_t offset, size_t pitch, size_t row_bytes, size_t rows) const {
  const char* from = static_cast<const char*>(data_) + offset;
  for (size_t r = 0; r < rows; ++r)
    HYLA_RETURN_IF_ERROR(check(cudaMemcpy(static_cast<char*>(to) + r * row_bytes, from + r * pitch, row_bytes, cudaMemcpyDeviceToHost), "cudaMemcpy"));
  return {};
}

}  // namespace hyla::testing
