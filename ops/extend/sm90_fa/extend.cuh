// Body of the per-shape translation units.
#pragma once
#include "kernel.cuh"
#include "kernels.h"

namespace hyla::extend::sm90_fa {

template <class C>
cudaError_t launch_config(const Params& p, cudaStream_t stream) {
  constexpr int64_t kBytes = smem_bytes(C::kShape, C::kPool);
  // Per device and cheap; not cached, because a cache would need the device's number and a lock.
  if (cudaError_t e = cudaFuncSetAttribute(extend_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kBytes)); e != cudaSuccess) return e;
  return launch_dependent(extend_kernel<C>, p.grid, kThreads, kBytes, stream, p);
}

template <int kShapeIndex, Pool kPool>
cudaError_t launch_extend(const Params& p, bool bf16, cudaStream_t stream) {
  return bf16 ? launch_config<Config<kShapeIndex, Bf16, kPool>>(p, stream) : launch_config<Config<kShapeIndex, Fp16, kPool>>(p, stream);
}

}  // namespace hyla::extend::sm90_fa
