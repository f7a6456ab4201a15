#pragma once
#include "consume.cuh"
#include "load.cuh"

namespace hyla::extend::sm90_latent {

// Read anew in each role: values shared by the roles' code would hold registers across all of it.
__device__ __forceinline__ int thread_index() {
  int t;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
  return t;
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) attend(const __grid_constant__ KernelParams p) {
  extern __shared__ __align__(1024) uint8_t raw[];
  SharedStorage<T>& s = *reinterpret_cast<SharedStorage<T>*>(raw);
  static_assert(sizeof(SharedStorage<T>) <= T::kConfig.smem_bytes());
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0);
  if (threadIdx.x == 0) init_barriers(s);
  __syncthreads();
  if (warp >= 8) {
    dev::setmaxnreg_dec<kProducerRegisters>();
    Producer<T>(p, s, warp - 8, thread_index() & 31).run();
  } else if (warp < 4) {
    dev::setmaxnreg_inc<kFirstConsumerRegisters>();
    Consumer<T>(p, s, warp, thread_index() & 31).template run<0>();
  } else {
    dev::setmaxnreg_inc<kSecondConsumerRegisters>();
    Consumer<T>(p, s, warp - 4, thread_index() & 31).template run<1>();
  }
}

}  // namespace hyla::extend::sm90_latent
