#include "prepare.cuh"

#include <algorithm>

#include "cuda/host/launch.h"

namespace hyla::kda::sm90_chunk {

Status launch_prepare(const KernelParams& p, int sm_count, Stream stream) {
  const int64_t items = int64_t(p.slots) * p.heads;
  if (items == 0) return {};
  cuda::LaunchConfig config;
  config.grid = dim3(unsigned(std::min<int64_t>(items, int64_t(sm_count) * PrepareConfig::kBlocksPerSm)));
  config.block = dim3(PrepareConfig::kThreads);
  config.smem_bytes = PrepareSmem::kBytes;
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

}  // namespace hyla::kda::sm90_chunk
