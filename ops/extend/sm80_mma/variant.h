// The portable GPU variant: the whole contract on mma.sync and cp.async.
#pragma once
#include "ops/extend/variants.h"

namespace hyla::extend::sm80_mma {

Variant variant();

}  // namespace hyla::extend::sm80_mma
