// The backends of this machine, made once.
#pragma once
#include <string>
#include <vector>

#include "testing/backend.h"

namespace hyla::extend {

inline const std::vector<testing::Backend*>& present_backends() {
  static const std::vector<testing::Backend*> list = [] {
    static const auto cpu = testing::cpu_backend(), cuda = testing::cuda_backend();
    std::vector<testing::Backend*> found{cpu.get()};
    if (cuda) found.push_back(cuda.get());
    return found;
  }();
  return list;
}
inline testing::Backend* backend_named(const std::string& name) {
  for (testing::Backend* b : present_backends())
    if (b->name() == name) return b;
  return nullptr;
}

}  // namespace hyla::extend
