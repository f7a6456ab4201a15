// Problem x chip -> Plan. Pure host functions: plans for any chip are made on any machine.
#pragma once
#include "hyla/kda.h"

namespace hyla::kda {

// The text of a Status without its code: "field: expected ..., got ...".
std::string reason_of(const Status& status);

}  // namespace hyla::kda
