// The portable backend: online softmax over tiles in fp32, every feature of the contract.
#pragma once
#include "ops/extend/variants.h"

namespace hyla::extend::cpu {

Variant variant();

}  // namespace hyla::extend::cpu
