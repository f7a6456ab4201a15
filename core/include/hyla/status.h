// Errors as values. Nothing in hyla throws, prints or exits; a Status names the argument, what was expected and what came.
#pragma once
#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace hyla {

enum class Code {
  kOk,
  kInvalidArgument,  // the request is wrong whatever the machine: shape, dtype, stride, null pointer, bad index
  kUnsupported,      // the request is sound, but nothing here computes it; `expected` says what would be taken
  kWorkspace,        // workspace missing, too small, misaligned or on the wrong device
  kPlanMismatch,     // the plan was made for another problem; `argument` names the first field that differs
  kDevice,           // the CUDA runtime or driver reported an error
  kIo,               // a file is missing, truncated or malformed
};

const char* to_string(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string argument, std::string expected, std::string got)
      : code_(code), argument_(std::move(argument)), expected_(std::move(expected)), got_(std::move(got)) {}

  static Status invalid(std::string argument, std::string expected, std::string got) {
    return {Code::kInvalidArgument, std::move(argument), std::move(expected), std::move(got)};
  }
  static Status unsupported(std::string argument, std::string expected, std::string got) {
    return {Code::kUnsupported, std::move(argument), std::move(expected), std::move(got)};
  }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& argument() const { return argument_; }
  const std::string& expected() const { return expected_; }
  const std::string& got() const { return got_; }
  // One line: "invalid argument: k.shape[2]: expected 4 (= q.shape[2]), got 3"; "ok" when ok.
  std::string message() const;

 private:
  Code code_ = Code::kOk;
  std::string argument_, expected_, got_;
};

// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// Returns from the enclosing function when `expr` is not ok.
#define HYLA_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                 \
    if (::hyla::Status hyla_status_ = (expr); !hyla_status_.ok()) return hyla_status_; \
  } while (0)

}  // namespace hyla
