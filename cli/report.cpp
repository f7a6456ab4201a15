#include "cli/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace hyla::cli {
namespace {

size_t width(const std::string& text) {  // code points
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

int fail(const Status& status) {
  std::fputs(("hyla: " + status.message() + "\n").c_str(), stderr);
  switch (status.code()) {
    case Code::kOk:
      return kOk;
    case Code::kIo:
      return kFile;
    case Code::kInvalidArgument:
      return kUsage;
    case Code::kUnsupported:
      return kUnsupported;
    default:
      return kDeviceError;
  }
}

std::string Table::str(size_t left) const {
  std::vector<size_t> widths(rows_[0].size());
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  size_t total = 0;
  for (const size_t w : widths) total += w + 2;
  std::string text;
  for (const auto& row : rows_) {
    std::string line = row.empty() ? std::string(total - 2, '-') : "";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - width(row[i]), ' ');
      line += (i ? "  " : "") + (i < left ? row[i] + pad : pad + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string milliseconds(double ms) {
  const auto three = [](double value, const char* unit) { return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, unit); };
  if (ms < 0.9995) return three(ms * 1e3, "us");
  if (ms < 999.5) return three(ms, "ms");
  return three(ms / 1e3, "s");
}

Progress::Progress(std::string what, size_t total)
    : what_(std::move(what)), total_(total), terminal_(isatty(STDERR_FILENO)), start_(std::chrono::steady_clock::now()) {}
Progress::~Progress() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}
void Progress::step(const std::string& now) {
  ++done_;
  if (!terminal_ || std::chrono::steady_clock::now() - start_ < std::chrono::seconds(2)) return;
  shown_ = true;
  constexpr size_t kWidth = 24;
  const size_t filled = total_ ? std::min(kWidth, kWidth * (done_ - 1) / total_) : 0;
  std::fputs(fmt::format("\r\x1b[K{} [{}{}] {}/{} {}", what_, std::string(filled, '#'), std::string(kWidth - filled, '.'), done_, total_, now).c_str(), stderr);
}

}  // namespace hyla::cli
