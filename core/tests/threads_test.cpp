#include "core/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "hyla/device.h"

namespace hyla {
namespace {

TEST(Threads, EveryIndexOnce) {
  for (const int64_t count : {0, 1, 2, 7, 1000, 12345})
    for (const int64_t grain : {1, 3, 100, 100000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      std::atomic<bool> worker_in_range = true;
      parallel_for(count, grain, [&](int64_t begin, int64_t end, int worker) {
        if (worker < 0 || worker >= cpu_threads()) worker_in_range = false;
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      EXPECT_TRUE(worker_in_range);
      for (const auto& s : seen) ASSERT_EQ(s, 1) << count << " by " << grain;
    }
}

TEST(Threads, AWorkerRunsOnePieceAtATime) {
  std::vector<std::atomic<int>> busy(static_cast<size_t>(cpu_threads()));
  std::atomic<bool> clash = false;
  parallel_for(2000, 1, [&](int64_t, int64_t, int worker) {
    if (busy[static_cast<size_t>(worker)].fetch_add(1) != 0) clash = true;
    busy[static_cast<size_t>(worker)].fetch_sub(1);
  });
  EXPECT_FALSE(clash);
}

TEST(Threads, SeveralCallersAtOnce) {
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 20; ++repeat) parallel_for(100, 7, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
    });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 20 * 100);
}

}  // namespace
}  // namespace hyla
