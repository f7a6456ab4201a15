#pragma once
#include "ops/extend/variants.h"

namespace hyla::extend::sm90_latent {

// 512 columns of V on Hopper: head dim 512 and absorbed latent attention (576/512, 512/512).
Variant variant();

}  // namespace hyla::extend::sm90_latent
