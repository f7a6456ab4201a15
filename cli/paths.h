// Where the program's data lies: HYLA_DATA, the install prefix, or the source tree it was built from.
#pragma once
#include <string>

namespace hyla::cli {

// Full path of a data file ("kda_layer_text.safetensors", "recorded_h200.json"); empty when it is nowhere.
std::string find_data(const std::string& name);

}  // namespace hyla::cli
