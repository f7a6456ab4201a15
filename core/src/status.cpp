#include "hyla/status.h"

namespace hyla {

const char* to_string(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kWorkspace:
      return "workspace";
    case Code::kPlanMismatch:
      return "plan mismatch";
    case Code::kDevice:
      return "device error";
    case Code::kIo:
      return "input/output error";
  }
  return "unknown code";
}

std::string Status::message() const {
  if (ok()) return "ok";
  std::string text = to_string(code_);
  if (!argument_.empty()) text += ": " + argument_;
  if (!expected_.empty()) text += ": expected " + expected_;
  if (!got_.empty()) text += (expected_.empty() ? ": " : ", got ") + got_;
  return text;
}

}  // namespace hyla
