#include "benchlib/peers.h"

#include <algorithm>
#include <fstream>

namespace hyla::bench {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

Result<Peers> Peers::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status(Code::kIo, path, "a readable file", "none");
  Peers peers;
  peers.root_ = nlohmann::json::parse(file, nullptr, false);
  const nlohmann::json& root = peers.root_;
  if (!root.is_object() || !root.contains("device") || !root["device"].is_string() || !root.contains("rows") || !root["rows"].is_array())
    return Status(Code::kIo, path, "a JSON object with a device and rows", "something else");
  for (const nlohmann::json& row : root["rows"])
    if (!row.is_object() || !row.contains("op") || !row.contains("shape") || !row["shape"].is_object() || !row.contains("peers") || !row["peers"].is_object())
      return Status(Code::kIo, path + ": rows", "objects with op, shape and peers", row.dump().substr(0, 80));
  return peers;
}

bool Peers::serve(const DeviceCaps& caps) const {
  // "NVIDIA H200" serves "h200" and "NVIDIA H200 NVL" alike: the record's model must be a word of the device's name.
  if (root_.is_null() || caps.kind != DeviceKind::kCuda) return false;
  const std::string device = lower(root_["device"]);
  const std::string model = device.substr(device.rfind(' ') + 1);
  const std::string name = " " + lower(caps.name) + " ";
  return name.find(" " + model + " ") != std::string::npos;
}

nlohmann::json Peers::find(const std::string& op, const nlohmann::json& shape) const {
  nlohmann::json found = nlohmann::json::object();
  if (root_.is_null()) return found;
  for (const nlohmann::json& row : root_["rows"]) {
    if (row["op"] != op) continue;
    bool same = true;
    for (const auto& [key, value] : row["shape"].items()) same = same && shape.contains(key) && shape[key] == value;
    if (!same) continue;
    for (const auto& [name, times] : row["peers"].items()) {
      found[name] = times;
      found[name]["recorded"] = true;
    }
  }
  return found;
}

std::optional<BestPeer> best_peer(const nlohmann::json& row) {
  std::optional<BestPeer> best;
  if (!row.contains("peers")) return best;
  for (const auto& [name, times] : row["peers"].items()) {
    if (!times.contains("graph_ms") || !times["graph_ms"].is_number()) continue;
    const double ms = times["graph_ms"];
    if (!best || ms < best->graph_ms) best = BestPeer{name, ms};
  }
  return best;
}

}  // namespace hyla::bench
