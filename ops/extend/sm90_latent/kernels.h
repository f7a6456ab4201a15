// Host entry points of the device code; one translation unit a shape. Errors are cudaError_t values as int.
#pragma once
#include "config.h"
#include "params.h"
#include "worklist.h"

namespace hyla::extend::sm90_latent {

struct GridSizes {
  int batch, heads, sm_count;
};

int launch_list(const KernelParams& p, const GridSizes& g, const WorkList& list, void* stream);
int launch_attend_d512(const KernelParams& p, bool fp16, int blocks, void* stream);
int launch_attend_mla576(const KernelParams& p, bool fp16, int blocks, void* stream);
int launch_attend_mla512(const KernelParams& p, bool fp16, int blocks, void* stream);
int launch_merge(const KernelParams& p, bool fp16, const GridSizes& g, const WorkList& list, void* stream);

}  // namespace hyla::extend::sm90_latent
