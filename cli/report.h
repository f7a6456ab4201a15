// How commands speak: errors to standard error with an exit code, progress on a terminal.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "cli/exit_codes.h"
#include "hyla/status.h"

namespace hyla::cli {

// Prints "hyla: <message>" to standard error; the exit code that suits the status.
int fail(const Status& status);

// Aligned columns; a cell may hold UTF-8.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void rule() { rows_.emplace_back(); }
  // The first `left` columns are aligned to the left.
  std::string str(size_t left = 1) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string milliseconds(double ms);  // three digits with a unit: "12.3 us", "4.56 ms", "1.20 s"

// A bar on standard error, once two seconds have passed and only on a terminal.
class Progress {
 public:
  Progress(std::string what, size_t total);
  ~Progress();
  void step(const std::string& now);

 private:
  std::string what_;
  size_t total_, done_ = 0;
  bool terminal_, shown_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace hyla::cli
