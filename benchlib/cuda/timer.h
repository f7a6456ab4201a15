// Times work on a CUDA stream: device time by graph replay, time of back-to-back calls, host time of a call.
#pragma once
#include <functional>

#include "hyla/device.h"
#include "hyla/status.h"
#include "hyla/tensor.h"

namespace hyla::bench {

// Enqueues call number `i` on the stream. Callers rotate their buffers by `i`, so that nothing sits in L2 that would not in real use.
using Enqueue = std::function<Status(Stream stream, int i)>;

struct CudaTiming {
  double graph_ms = 0;  // device time of one call inside a replayed graph, median over replays
  double call_ms = 0;   // time of one of many calls made back to back, device included
  double host_us = 0;   // host time of one call
  double spread = 0;    // (90th - 10th percentile) / median of the replays
};

struct CudaTimerOptions {
  int rotation = 1;            // distinct buffers: a graph holds a multiple of it
  int replays = 11;            // measured, after two that are not
  double graph_target_ms = 4;  // length of a graph
  int most_calls = 64;         // in one graph
};

// Fails with the first error of `enqueue` or of the runtime; kUnsupported in a build without CUDA.
Result<CudaTiming> time_cuda(Device device, const Enqueue& enqueue, const CudaTimerOptions& options = {});

}  // namespace hyla::bench
