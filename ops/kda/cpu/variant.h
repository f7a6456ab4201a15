// The CPU backend: the chunked form in fp32, threads over sequences and heads.
#pragma once
#include "ops/kda/variants.h"

namespace hyla::kda::cpu {

Variant variant();

}  // namespace hyla::kda::cpu
