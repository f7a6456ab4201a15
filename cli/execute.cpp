#include "cli/execute.h"

namespace hyla::cli {

Result<std::unique_ptr<testing::Backend>> open_backend(const std::string& name) {
  if (name != "cpu") {
    if (auto cuda = testing::cuda_backend()) return cuda;
    if (name == "cuda")
      return Status::unsupported("--backend", "cpu or auto on this machine",
                                 built_with_cuda() ? "cuda, but there is no usable GPU" : "cuda, but this build has no CUDA kernels");
  }
  return testing::cpu_backend();
}

}  // namespace hyla::cli
