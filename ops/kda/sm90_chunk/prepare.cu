#include "prepare.cuh"

#include <algorithm>

#include "cuda/host/launch.h"

namespace hyla::kda::sm90_chunk {
namespace {

// Clears the flags before a run whose scan works beside `prepare`.
__global__ void clear_kernel(uint32_t* flags, int64_t count) {
  launch_dependents();
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < count; i += int64_t(gridDim.x) * blockDim.x) flags[i] = 0;
}

}  // namespace

Status launch_prepare(const KernelParams& p, int sm_count, Stream stream) {
  const int64_t items = int64_t(p.slots) * p.heads;
  if (items == 0) return {};
  cuda::LaunchConfig config;
  if (p.ready != nullptr) {
    config.grid = dim3(unsigned(std::min<int64_t>((items + 1023) / 1024, 64)));
    config.block = dim3(1024);
    HYLA_RETURN_IF_ERROR(cuda::launch(clear_kernel, "kda clear", config, stream, p.ready, items));
    config.pdl = true;
  }
  config.grid = dim3(unsigned(std::min<int64_t>(items, p.prepare_blocks > 0 ? p.prepare_blocks : sm_count)));
  config.block = dim3(PrepareConfig::kThreads);
  config.smem_bytes = PrepareSmem::kBytes * PrepareConfig::kGroups;
  auto go = [&](auto kernel) { return cuda::launch(kernel, "kda prepare", config, stream, p); };
  switch (static_cast<Gate>(p.gate)) {
    case Gate::kBounded:
      return p.g_fp32 ? go(prepare_kernel<Gate::kBounded, true>) : go(prepare_kernel<Gate::kBounded, false>);
    case Gate::kUnbounded:
      return p.g_fp32 ? go(prepare_kernel<Gate::kUnbounded, true>) : go(prepare_kernel<Gate::kUnbounded, false>);
    default:
      return p.g_fp32 ? go(prepare_kernel<Gate::kGiven, true>) : go(prepare_kernel<Gate::kGiven, false>);
  }
}

#ifdef HYLA_KDA_PROFILE
void read_profile_prepare(unsigned long long* h) { cudaMemcpyFromSymbol(h, g_profile_prepare, sizeof g_profile_prepare); }
#endif

}  // namespace hyla::kda::sm90_chunk
