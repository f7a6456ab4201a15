// Plans, runs and times arguments of either operation on a backend.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "benchlib/placed.h"
#include "benchlib/timer.h"

namespace hyla::cli {

struct BackendChoice {
  std::string backend = "auto";  // auto, cpu, cuda
  std::string variant;
  int splits = 0;
};

// The backend of the name; "auto" is cuda where there is a device.
Result<std::unique_ptr<testing::Backend>> open_backend(const std::string& name);

struct Execution {
  std::string backend, variant, plan;
};

template <class Args>
class Prepared {
 public:
  // Checks contents, places the arguments, plans, allocates the workspace.
  static Result<Prepared> make(const bench::HostCase<Args>& host, testing::Backend& backend, const BackendChoice& choice) {
    HYLA_RETURN_IF_ERROR(check_contents(host.args));
    auto placed = bench::Placed<Args>::make(host.args, backend);
    if (!placed.ok()) return placed.status();
    Prepared p(backend, std::move(placed).value());
    auto made = plan(p.placed_.args(), backend.caps(), PlanOptions{.variant = choice.variant, .splits = choice.splits});
    if (!made.ok()) return made.status();
    p.plan_ = std::make_shared<std::decay_t<decltype(made.value())>>(made.value());
    p.workspace_ = std::make_shared<bench::DeviceMemory>(backend, made->workspace_bytes);
    if (p.workspace_->data() == nullptr) return Status(Code::kDevice, "workspace", std::to_string(made->workspace_bytes) + " bytes", "no memory left");
    return p;
  }
  Status enqueue(Stream stream) const { return run(*plan_, placed_.args(), {workspace_->data(), workspace_->bytes()}, stream); }
  // Runs once and brings the outputs back to the host case.
  Status compute() {
    HYLA_RETURN_IF_ERROR(enqueue(backend_->stream()));
    HYLA_RETURN_IF_ERROR(backend_->synchronize());
    return placed_.fetch(*backend_);
  }
  Execution execution() const { return {backend_->name(), plan_->variant, plan_->str()}; }
  const auto& the_plan() const { return *plan_; }
  int64_t bytes() const { return placed_.bytes(); }

 private:
  Prepared(testing::Backend& backend, bench::Placed<Args> placed) : backend_(&backend), placed_(std::move(placed)) {}
  testing::Backend* backend_;
  bench::Placed<Args> placed_;
  std::shared_ptr<std::conditional_t<std::is_same_v<Args, kda::Args>, kda::Plan, extend::Plan>> plan_;
  std::shared_ptr<bench::DeviceMemory> workspace_;
};

// Copies to rotate through, so that a call does not find its inputs in L2 from the call before: enough to fill it three times.
inline int rotation_for(const DeviceCaps& caps, int64_t bytes) {
  if (caps.kind == DeviceKind::kCpu || bytes <= 0) return 1;
  return static_cast<int>(std::clamp<int64_t>(3 * caps.l2_bytes / bytes + 1, 1, 32));
}

template <class Args>
Result<bench::Timing> time_case(const bench::HostCase<Args>& host, testing::Backend& backend, const BackendChoice& choice, Prepared<Args>& first,
                                const bench::TimerOptions& base = {}) {
  std::vector<Prepared<Args>> copies{first};
  bench::TimerOptions options = base;
  options.rotation = rotation_for(backend.caps(), first.bytes());
  while (static_cast<int>(copies.size()) < options.rotation) {
    auto copy = Prepared<Args>::make(host, backend, choice);
    if (!copy.ok()) return copy.status();
    copies.push_back(copy.value());
  }
  return bench::time_calls(
      backend.device(), [&](Stream stream, int i) { return copies[static_cast<size_t>(i) % copies.size()].enqueue(stream); }, options);
}

}  // namespace hyla::cli
