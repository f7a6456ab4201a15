// Deterministic values for benchmark inputs: rows copied from one table of normal numbers, so that gigabytes are filled at memory speed.
#pragma once
#include <cstdint>

#include "hyla/tensor.h"

namespace hyla::bench {

// Fills `count` elements (bf16, fp16 or fp32) with normal values times `scale`.
void fill_normal(void* data, DType dtype, int64_t count, uint64_t seed, float scale = 1.0f);

uint64_t mixed(uint64_t x);  // a hash of 64 bits

}  // namespace hyla::bench
