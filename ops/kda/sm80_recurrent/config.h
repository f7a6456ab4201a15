// Shapes of the token-by-token kernels, for the planner, the launcher and the kernels. Plain C++.
#pragma once
#include <cstdint>

namespace hyla::kda::sm80_recurrent {

// Tokens whose products with the state are taken together, against the state before the first of them. One reduction over the lanes of a
// column then serves all of them, and the decay of the state is applied once.
constexpr int kGroup = 4;

// A block owns `columns()` of one head's V columns. Compute warps hold that part of the state in registers: each thread `columns_per_thread`
// columns x `rows()` K rows, `lanes` threads sharing a column. Prepare warps turn raw q, k, g of a group of tokens into fp32 operands.
struct Config {
  int dim;  // K = V
  int columns_per_thread;
  int lanes;  // threads that share a column, splitting K
  int compute_warps;
  int prepare_warps;  // each takes every prepare_warps-th group
  int stages;         // groups in shared memory; a multiple of prepare_warps
  int blocks_per_sm;  // that the register budget must allow

  constexpr int rows() const { return dim / lanes; }
  constexpr int columns_per_warp() const { return 32 / lanes * columns_per_thread; }
  constexpr int columns() const { return columns_per_warp() * compute_warps; }
  constexpr int splits() const { return dim / columns(); }
  constexpr int threads() const { return 32 * (compute_warps + prepare_warps); }
  // Of a group: decayed k, decayed q, k decayed to the group's end [kGroup][dim] each; the group's decay [dim]; v [kGroup][columns];
  // A_qk and A_kk [kGroup][kGroup]; beta [kGroup].
  constexpr int stage_floats() const { return (3 * kGroup + 1) * dim + kGroup * columns() + 2 * kGroup * kGroup + kGroup; }
  constexpr int64_t smem_bytes() const { return int64_t{4} * stage_floats() * stages; }
};

enum class Kind : int { kLatency, kThroughput, kStep };
constexpr int kKinds = 3;

// Latency: 16 columns a block, so that few heads spread over the whole chip; two columns a thread balance shuffles against shared memory.
// Throughput: 16 rows a thread: fewer shuffles and less shared memory traffic for the same arithmetic.
constexpr Config config_of(Kind kind, int dim) {
  if (kind == Kind::kLatency) return {dim, 2, dim / 8, dim / 32, 4, 4, 1};
  return {dim, 4, 8, dim / 32, 2, 4, 2};
}
static_assert(config_of(Kind::kLatency, 128).splits() == 8 && config_of(Kind::kLatency, 64).splits() == 4);
static_assert(config_of(Kind::kThroughput, 128).splits() == 2 && config_of(Kind::kThroughput, 64).splits() == 2);
// The default shared-memory limit of every chip since sm_80, so that no opt-in is needed.
static_assert(config_of(Kind::kLatency, 128).smem_bytes() <= 48 * 1024 && config_of(Kind::kThroughput, 128).smem_bytes() <= 48 * 1024);

// Step: one token after the other, for one or two tokens a sequence; no pipeline, few registers, so that many blocks stream states at once.
// A block of 128 threads owns 32 columns; a thread 32 elements of the state, arranged by the layout so that warps read whole lines.
struct StepConfig {
  int dim;
  constexpr int columns() const { return 32; }
  constexpr int splits() const { return dim / columns(); }
  constexpr int threads() const { return dim; }
};

constexpr int splits_of(Kind kind, int dim) { return kind == Kind::kStep ? StepConfig{dim}.splits() : config_of(kind, dim).splits(); }

}  // namespace hyla::kda::sm80_recurrent
