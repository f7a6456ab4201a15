#pragma once
#include "cuda/host/launch.h"
#include "kernel.cuh"
#include "kernels.h"

namespace hyla::extend::sm90_latent {

template <class T>
Status launch_attend(const KernelParams& p, int blocks, Stream stream) {
  cuda::LaunchConfig config;
  config.grid = dim3(unsigned(blocks));
  config.block = dim3(kThreads);
  config.smem_bytes = T::kConfig.smem_bytes();
  return cuda::launch(attend<T>, "extend sm90_latent attend", config, stream, p);
}
template <Shape kShape>
Status launch_attend(const KernelParams& p, bool fp16, int blocks, Stream stream) {
  return fp16 ? launch_attend<Traits<kShape, dev::Fp16>>(p, blocks, stream) : launch_attend<Traits<kShape, dev::Bf16>>(p, blocks, stream);
}

}  // namespace hyla::extend::sm90_latent
