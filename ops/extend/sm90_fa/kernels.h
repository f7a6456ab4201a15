// Launchers of the device code, one translation unit each.
#pragma once
#include <cuda_runtime.h>

#include "config.h"
#include "params.h"

namespace hyla::extend::sm90_fa {

cudaError_t launch_plan(const Params& p, int tile_n, cudaStream_t stream);
cudaError_t launch_combine(const Params& p, int lv, bool bf16, int blocks, cudaStream_t stream);

// The main kernel of kShapes[index] for one type of pool.
template <int kShapeIndex, Pool kPool>
cudaError_t launch_extend(const Params& p, bool bf16, cudaStream_t stream);

// Starts while the previous kernel of the stream still runs; the kernel itself waits before it reads that one's results.
template <class Kernel>
cudaError_t launch_dependent(Kernel kernel, int grid, int threads, int64_t smem, cudaStream_t stream, const Params& p) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid), config.blockDim = dim3(threads), config.dynamicSmemBytes = size_t(smem), config.stream = stream;
  config.attrs = &attribute, config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, p);
}

}  // namespace hyla::extend::sm90_fa
