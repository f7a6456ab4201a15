// Host entry to the kernels: plain C++.
#pragma once
#include "hyla/status.h"
#include "hyla/tensor.h"
#include "params.h"

namespace hyla::extend::sm80_mma {

// `tile` indexes kTiles; `blocks` covers splits x KV heads x requests x row tiles. Merges the parts when params.splits > 1.
Status launch(const Params& params, int tile, bool fp16, int64_t blocks, int64_t smem_bytes, int64_t merge_rows, Stream stream);

}  // namespace hyla::extend::sm80_mma
