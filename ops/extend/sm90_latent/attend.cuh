#pragma once
#include <cuda_runtime.h>

#include "kernel.cuh"
#include "kernels.h"

namespace hyla::extend::sm90_latent {

template <class T>
int launch_attend(const KernelParams& p, int blocks, void* stream) {
  constexpr int kBytes = int(T::kConfig.smem_bytes());
  // Set on every launch: the attribute belongs to the current device, and the call costs well under a microsecond.
  if (cudaError_t e = cudaFuncSetAttribute(attend<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes); e != cudaSuccess) return e;
  attend<T><<<blocks, kThreads, kBytes, static_cast<cudaStream_t>(stream)>>>(p);
  return cudaGetLastError();
}
template <Shape kShape>
int launch_attend(const KernelParams& p, bool fp16, int blocks, void* stream) {
  return fp16 ? launch_attend<Traits<kShape, dev::Fp16>>(p, blocks, stream) : launch_attend<Traits<kShape, dev::Bf16>>(p, blocks, stream);
}

}  // namespace hyla::extend::sm90_latent
