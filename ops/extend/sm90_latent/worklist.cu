#include "worklist.cuh"

#include "cuda/host/launch.h"
#include "kernels.h"
#include "merge.cuh"

namespace hyla::extend::sm90_latent {

Status launch_list(const KernelParams& p, const GridSizes& g, const WorkList& list, Stream stream) {
  cuda::LaunchConfig config;
  config.block = dim3(kListThreads);
  return cuda::launch(make_work_list, "extend sm90_latent work list", config, stream, p, g.batch, g.heads, g.sm_count, g.forced_parts, list);
}

Status launch_merge(const KernelParams& p, bool fp16, const GridSizes& g, const WorkList& list, Stream stream) {
  cuda::LaunchConfig config;
  config.grid = dim3(unsigned(2 * g.sm_count));
  config.block = dim3(kMergeThreads);
  return cuda::launch(fp16 ? merge_parts<dev::Fp16> : merge_parts<dev::Bf16>, "extend sm90_latent merge", config, stream, p, list.merges, list.counts + 2);
}

}  // namespace hyla::extend::sm90_latent
