#include "ops/extend/variants.h"

#include "core/choose.h"
#include "ops/extend/cpu/variant.h"
#include "ops/extend/sm80_mma/variant.h"
#include "ops/extend/sm90_fa/variant.h"
#include "ops/extend/sm90_latent/variant.h"

namespace hyla::extend {

// In order of preference: on equal modelled time the earlier one is chosen.
std::span<const Variant> all_variants() {
  static const Variant list[] = {
      sm90_fa::variant(),
      sm90_latent::variant(),
      sm80_mma::variant(),
      cpu::variant(),
  };
  return list;
}

std::vector<std::string> variants() { return names_of(all_variants()); }

}  // namespace hyla::extend
