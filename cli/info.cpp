#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/paths.h"
#include "cli/report.h"

namespace hyla::cli {
namespace {

int info(bool as_json) {
  using nlohmann::json;
  json devices = json::array();
  const auto cpu = query_device({});
  if (cpu.ok()) devices.push_back({{"device", "cpu"}, {"name", cpu->name}, {"threads", cpu_threads()}});
  for (int i = 0; i < cuda_device_count(); ++i) {
    const Device device{DeviceKind::kCuda, i};
    const auto caps = query_device(device);
    if (!caps.ok()) {
      devices.push_back({{"device", to_string(device)}, {"error", caps.status().message()}});
      continue;
    }
    devices.push_back({{"device", to_string(device)},
                       {"name", caps->name},
                       {"compute_capability", caps->compute_capability},
                       {"sm_count", caps->sm_count},
                       {"smem_per_block", caps->smem_per_block},
                       {"l2_bytes", caps->l2_bytes},
                       {"copy_tbs", caps->copy_tbs}});
  }
  const json all = {{"version", HYLA_VERSION},         {"built_with_cuda", built_with_cuda()},  {"devices", devices},
                    {"kda_variants", kda::variants()}, {"extend_variants", extend::variants()}, {"data", find_data("kda_layer_text.safetensors")}};
  if (as_json) {
    fmt::print("{}\n", all.dump(1));
    return kOk;
  }
  fmt::print("hyla {}\n", HYLA_VERSION);
  fmt::print("CUDA kernels: {}\n", !built_with_cuda()         ? "not in this build (no nvcc >= 12.8 when it was configured): CPU backend only"
                                   : cuda_device_count() == 0 ? "built, but no usable GPU here: CPU backend only"
                                                              : "built");
  for (const json& device : devices) {
    if (device.contains("error")) fmt::print("{}: {}\n", device["device"].get<std::string>(), device["error"].get<std::string>());
    else if (device.contains("threads")) fmt::print("cpu: {} threads (HYLA_NUM_THREADS sets the number)\n", device["threads"].get<int>());
    else
      fmt::print("{}: {}, sm_{}, {} SMs\n", device["device"].get<std::string>(), device["name"].get<std::string>(), device["compute_capability"].get<int>(),
                 device["sm_count"].get<int>());
  }
  fmt::print("KDA variants: {}\nextend variants: {}\n", fmt::join(kda::variants(), ", "), fmt::join(extend::variants(), ", "));
  std::vector<std::string> names;
  for (const DeviceCaps& caps : known_devices()) names.push_back(caps.name);
  fmt::print("plans can be made for: {}\n", fmt::join(names, ", "));
  return kOk;
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("info", "Version, backends, devices and variants of this build");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "print JSON");
  command->callback([&action, as_json] { action = [as_json] { return info(*as_json); }; });
}

}  // namespace hyla::cli
