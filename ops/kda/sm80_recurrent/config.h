// Shape of the token-by-token kernel, for the planner, the launcher and the kernel. Plain C++.
//
// A block owns `columns()` of one head's V columns. Compute warps hold that part of the state in registers: each thread `columns_per_thread`
// columns x `rows()` K rows, `lanes` threads sharing a column. Prepare warps turn raw q, k, g into fp32 operands, a tile of tokens ahead.
#pragma once
#include <cstdint>

namespace hyla::kda::sm80_recurrent {

struct Config {
  int dim;                 // K = V
  int columns_per_thread;
  int lanes;               // threads that share a column, splitting K
  int compute_warps;
  int prepare_warps;
  int tile;                // tokens a stage holds
  int blocks_per_sm;       // that the register budget must allow
  bool prefetch;           // keep the next token's operands in registers while this one's sums are reduced

  constexpr int rows() const { return dim / lanes; }
  constexpr int columns_per_warp() const { return 32 / lanes * columns_per_thread; }
  constexpr int columns() const { return columns_per_warp() * compute_warps; }
  constexpr int splits() const { return dim / columns(); }
  constexpr int threads() const { return 32 * (compute_warps + prepare_warps); }
  // fp32 operands of one token: k e^g, q e^g, k, e^g; then this block's v; then beta and q.k.
  constexpr int token_floats() const { return 4 * dim + columns() + 4; }
  constexpr int stages() const { return 2; }
  constexpr int64_t smem_bytes(int64_t tokens) const { return 4 * int64_t(token_floats()) * stages() * tokens; }
};

enum class Kind : int { kLatency, kThroughput, kStream };
constexpr int kKinds = 3;

// Latency: one column a thread, so that few heads spread over the whole chip and a token costs one short dependent chain.
// Throughput: 4 columns x 16 rows a thread, so that operands read from shared memory serve four times the arithmetic.
// Stream: small blocks with half the registers, for one or two tokens a sequence: the state passes at memory speed.
constexpr Config config_of(Kind kind, int dim) {
  switch (kind) {
    case Kind::kLatency: return {dim, 1, 8, 4, 4, 8, 1, true};
    case Kind::kThroughput: return {dim, 4, 8, dim / 32, 2, 4, 2, false};
    default: return {dim, 4, 16, dim / 32, 1, 1, 4, false};
  }
}
static_assert(config_of(Kind::kLatency, 128).splits() == 8 && config_of(Kind::kLatency, 64).splits() == 4);
static_assert(config_of(Kind::kThroughput, 128).splits() == 2 && config_of(Kind::kThroughput, 64).splits() == 2);
static_assert(config_of(Kind::kStream, 128).splits() == 4 && config_of(Kind::kStream, 64).splits() == 4);
// The default shared-memory limit of every chip since sm_80, so that no opt-in is needed.
static_assert(config_of(Kind::kLatency, 128).smem_bytes(8) <= 48 * 1024 && config_of(Kind::kThroughput, 128).smem_bytes(8) <= 48 * 1024);

}  // namespace hyla::kda::sm80_recurrent
