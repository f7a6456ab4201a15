// Exit codes, documented in --help.
#pragma once

namespace hyla::cli {

constexpr int kOk = 0;
constexpr int kFailed = 1;       // a result failed its check
constexpr int kUsage = 2;        // wrong command line
constexpr int kFile = 3;         // a file, case or tensor is missing, malformed or cannot be written
constexpr int kUnsupported = 4;  // no backend or variant here computes this
constexpr int kDeviceError = 5;  // the device reported an error

}  // namespace hyla::cli
