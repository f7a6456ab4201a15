// Host entry points of the device code; one translation unit a shape.
#pragma once
#include "config.h"
#include "hyla/status.h"
#include "hyla/tensor.h"
#include "params.h"
#include "worklist.h"

namespace hyla::extend::sm90_latent {

struct GridSizes {
  int batch, heads, sm_count;
  int forced_parts = 0;  // 0: as many as the lengths ask for
};

Status launch_list(const KernelParams& p, const GridSizes& g, const WorkList& list, Stream stream);
Status launch_attend_d512(const KernelParams& p, bool fp16, int blocks, Stream stream);
Status launch_attend_d576(const KernelParams& p, bool fp16, int blocks, Stream stream);
Status launch_attend_mla576(const KernelParams& p, bool fp16, int blocks, Stream stream);
Status launch_attend_mla512(const KernelParams& p, bool fp16, int blocks, Stream stream);
Status launch_merge(const KernelParams& p, bool fp16, const GridSizes& g, const WorkList& list, Stream stream);

}  // namespace hyla::extend::sm90_latent
