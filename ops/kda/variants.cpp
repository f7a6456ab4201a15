#include "ops/kda/variants.h"

#include "core/choose.h"
#include "ops/kda/cpu/variant.h"
#include "ops/kda/sm80_recurrent/variant.h"
#include "ops/kda/sm90_chunk/variant.h"

namespace hyla::kda {

// In order of preference: on equal modelled time the earlier one is chosen.
std::span<const Variant> all_variants() {
  static const Variant list[] = {
      sm90_chunk::variant(),
      sm80_recurrent::variant(),
      cpu::variant(),
  };
  return list;
}

std::vector<std::string> variants() { return names_of(all_variants()); }

}  // namespace hyla::kda
