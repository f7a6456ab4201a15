// The wgmma variant for head dimensions 64 to 256.
#pragma once
#include "ops/extend/variants.h"

namespace hyla::extend::sm90_fa {

Variant variant();

}  // namespace hyla::extend::sm90_fa
