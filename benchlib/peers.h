// Times of other libraries on the same problems, recorded on one kind of device and used on no other.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "hyla/device.h"
#include "hyla/status.h"

namespace hyla::bench {

class Peers {
 public:
  // An empty set.
  Peers() = default;
  // Reads a file in the format of bench/peers/recorded_h200.json: {"device", "rows": [{"op", "shape", "peers": {name: {"graph_ms", "call_ms"}}}]}.
  static Result<Peers> read(const std::string& path);
  // True when the file's figures were taken on this kind of device.
  bool serve(const DeviceCaps& caps) const;
  // The "peers" of a result row with this op and shape (every field the record has must agree), each marked as recorded; an empty object if none.
  nlohmann::json find(const std::string& op, const nlohmann::json& shape) const;

 private:
  nlohmann::json root_;
};

// Name and graph time of the fastest peer of a result row.
struct BestPeer {
  std::string name;
  double graph_ms = 0;
};
std::optional<BestPeer> best_peer(const nlohmann::json& row);

}  // namespace hyla::bench
