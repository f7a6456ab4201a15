// The backends of this machine, made once.
#pragma once
#include <string>
#include <vector>

#include "testing/backend.h"

namespace hyla::kda {

inline const std::vector<testing::Backend*>& present_backends() {
  static const std::vector<testing::Backend*> list = [] {
    static const auto cpu = testing::cpu_backend(), cuda = testing::cuda_backend();
    std::vector<testing::Backend*> found{cpu.get()};
    if (cuda) found.push_back(cuda.get());
    return found;
  }();
  return list;
}

}  // namespace hyla::kda
