// mbarriers and named barriers as small value types over shared-memory addresses.
// PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
#pragma once
#include <cstdint>

namespace hyla::dev {

__device__ __forceinline__ uint32_t smem_addr(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// One transaction barrier in shared memory. Phases alternate 0, 1, 0, ...; a fresh barrier completes phase 0 first, so a
// consumer waits for parity 0 and a producer that finds all slots free waits for parity 1.
struct Barrier {
  uint64_t word;

  __device__ __forceinline__ void init(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_addr(this)), "r"(arrivals) : "memory");
  }
  __device__ __forceinline__ void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_addr(this)) : "memory"); }
  __device__ __forceinline__ void arrive_expect_tx(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr(this)), "r"(bytes) : "memory");
  }
  __device__ __forceinline__ void expect_tx(uint32_t bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(smem_addr(this)), "r"(bytes) : "memory");
  }
  // Arrives once all cp.async of this thread so far have landed; the arrival was counted at init ("noinc").
  __device__ __forceinline__ void arrive_on_cp_async() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_addr(this)) : "memory");
  }
  __device__ __forceinline__ bool try_wait(uint32_t parity) {
    uint32_t done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(done)
                 : "r"(smem_addr(this)), "r"(parity)
                 : "memory");
    return done != 0;
  }
  __device__ __forceinline__ void wait(uint32_t parity) {
#ifdef HYLA_BOUNDED_WAITS
    // Debug builds trap instead of hanging the device when a protocol is broken.
    for (uint32_t n = 0; n < (1u << 26); ++n)
      if (try_wait(parity)) return;
    __trap();
#else
    while (!try_wait(parity)) {}
#endif
  }
};

// Makes barrier initialisation visible to the async proxy; follow with __syncthreads().
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Position in a ring of stages: index and the parity of its current lap. Carried across work items, never reset.
template <int kStages>
struct RingState {
  uint32_t index = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++index == kStages) {
      index = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ __forceinline__ void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

}  // namespace hyla::dev
