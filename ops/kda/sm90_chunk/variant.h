// The chunked kernels for Hopper: prepare, then a scan with the state in registers; long sequences cut into exact segments.
#pragma once
#include "ops/kda/variants.h"

namespace hyla::kda::sm90_chunk {

const Variant& variant();

}  // namespace hyla::kda::sm90_chunk
