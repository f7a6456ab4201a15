#include "benchlib/cuda/timer.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "cuda/host/launch.h"

namespace hyla::bench {
namespace {

using cuda::check;

// A stream, two events and the graph of some calls; all are released together.
class Timer {
 public:
  Status open() {
    HYLA_RETURN_IF_ERROR(check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
    for (cudaEvent_t& event : events_) HYLA_RETURN_IF_ERROR(check(cudaEventCreate(&event), "cudaEventCreate"));
    return {};
  }
  ~Timer() {
    drop_graph();
    for (cudaEvent_t event : events_)
      if (event) (void)cudaEventDestroy(event);
    if (stream_) (void)cudaStreamDestroy(stream_);
  }

  Status capture(const Enqueue& enqueue, int calls) {
    drop_graph();
    HYLA_RETURN_IF_ERROR(check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"));
    Status status;
    for (int i = 0; i < calls && status.ok(); ++i) status = enqueue({stream_}, i);
    cudaGraph_t graph = nullptr;
    const Status ended = check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    if (status.ok()) status = ended;
    if (status.ok()) status = check(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
    if (graph) (void)cudaGraphDestroy(graph);
    return status;
  }
  // Device time between events around `body`, and the host time until it returned.
  template <class Body>
  Status measure(Body&& body, double& device_ms, double& host_ms) {
    HYLA_RETURN_IF_ERROR(check(cudaEventRecord(events_[0], stream_), "cudaEventRecord"));
    const auto begin = std::chrono::steady_clock::now();
    HYLA_RETURN_IF_ERROR(body());
    host_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    HYLA_RETURN_IF_ERROR(check(cudaEventRecord(events_[1], stream_), "cudaEventRecord"));
    HYLA_RETURN_IF_ERROR(check(cudaEventSynchronize(events_[1]), "cudaEventSynchronize"));
    float ms = 0;
    HYLA_RETURN_IF_ERROR(check(cudaEventElapsedTime(&ms, events_[0], events_[1]), "cudaEventElapsedTime"));
    device_ms = ms;
    return {};
  }
  Status replay(double& ms) {
    double host = 0;
    return measure([&] { return check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); }, ms, host);
  }
  Stream stream() const { return {stream_}; }

 private:
  void drop_graph() {
    if (graph_) (void)cudaGraphExecDestroy(graph_);
    graph_ = nullptr;
  }
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[2] = {};
  cudaGraphExec_t graph_ = nullptr;
};

int rounded_up(double count, int multiple) { return std::max(1, static_cast<int>((count + multiple - 1) / multiple)) * multiple; }

}  // namespace

Result<CudaTiming> time_cuda(Device device, const Enqueue& enqueue, const CudaTimerOptions& options) {
  cuda::DeviceGuard guard(device);
  HYLA_RETURN_IF_ERROR(guard.status());
  Timer timer;
  HYLA_RETURN_IF_ERROR(timer.open());
  const int rotation = std::max(1, options.rotation);

  // One round of calls warms up and says how many fill a graph.
  double ms = 0, host = 0;
  HYLA_RETURN_IF_ERROR(timer.capture(enqueue, rotation));
  for (int i = 0; i < 2; ++i) HYLA_RETURN_IF_ERROR(timer.replay(ms));
  const double once = std::max(ms / rotation, 1e-3);
  const int calls = std::max(rotation, std::min(rounded_up(options.graph_target_ms / once, rotation), rounded_up(options.most_calls, rotation)));
  HYLA_RETURN_IF_ERROR(timer.capture(enqueue, calls));
  for (int i = 0; i < 2; ++i) HYLA_RETURN_IF_ERROR(timer.replay(ms));

  CudaTiming timing;
  std::vector<double> times;
  for (int i = 0; i < std::max(3, options.replays); ++i) {
    HYLA_RETURN_IF_ERROR(timer.replay(ms));
    times.push_back(ms / calls);
  }
  std::sort(times.begin(), times.end());
  timing.graph_ms = times[times.size() / 2];
  timing.spread = (times[times.size() * 9 / 10] - times[times.size() / 10]) / timing.graph_ms;

  const auto eager = [&](int count) {
    return timer.measure(
        [&]() -> Status {
          for (int i = 0; i < count; ++i) HYLA_RETURN_IF_ERROR(enqueue(timer.stream(), i));
          return {};
        },
        ms, host);
  };
  const int eager_calls = std::min(calls, 64);  // below the depth at which a full launch queue would hold the host up
  for (int i = 0; i < 2; ++i) HYLA_RETURN_IF_ERROR(eager(eager_calls));
  timing.call_ms = ms / eager_calls;
  timing.host_us = host * 1e3 / eager_calls;
  return timing;
}

}  // namespace hyla::bench
