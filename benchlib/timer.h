// The clock of every benchmark: graph replay on a GPU, repeated calls on the CPU.
#pragma once
#include <functional>

#include "benchlib/cuda/timer.h"

namespace hyla::bench {

struct Timing {
  double graph_ms = 0;  // device time of one call (CPU: the call), median
  double call_ms = 0;   // time of one of many calls made back to back
  double host_us = 0;   // host time of a call (0 on the CPU)
  double spread = 0;    // (90th - 10th percentile) / median
};

struct TimerOptions {
  int rotation = 1;       // as in CudaTimerOptions
  double least_ms = 200;  // CPU: measure at least this long ...
  int least_calls = 3;    // ... and this often,
  int most_calls = 50;    // but no more often
};

Result<Timing> time_calls(Device device, const Enqueue& enqueue, const TimerOptions& options = {});

}  // namespace hyla::bench
