#include "benchlib/timer.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace hyla::bench {

Result<Timing> time_calls(Device device, const Enqueue& enqueue, const TimerOptions& options) {
  if (device.kind == DeviceKind::kCuda) {
    CudaTimerOptions cuda;
    cuda.rotation = options.rotation;
    const auto timing = time_cuda(device, enqueue, cuda);
    if (!timing.ok()) return timing.status();
    return Timing{timing->graph_ms, timing->call_ms, timing->host_us, timing->spread};
  }
  std::vector<double> times;
  double total = 0;
  HYLA_RETURN_IF_ERROR(enqueue({}, 0));  // touches the memory
  while (static_cast<int>(times.size()) < options.least_calls || (total < options.least_ms && static_cast<int>(times.size()) < options.most_calls)) {
    const auto begin = std::chrono::steady_clock::now();
    HYLA_RETURN_IF_ERROR(enqueue({}, static_cast<int>(times.size())));
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  Timing timing;
  timing.graph_ms = times[times.size() / 2];
  timing.call_ms = total / static_cast<double>(times.size());
  timing.spread = (times[times.size() * 9 / 10] - times[times.size() / 10]) / timing.graph_ms;
  return timing;
}

}  // namespace hyla::bench
