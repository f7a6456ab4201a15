#pragma once
#include "ops/extend/cpu/config.h"

namespace hyla::extend::cpu {

// Computes the problem on all worker threads; arguments were checked.
void attend(const Problem& problem, const Args& args, const Buffers& buffers);

}  // namespace hyla::extend::cpu
