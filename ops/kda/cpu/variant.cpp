#include "ops/kda/cpu/variant.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/numeric.h"
#include "core/threads.h"
#include "ops/kda/cpu/chunk.h"

namespace hyla::kda::cpu {
namespace {

constexpr const char* kName = "cpu";

Status can_run_here(const Problem&, const DeviceCaps& caps) {
  if (caps.kind != DeviceKind::kCpu) return Status::unsupported("device", "the CPU", caps.name);
  return {};
}

// Floating-point operations of the chunked form, a token and head (see ops/kda/README.md).
double flop_per_token(const Problem& p) { return 2.0 * (3.0 * p.K * p.V + kChunk * p.V + kChunk * p.K); }

Plan propose_here(const Problem& p, const DeviceCaps& caps, const PlanOptions&, std::string& config) {
  Plan plan;
  plan.problem = p, plan.caps = caps, plan.variant = kName;
  plan.threads = cpu_threads();
  plan.workspace_bytes = static_cast<size_t>(plan.threads * Scratch::floats(p.K, p.V)) * sizeof(float);
  const double heads = static_cast<double>(p.N * p.HV), busy = std::clamp(heads, 1.0, static_cast<double>(std::max(caps.sm_count, 1)));
  const double tokens = static_cast<double>(p.varlen ? p.T : p.B * p.T) * static_cast<double>(p.HV);
  constexpr double kEfficiency = 0.35;  // of the cores' peak
  plan.modelled_us = tokens * flop_per_token(p) / (busy * caps.clock_ghz * 1e3 * caps.tensor_flop_per_clock * kEfficiency) + 5.0;
  plan.why = "chunks of 64 tokens in fp32, threads over sequences and heads";
  config = fmt::format("threads={}", plan.threads);
  return plan;
}

// A sequence's place: rows of the batch, state rows, first checkpoint row.
struct Sequence {
  int64_t batch, begin, length, state_row, first_checkpoint;  // state_row -1: skipped
};

class Runner {
 public:
  Runner(const Plan& plan, const Args& args, float* scratch) : args_(args), p_(plan.problem), scratch_(scratch) {
    int64_t checkpoints = 0;
    for (int64_t n = 0; n < p_.N; ++n) {
      Sequence s{n, 0, p_.T, n, checkpoints};
      if (p_.varlen) {
        const int64_t begin = std::clamp<int64_t>(index(args.cu_seqlens, n), 0, p_.T);
        s.batch = 0, s.begin = begin, s.length = std::clamp(index(args.cu_seqlens, n + 1), begin, p_.T) - begin;
      }
      if (p_.has_pool) {
        const int64_t slot = index(args.state_indices, n);
        s.state_row = slot < args.lowest_valid_slot || slot >= p_.slots ? -1 : slot;
      }
      checkpoints += s.length / kChunk;
      sequences_.push_back(s);
    }
  }

  void run() {
    parallel_for(p_.N * p_.HV, 1, [&](int64_t begin, int64_t end, int worker) {
      const Scratch scratch(scratch_ + worker * Scratch::floats(p_.K, p_.V), p_.K, p_.V);
      for (int64_t i = begin; i < end; ++i) run_head(i / p_.HV, i % p_.HV, scratch);
    });
  }

 private:
  static int64_t index(const TensorView& t, int64_t i) { return load_index(t.data, t.dtype, i * t.stride[0]); }

  void run_head(int64_t n, int64_t h, const Scratch& scratch) {
    const Sequence& s = sequences_[n];
    const Head head{args_, p_, s.batch, h};
    if (s.state_row < 0) return clear_rows(s, h);
    load_state(n, s, h, scratch.state);
    for (int64_t done = 0; done < s.length;) {
      const int64_t count = std::min(kChunk, s.length - done);
      advance(head, s.begin + done, count, scratch);
      done += count;
      if (p_.has_checkpoints && done % kChunk == 0) store_checkpoints(n, s, h, done, scratch.state);
    }
    if (p_.has_final_state) store_state(args_.final_state, s.state_row, h, scratch.state);
  }

  void clear_rows(const Sequence& s, int64_t h) {
    const TensorView& out = args_.out;
    for (int64_t t = s.begin; t < s.begin + s.length; ++t)
      for (int64_t v = 0; v < p_.V; ++v) store_float(out.data, out.dtype, s.batch * out.stride[0] + t * out.stride[1] + h * out.stride[2] + v, 0.0f);
  }

  void load_state(int64_t n, const Sequence& s, int64_t h, float* to) {
    const bool fresh = !p_.has_initial_state || (p_.has_state_flags && args_.has_initial_state.as<uint8_t>()[n * args_.has_initial_state.stride[0]] == 0);
    if (fresh) return static_cast<void>(std::fill_n(to, p_.K * p_.V, 0.0f));
    const TensorView& t = args_.initial_state;
    for (int64_t k = 0; k < p_.K; ++k)
      for (int64_t v = 0; v < p_.V; ++v) to[k * p_.V + v] = load_float(t.data, t.dtype, state_offset(t, s.state_row, h, k, v));
  }

  void store_state(const TensorView& t, int64_t row, int64_t h, const float* from) {
    for (int64_t k = 0; k < p_.K; ++k)
      for (int64_t v = 0; v < p_.V; ++v) store_float(t.data, t.dtype, state_offset(t, row, h, k, v), from[k * p_.V + v]);
  }

  int64_t state_offset(const TensorView& t, int64_t row, int64_t h, int64_t k, int64_t v) const {
    const bool v_first = p_.state_layout == StateLayout::kVFirst;
    return row * t.stride[0] + h * t.stride[1] + (v_first ? v : k) * t.stride[2] + (v_first ? k : v);
  }

  // Stores the state after `tokens` tokens wherever the arguments ask for it.
  void store_checkpoints(int64_t n, const Sequence& s, int64_t h, int64_t tokens, const float* state) {
    if (p_.checkpoint_slots_per_seq == 0) return store_checkpoint(s.first_checkpoint + tokens / kChunk - 1, h, state);
    const TensorView& offsets = args_.checkpoint_offsets;
    for (int64_t i = 0; i < p_.checkpoint_slots_per_seq; ++i)
      if (load_index(offsets.data, offsets.dtype, n * offsets.stride[0] + i * offsets.stride[1]) == tokens)
        store_checkpoint(n * p_.checkpoint_slots_per_seq + i, h, state);
  }

  void store_checkpoint(int64_t row, int64_t h, const float* state) {
    if (p_.has_checkpoint_indices) {
      if (row >= args_.checkpoint_indices.shape[0]) return;
      row = index(args_.checkpoint_indices, row);
      if (row < args_.lowest_valid_slot) return;
    }
    if (row >= 0 && row < p_.checkpoint_rows) store_state(args_.checkpoints, row, h, state);
  }

  const Args& args_;
  const Problem& p_;
  float* scratch_;
  std::vector<Sequence> sequences_;
};

Status run_here(const Plan& plan, const Args& args, Workspace workspace, Stream) {
  Runner(plan, args, static_cast<float*>(workspace.data)).run();
  return {};
}

}  // namespace

Variant variant() { return {kName, can_run_here, propose_here, run_here}; }

}  // namespace hyla::kda::cpu
