// Host entry point of the device code.
#pragma once
#include "config.h"
#include "hyla/status.h"
#include "hyla/tensor.h"
#include "params.h"

namespace hyla::kda::sm80_recurrent {

// `packed`: q, k, v are bf16, the gate and beta bf16 or fp32, and their rows 16-byte aligned; anything else is read element by element.
// The caller has made the tensors' device current.
Status launch_recurrent(Kind kind, int dim, bool packed, const Params& params, int64_t blocks, Stream stream);

}  // namespace hyla::kda::sm80_recurrent
