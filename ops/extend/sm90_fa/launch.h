// Host entry to the kernels: plain C++.
#pragma once
#include "hyla/status.h"
#include "hyla/tensor.h"
#include "config.h"
#include "params.h"

namespace hyla::extend::sm90_fa {

// Plans, computes and (when parts are possible) combines: two or three kernels. `shape` indexes kShapes.
Status launch(const Params& params, int shape, Pool pool, bool bf16, int combine_blocks, Stream stream);

}  // namespace hyla::extend::sm90_fa
