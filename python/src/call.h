// What the bindings of all operations share: a call object that holds checked arguments, finds its plan in a small cache and runs it.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <list>
#include <memory>
#include <mutex>

#include "view.h"

namespace hyla::py {

// Plans by problem and options, least recently used last. Planning takes tens of microseconds, a look-up about one.
template <class Problem, class Plan>
class PlanCache {
 public:
  template <class Make>
  std::shared_ptr<const Plan> find(const Problem& problem, const std::string& variant, int splits, Make make) {
    std::lock_guard lock(mutex_);
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->splits != splits || it->variant != variant || !(it->plan->problem == problem)) continue;
      entries_.splice(entries_.begin(), entries_, it);
      return entries_.front().plan;
    }
    entries_.push_front({std::make_shared<const Plan>(unwrap(make())), variant, splits});
    if (entries_.size() > kCapacity) entries_.pop_back();
    return entries_.front().plan;
  }

 private:
  static constexpr size_t kCapacity = 128;
  struct Entry {
    std::shared_ptr<const Plan> plan;
    std::string variant;
    int splits;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;
};

template <class Args, class Plan>
struct Call {
  Args args;
  std::shared_ptr<const Plan> plan;
};

// Binds the members that every operation's plan and call have.
template <class CallT, class Plan, class RunFn>
void bind_call(nb::module_& m, const char* call_name, const char* plan_name, RunFn run) {
  nb::class_<Plan>(m, plan_name, "What the planner chose, and why. str() gives it in one line.")
      .def_ro("variant", &Plan::variant)
      .def_ro("workspace_bytes", &Plan::workspace_bytes)
      .def_ro("modelled_us", &Plan::modelled_us)
      .def_ro("why", &Plan::why)
      .def_ro("candidates", &Plan::candidates)
      .def("__str__", &Plan::str)
      .def("__repr__", [plan_name = std::string(plan_name)](const Plan& p) { return "<hyla." + plan_name + " " + p.str() + ">"; });
  nb::class_<CallT>(m, call_name)
      .def_prop_ro("plan", [](const CallT& c) { return *c.plan; })
      .def_prop_ro("workspace_bytes", [](const CallT& c) { return c.plan->workspace_bytes; })
      .def("run", [run](const CallT& c, uintptr_t workspace, size_t bytes, uintptr_t stream) {
        Status status;
        {
          nb::gil_scoped_release release;
          status = run(*c.plan, c.args, Workspace{reinterpret_cast<void*>(workspace), bytes}, Stream{reinterpret_cast<void*>(stream)});
        }
        raise_if_error(status);
      });
}

}  // namespace hyla::py
