// Kimi Delta Attention (KDA) prefill: a gated delta rule over a [K, V] state per value head.
//
// Per value head, with log decay g_t (K values), k_t and q_t optionally L2-normalised (x / sqrt(sum x^2 + 1e-6)):
//   S   = diag(exp(g_t)) S
//   S  += beta_t k_t (v_t - k_t^T S)^T
//   o_t = scale * S^T q_t
// Source: "Kimi Linear: An Expressive, Efficient Attention Architecture" (Moonshot AI, 2025), and the recurrence of
// flash-linear-attention's chunk_kda, whose argument meanings this follows. The full contract: ops/kda/README.md.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "hyla/device.h"
#include "hyla/plan.h"
#include "hyla/status.h"
#include "hyla/tensor.h"

namespace hyla::kda {

enum class Gate : uint8_t {
  kBounded,    // g_t = lower_bound * sigmoid(exp(A_log) * (g + dt_bias)); without A_log the factor exp(A_log) is 1
  kUnbounded,  // g_t = -exp(A_log) * softplus(g + dt_bias)
  kGiven,      // g is the log decay itself (natural log, <= 0)
};

enum class StateLayout : uint8_t { kKFirst /* [.., K, V] */, kVFirst /* [.., V, K] */ };

// Shapes: B batch, T tokens, H query/key heads, HV value heads (a multiple of H), N sequences (= B, or cu_seqlens.shape[0] - 1).
// Value head j uses query/key head j / (HV / H). Innermost dimensions are contiguous; the B, T and head strides are free, so that
// slices of one projection need no copy. An absent optional tensor has rank 0. Inputs are never written.
struct Args {
  TensorView q;            // [B, T, H, K] bf16 (CPU: also fp16, fp32; one dtype for q, k, v)
  TensorView k;            // [B, T, H, K]
  TensorView v;            // [B, T, HV, V]
  TensorView g;            // [B, T, HV, K] bf16 or fp32: raw gate, or the log decay when gate == kGiven
  TensorView beta;         // [B, T, HV] bf16 or fp32
  TensorView A_log;        // [HV] fp32; required for kUnbounded, optional for kBounded, refused for kGiven
  TensorView dt_bias;      // [HV, K] or [HV * K] fp32, optional; refused for kGiven
  TensorView cu_seqlens;   // [N + 1] int32 or int64 on the run's device, optional; needs B == 1. Non-decreasing from 0; the last value may be
                           // less than T: rows past it are neither read nor written. Zero-length sequences keep their state.
  int64_t max_seqlen = 0;  // host-known upper bound of the sequence lengths, used for planning; 0: T. A longer sequence is still computed right.

  TensorView initial_state;       // fp32 or bf16 [N, HV, K, V] / [N, HV, V, K], optional (absent: zeros); or, with state_indices, the pool
                                  // [slots, HV, ..] with any slot stride
  TensorView state_indices;       // [N] int32 or int64: sequence n uses pool slot state_indices[n]; optional. Indices are unique.
  TensorView has_initial_state;   // [N] bool/u8, optional: 0 means start from zeros without reading the state (it may hold NaN)
  int64_t lowest_valid_slot = 0;  // with state_indices: an index below this (or >= slots) skips the sequence: no state read or write, its output rows zero

  TensorView final_state;  // like initial_state, own dtype; optional. With state_indices it is a pool too; the same view as initial_state
                           // updates in place
  StateLayout state_layout = StateLayout::kKFirst;  // of initial_state, final_state and checkpoints

  TensorView checkpoints;         // fp32 or bf16 [C, HV, K, V] (or V-first), optional: states inside the sequences, rounded once, bit-equal to
                                  // the final state of a run on that prefix alone with the same plan settings.
                                  // Without checkpoint_offsets: the state after every 64 tokens, sequence by sequence; sequence n's rows start
                                  // at sum over m < n of floor(len_m / 64). C may exceed the rows needed.
  TensorView checkpoint_offsets;  // [N, P] int32 or int64, optional: token counts after which to store, multiples of 64 within the sequence, or -1 for
                                  // none; entry (n, p) is stored at row n * P + p
  TensorView checkpoint_indices;  // [C'] int32 or int64, optional: row r above is stored at checkpoints[checkpoint_indices[r]] instead (a pool); an index
                                  // below lowest_valid_slot or past the pool stores nothing

