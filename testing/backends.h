// The backends of this machine, made once.
#pragma once
#include <string>
#include <vector>

#include "testing/backend.h"

namespace hyla::testing {

inline const std::vector<Backend*>& present_backends() {
  static const std::vector<Backend*> list = [] {
    static const auto cpu = cpu_backend(), cuda = cuda_backend();
    std::vector<Backend*> found{cpu.get()};
    if (cuda) found.push_back(cuda.get());
    return found;
  }();
  return list;
}
inline Backend* backend_named(const std::string& name) {
  for (Backend* b : present_backends())
    if (b->name() == name) return b;
  return nullptr;
}

}  // namespace hyla::testing
