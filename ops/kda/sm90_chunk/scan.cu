#include "scan.cuh"

#include "cuda/host/launch.h"

namespace hyla::kda::sm90_chunk {
namespace {

template <Pass kPass, int kWG>
Status launch(const KernelParams& p, const char* name, Stream stream) {
  constexpr int kParts = (kPass == Pass::kOutput ? 2 : 4) / kWG;
  const int64_t segments = kPass == Pass::kOutput ? p.segments : p.segments - 1;
  const int64_t blocks = int64_t(p.sequences) * p.heads * segments * kParts;
  if (blocks == 0) return {};
  cuda::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(blocks));
  config.block = dim3(128 * (kWG + 1));
  config.smem_bytes = sizeof(ScanSmem<kPass, kWG>);
  config.pdl = true;
  return cuda::launch(scan_kernel<kPass, kWG>, name, config, stream, p);
}

}  // namespace

Status launch_summary(const KernelParams& p, Stream stream) { return launch<Pass::kSummary, 2>(p, "kda segment summary", stream); }

Status launch_scan(const KernelParams& p, int v_split, Stream stream) {
  return v_split == 2 ? launch<Pass::kOutput, 1>(p, "kda scan", stream) : launch<Pass::kOutput, 2>(p, "kda scan", stream);
}

#ifdef HYLA_KDA_PROFILE
void read_profile(unsigned long long* h) { cudaMemcpyFromSymbol(h, g_profile, sizeof g_profile); }
#endif

}  // namespace hyla::kda::sm90_chunk
