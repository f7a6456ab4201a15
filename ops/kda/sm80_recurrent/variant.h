// The portable GPU kernel: token by token, state in registers, one launch. Takes the whole contract.
#pragma once
#include "ops/kda/variants.h"

namespace hyla::kda::sm80_recurrent {

const Variant& variant();

}  // namespace hyla::kda::sm80_recurrent
