#include "ops/extend/tests/sgemm.h"

#include <Eigen/Core>
#include <chrono>
#include <vector>

#include "core/threads.h"
#include "hyla/device.h"

namespace hyla::extend {

double sgemm_seconds(int n) {
  struct Operands {
    Eigen::MatrixXf a, b, c;
  };
  std::vector<Operands> operands(static_cast<size_t>(cpu_threads()));
  for (Operands& o : operands) o.a.setRandom(n, n), o.b.setRandom(n, n), o.c.setZero(n, n);
  const auto start = std::chrono::steady_clock::now();
  parallel_for(cpu_threads(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      operands[static_cast<size_t>(i)].c.noalias() = operands[static_cast<size_t>(i)].a * operands[static_cast<size_t>(i)].b;
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace hyla::extend
