// Lists of shapes under a name: the grid of the sweep, layers of real models, the demo's small ones.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "benchlib/shapes.h"

namespace hyla::bench {

template <class Shape>
struct Named {
  std::string group;  // what a row of a table is called: "B=1 H=4", "Kimi-Linear TP8"
  Shape shape;
};

std::vector<std::string> kda_presets();
std::vector<std::string> extend_presets();
// No value: no preset of this name.
std::optional<std::vector<Named<KdaShape>>> kda_preset(const std::string& name);
std::optional<std::vector<Named<ExtendShape>>> extend_preset(const std::string& name);

std::vector<Named<KdaShape>> kda_demo(bool cpu);
std::vector<Named<ExtendShape>> extend_demo(bool cpu);

}  // namespace hyla::bench
