#include "testing/backend.h"

#include <cstdlib>
#include <cstring>

namespace hyla::testing {
namespace {

class CpuBackend final : public Backend {
 public:
  std::string name() const override { return "cpu"; }
  Device device() const override { return {}; }
  DeviceCaps caps() const override { return find_device("cpu").value(); }
  Stream stream() const override { return {}; }
  void* allocate(size_t bytes) override { return std::aligned_alloc(256, (bytes + 255) / 256 * 256 + 256); }
  void release(void* data) override { std::free(data); }
  Status upload(void* to, const void* from, size_t bytes) override { return copy(to, from, bytes); }
  Status download(void* to, const void* from, size_t bytes) override { return copy(to, from, bytes); }
  Status synchronize() override { return {}; }

 private:
  static Status copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }
};

}  // namespace

std::unique_ptr<Backend> cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace hyla::testing
