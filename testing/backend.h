// Where a test runs: memory, copies, capabilities and a stream of one device, so that one case table serves every backend.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "hyla/device.h"
#include "hyla/status.h"
#include "hyla/tensor.h"

namespace hyla::testing {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu", "cuda"
  virtual Device device() const = 0;
  virtual DeviceCaps caps() const = 0;
  virtual Stream stream() const = 0;
  virtual void* allocate(size_t bytes) = 0;  // aligned to 256 bytes; null when there is no memory left
  virtual void release(void* data) = 0;
  // Both wait for what the stream holds.
  virtual Status upload(void* to, const void* from, size_t bytes) = 0;
  virtual Status download(void* to, const void* from, size_t bytes) = 0;
  virtual Status synchronize() = 0;  // reports errors of what ran before
};

std::unique_ptr<Backend> cpu_backend();
// Null in a build without CUDA and on a machine without a device.
std::unique_ptr<Backend> cuda_backend();

}  // namespace hyla::testing