  TensorView out;  // [B, T, HV, V], dtype of v (or fp32)

  Gate gate = Gate::kBounded;
  float lower_bound = -5.0f;    // kBounded: within [-5, 0)
  bool qk_l2norm = true;        // normalise q and k inside
  bool beta_is_logits = false;  // beta = sigmoid(beta)
  bool beta_doubled = false;    // beta = 2 * beta afterwards (negative eigenvalues)
  float scale = 0.0f;           // 0: K^-1/2
};

// What is asked, in plain numbers: everything a plan depends on, nothing it does not (no pointers, no lengths on the device).
struct Problem {
  int64_t B = 1, T = 0, H = 0, HV = 0, K = 0, V = 0;
  int64_t N = 0;                         // sequences
  int64_t max_seqlen = 0;                // host-known bound, <= T
  int64_t slots = 0;                     // pool slots; 0: states are indexed by sequence
  int64_t checkpoint_rows = 0;           // C
  int64_t checkpoint_slots_per_seq = 0;  // P of checkpoint_offsets; 0: every 64 tokens (when checkpoints are asked)
  DType qkv = DType::kBf16, g = DType::kBf16, beta = DType::kBf16, out = DType::kBf16;
  DType initial_state_dtype = DType::kFp32, final_state_dtype = DType::kFp32, checkpoint_dtype = DType::kFp32;
  Gate gate = Gate::kBounded;
  StateLayout state_layout = StateLayout::kKFirst;
  float lower_bound = -5.0f, scale = 0.0f;  // scale resolved (never 0)
  bool varlen = false, has_A_log = false, has_dt_bias = false, qk_l2norm = true, beta_is_logits = false, beta_doubled = false;
  bool has_initial_state = false, has_final_state = false, has_state_flags = false, has_pool = false;
  bool has_checkpoints = false, has_checkpoint_indices = false;
  bool aligned16 = true;  // q, k, v, g, out: base and row strides are multiples of 16 bytes
  Device device{};
  bool operator==(const Problem&) const = default;
  std::string str() const;  // one line
};

struct Plan {
  Problem problem;
  DeviceCaps caps;
  std::string variant;          // the chosen one
  int segments = 1;             // pieces each long sequence is cut into (1: none)
  int v_split = 1;              // blocks that share one head's V columns
  int stages = 0;               // shared-memory stages of the scan
  int threads = 0;              // CPU: worker threads
  std::vector<int64_t> tuning;  // further numbers of the variant, in its own order
  size_t workspace_bytes = 0;
  double modelled_us = 0;
  std::string why;
  std::vector<Candidate> candidates;
  std::string str() const;  // one line: variant, tiles, splits, workspace bytes, modelled time, why
};

// Checks every argument that can be checked without reading tensor contents, and sums it up. The first error found is returned.
Result<Problem> make_problem(const Args& args);

// OK, or the reason why no variant (or the one that options.variant names) computes this on the device. Launches and reads nothing.
Status can_run(const Args& args, const DeviceCaps& caps, const PlanOptions& options = {});

// Chooses a variant and its parameters. Pure host code; works for chips that are not present (through the Problem overload).
Result<Plan> plan(const Args& args, const DeviceCaps& caps, const PlanOptions& options = {});
Result<Plan> plan(const Problem& problem, const DeviceCaps& caps, const PlanOptions& options = {});

// Enqueues the operation (CPU: computes it before returning). Nothing is written unless all checks pass. `workspace` holds at least
// plan.workspace_bytes on the plan's device; its contents need no initialisation. A plan may be run any number of times, with other
// pointers and other lengths, indices and counts of the same capacity.
Status run(const Plan& plan, const Args& args, Workspace workspace, Stream stream = {});

// Reads indices and lengths (CPU-readable arguments only) and reports the first that breaks the contract: cu_seqlens not from 0 or not
// monotone or past T, state_indices past the pool or repeated, checkpoint offsets that are no multiples of 64 or past the sequence.
Status check_contents(const Args& args);

// Names of the variants built in, in order of preference.
std::vector<std::string> variants();

}  // namespace hyla::kda
