#include "core/choose.h"

namespace hyla {

std::string reason_of(const Status& status) {
  std::string text = status.argument();
  if (!status.expected().empty()) text += fmt::format(": expected {}", status.expected());
  if (!status.got().empty()) text += fmt::format(", got {}", status.got());
  return text;
}

}  // namespace hyla
