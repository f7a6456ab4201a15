// parallel_for over the CPU backend's worker threads.
#pragma once
#include <cstdint>
#include <functional>

namespace hyla {

// Calls body(begin, end, worker) over [0, count) in pieces of about `grain`, on up to cpu_threads() threads (the calling one included), and returns
// when all are done. `worker` is in [0, cpu_threads()): scratch memory can be indexed by it. Pieces are handed out dynamically; results must not
// depend on the partition. Safe to call from several threads at once.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end, int worker)>& body);

}  // namespace hyla
