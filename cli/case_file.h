// Cases in safetensors files: tensors named <case>/<tensor>, scalar arguments as JSON in the metadata under the case's name.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "benchlib/host_case.h"
#include "hyla/safetensors.h"

namespace hyla::cli {

struct FileCase {
  std::string name;
  std::variant<bench::KdaCase, bench::ExtendCase> op;
  std::vector<std::string> notes;            // how the tensors were taken, where that is a choice
  std::map<std::string, TensorView> stored;  // results in the file: "output", "state", "checkpoints", "lse"
  std::map<std::string, TensorView> other;   // results of other implementations: "fla_output"
};

// All cases, or those named. A case without tensors or arguments, an unknown case, a missing tensor and an argument of the wrong kind are errors that
// name it.
Result<std::vector<FileCase>> load_cases(const SafetensorsFile& file, const std::string& path, const std::vector<std::string>& names);

}  // namespace hyla::cli
