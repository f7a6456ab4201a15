// Inputs of a shape, as model layers feed them.
#pragma once
#include "benchlib/host_case.h"
#include "benchlib/shapes.h"

namespace hyla::bench {

// Normal q, k, v and gates, beta as logits, L2 norm inside, an initial state, outputs poisoned with NaN.
KdaCase make_inputs(const KdaShape& shape);
// Normal q, k, v; prefix slots in random order within a pool (runs of a page with page_size > 1); outputs poisoned with NaN.
ExtendCase make_inputs(const ExtendShape& shape);

// The same arguments without memory: enough to plan. The tensors must not be read.
kda::Args bare_args(const KdaShape& shape, Device device);
extend::Args bare_args(const ExtendShape& shape, Device device);

}  // namespace hyla::bench
