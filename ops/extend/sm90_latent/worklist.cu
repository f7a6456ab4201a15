#include <cuda_runtime.h>

#include <algorithm>

#include "kernels.h"
#include "worklist.cuh"

namespace hyla::extend::sm90_latent {

int launch_list(const KernelParams& p, const GridSizes& g, const WorkList& list, void* stream) {
  make_work_list<<<1, kListThreads, 0, static_cast<cudaStream_t>(stream)>>>(p, g.batch, g.heads, g.sm_count, list);
  return cudaGetLastError();
}

int launch_merge(const KernelParams& p, bool fp16, const GridSizes& g, const WorkList& list, void* stream) {
  const int blocks = 2 * g.sm_count;
  if (fp16)
    merge_parts<dev::Fp16><<<blocks, kMergeThreads, 0, static_cast<cudaStream_t>(stream)>>>(p, list.merges, list.counts + 2);
  else
    merge_parts<dev::Bf16><<<blocks, kMergeThreads, 0, static_cast<cudaStream_t>(stream)>>>(p, list.merges, list.counts + 2);
  return cudaGetLastError();
}

}  // namespace hyla::extend::sm90_latent
