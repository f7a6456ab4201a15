// Useful work of a problem: arithmetic that any algorithm for it must do, and bytes that must move at least once.
#pragma once
#include <optional>

#include "benchlib/shapes.h"

namespace hyla::bench {

struct Work {
  double flop = 0, bytes = 0;
};

// KDA: the three K x V products of the recurrence, 6 K V FLOP per token and value head; the inputs, the output and the states in and out.
Work work_of(const KdaShape& shape);
// Extend attention: 2 * pairs * Hq * (Lq + Lv); q, out, and every key and value that some query sees.
Work work_of(const ExtendShape& shape);

// The work of a result file's row; none where its shape is not one of a single problem size (lists of lengths) or not understood.
std::optional<Work> work_of_row(const std::string& op, const nlohmann::json& shape);

// (query, key) pairs of one head of one request that causality and the window allow. Exact.
int64_t allowed_pairs(int64_t n, int64_t prefix, int64_t window);

// The least time in ms on a device: the longer of moving the bytes and doing the arithmetic at the full tensor rate.
double floor_ms(const Work& work, const DeviceCaps& caps);

}  // namespace hyla::bench
