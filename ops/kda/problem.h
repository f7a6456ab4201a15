// From arguments to a checked Problem. Every message about a wrong argument is made here.
#pragma once
#include <optional>

#include "core/arguments.h"
#include "hyla/kda.h"

namespace hyla::kda {

constexpr int64_t kChunk = 64;  // tokens between checkpoints

// What must hold of a Problem that came without tensors.
Status check_problem(const Problem& problem);

// The first field in which two problems differ.
std::optional<FieldDifference> first_difference(const Problem& planned, const Problem& got);

}  // namespace hyla::kda
