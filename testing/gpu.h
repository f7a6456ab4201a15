// What only a GPU's tests need: streams, graphs, free memory, memory too large to mirror on the host.
#pragma once
#include <functional>
#include <memory>

#include "hyla/device.h"
#include "hyla/status.h"
#include "hyla/tensor.h"

namespace hyla::testing {

class GpuStream {
 public:
  GpuStream();
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  Stream stream() const { return {handle_}; }
  Status synchronize() const;

 private:
  void* handle_ = nullptr;
};

// Work captured once and replayed.
class GpuGraph {
 public:
  static Result<std::shared_ptr<GpuGraph>> capture(const GpuStream& stream, const std::function<Status(Stream)>& enqueue);
  ~GpuGraph();
  Status replay(const GpuStream& stream) const;
  size_t nodes() const { return nodes_; }  // kernels, copies and fills

 private:
  void* exec_ = nullptr;
  size_t nodes_ = 0;
};

// Bytes of device memory that are free now; -1 on error.
int64_t free_device_memory();

// Plain device memory, filled with 0xFF bytes (NaN, -1).
class GpuMemory {
 public:
  explicit GpuMemory(size_t bytes);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  bool ok() const { return data_ != nullptr; }
  void* data() const { return data_; }
  // Rows of `row_bytes`, `pitch` bytes apart here, packed on the host.
  Status upload_rows(size_t offset, size_t pitch, const void* from, size_t row_bytes, size_t rows);
  Status download_rows(void* to, size_t offset, size_t pitch, size_t row_bytes, size_t rows) const;

 private:
  void* data_ = nullptr;
};

}  // namespace hyla::testing
