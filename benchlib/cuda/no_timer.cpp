#include "benchlib/cuda/timer.h"

namespace hyla::bench {

Result<CudaTiming> time_cuda(Device device, const Enqueue&, const CudaTimerOptions&) {
  return Status::unsupported("device", "a build of hyla with CUDA", to_string(device));
}

}  // namespace hyla::bench
