#include "core/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "hyla/device.h"

namespace hyla {
namespace {

int available_threads() {
  if (const char* text = std::getenv("HYLA_NUM_THREADS")) {
    const int n = std::atoi(text);
    if (n >= 1) return std::min(n, 1024);
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// Workers sleep between jobs. One job at a time: callers queue on `caller_`.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker](std::stop_token stop) { work(stop, worker); });
  }
  ~Pool() {
    for (auto& w : workers_) w.request_stop();
    wake_.notify_all();
  }

  void run(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t, int)>& body) {
    std::lock_guard caller(caller_);
    {
      std::lock_guard lock(mutex_);
      body_ = &body, count_ = count, grain_ = grain, next_ = 0, busy_ = static_cast<int>(workers_.size()), ++job_;
    }
    wake_.notify_all();
    drain(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    body_ = nullptr;
  }

 private:
  void drain(int worker) {
    for (;;) {
      const int64_t begin = next_.fetch_add(grain_);
      if (begin >= count_) return;
      (*body_)(begin, std::min(begin + grain_, count_), worker);
    }
  }
  void work(std::stop_token stop, int worker) {
    uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, stop, [&] { return job_ != seen; });
        if (stop.stop_requested()) return;
        seen = job_;
      }
      drain(worker);
      std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex caller_, mutex_;
  std::condition_variable_any wake_, done_;
  const std::function<void(int64_t, int64_t, int)>* body_ = nullptr;
  int64_t count_ = 0, grain_ = 1;
  std::atomic<int64_t> next_{0};
  int busy_ = 0;
  uint64_t job_ = 0;
  std::vector<std::jthread> workers_;  // last: joined before the rest goes
};

}  // namespace

int cpu_threads() {
  static const int threads = available_threads();
  return threads;
}

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t, int)>& body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (count <= grain || cpu_threads() == 1) return body(0, count, 0);
  static Pool pool(cpu_threads());
  pool.run(count, grain, body);
}

}  // namespace hyla
