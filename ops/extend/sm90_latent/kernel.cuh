#pragma once
#include "consume.cuh"
#include "load.cuh"

namespace hyla::extend::sm90_latent {

template <class T>
__global__ void __launch_bounds__(kThreads, 1) attend(const __grid_constant__ KernelParams p) {
  extern __shared__ __align__(1024) uint8_t raw[];
  SharedStorage<T>& s = *reinterpret_cast<SharedStorage<T>*>(raw);
  static_assert(sizeof(SharedStorage<T>) <= T::kConfig.smem_bytes());
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0), lane = threadIdx.x & 31;
  if (threadIdx.x == 0) init_barriers(s);
  __syncthreads();
  if (warp >= 8) {
    dev::setmaxnreg_dec<kProducerRegisters>();
    Producer<T>(p, s, warp - 8, lane).run();
  } else if (warp < 4) {
    dev::setmaxnreg_inc<kConsumerRegisters>();
    Consumer<T>(p, s, warp, lane).template run<0>();
  } else {
    dev::setmaxnreg_inc<kConsumerRegisters>();
    Consumer<T>(p, s, warp - 4, lane).template run<1>();
  }
}

}  // namespace hyla::extend::sm90_latent
