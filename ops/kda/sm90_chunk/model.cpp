#include "ops/kda/sm90_chunk/model.h"

#include <algorithm>
#include <cmath>

namespace hyla::kda::sm90_chunk {
namespace {

// Measured on an H200 (NOTES.md); microseconds.
constexpr double kPrepareStart = 8.0;     // launch and the latency of one item
constexpr double kPrepareItem = 10.9;     // a round of items, one on each group of a multiprocessor
constexpr double kScanStart = 6.0;        // launch, state in and out, filling the ring
constexpr double kScanChunkSplit = 1.08;  // a chunk on a block that has half of V
constexpr double kScanChunkWhole = 1.9;   // all of V
constexpr double kBeside = 1.14;          // the same while prepare shares L2 and memory
constexpr double kBesideStart = 11.0;     // clearing the flags, the first record
constexpr double kSummaryStart = 9.0, kSummaryChunk = 1.45;
constexpr double kCombineStart = 5.0, kCombineStep = 1.75;
constexpr double kThreeKernels = 6.0;                             // what three in a row take beyond the sum of each alone
constexpr double kMemory = 0.92;                                  // of the copy rate that the scan reaches
constexpr double kScanBytes = double(Record::kBytes) + 4 * 8192;  // a chunk of a head: record, v, o

int64_t chunks_of(int64_t tokens) { return (tokens + kChunk - 1) / kChunk; }

int64_t longest_chunks(const Problem& p) { return std::max<int64_t>(1, chunks_of(p.varlen ? std::min(p.max_seqlen, p.T) : p.T)); }

double total_chunks(const Problem& p) { return p.varlen ? std::max(double(p.T) / kChunk, double(p.N)) : double(p.B) * double(chunks_of(p.T)); }

int64_t input_bytes(const Problem& p) {
  const int64_t rows = p.B * p.T;
  return rows * (2 * p.H * p.K * size_of(p.qkv) + p.HV * (p.V * size_of(p.qkv) + p.K * size_of(p.g)));
}

// Blocks of equal length over the multiprocessors.
double rounds(double blocks, int sm_count) { return std::max(1.0, std::ceil(blocks / sm_count - 1e-9)); }

}  // namespace

int64_t record_slots(const Problem& p) { return p.varlen ? p.T / kChunk + p.N + 1 : p.B * chunks_of(p.T); }

int64_t wave_heads(const Problem& p, const Choice& c) { return (p.HV + c.waves - 1) / c.waves; }

double modelled_us(const Problem& p, const DeviceCaps& caps, const Choice& c) {
  const int sms = std::max(1, caps.sm_count);
  const double heads = double(wave_heads(p, c)), chunks = total_chunks(p), items = chunks * heads;
  const double longest = double(longest_chunks(p)), sequences = double(std::max<int64_t>(1, p.N));
  const double clock = caps.clock_ghz > 0 ? 1.6 / caps.clock_ghz : 1.0;
  auto prepare = [&](int on) { return kPrepareStart + kPrepareItem * clock * items / (on * PrepareConfig::kGroups); };
  const double chunk = (c.v_split == 2 ? kScanChunkSplit : kScanChunkWhole) * clock;
  const double memory = kScanStart + items * kScanBytes / (kMemory * caps.copy_tbs * 1e6);
  const double blocks = sequences * heads * c.v_split * c.segments;
  // Sequences of other lengths fill the gaps of the longest: work, not rounds, counts once there are more blocks than multiprocessors.
  auto pass = [&](double block_us, double work_us) {
    const double mean = work_us / sms;
    if (!p.varlen) return rounds(blocks, sms) * block_us;
    return std::max(block_us, blocks > sms ? mean + 0.3 * block_us : mean);
  };
  double us;
  if (c.segments <= 1) {
    const double block = kScanStart + longest * chunk;
    if (c.prepare_blocks > 0) {
      us = std::max(prepare(c.prepare_blocks) + kPrepareStart, kBesideStart + longest * chunk * kBeside);
    } else {
      us = prepare(sms) + std::max(pass(block, chunks * heads * c.v_split * chunk + blocks * kScanStart), memory) + 2 * caps.graph_node_us;
    }
  } else {
    const double length = std::min(longest, double(c.segment_chunks));
    const double summary_blocks = sequences * heads * 2 * (c.segments - 1);
    const double summary = rounds(summary_blocks, sms) * (kSummaryStart + length * kSummaryChunk * clock);
    const double combine = (c.segments - 1) * kCombineStep * clock;
    const double scan = rounds(blocks, sms) * (kCombineStart + length * chunk) + combine;
    us = prepare(sms) + summary + std::max(scan, memory) + kThreeKernels + 3 * caps.graph_node_us;
  }
  return us * c.waves;
}

Choice choose(const Problem& p, const DeviceCaps& caps, int segments) {
  const int64_t longest = longest_chunks(p);
  const int sms = std::max(1, caps.sm_count);
  Choice best;
  best.us = -1;
  auto offer = [&](Choice c) {
    // As many waves as keep the records within the bytes of q, k, v, g, but for 1/32: the slack that a few ragged sequences need.
    const int64_t limit = input_bytes(p) / 32 * 33;
    while (c.waves < p.HV) {
      const int64_t records = record_slots(p) * wave_heads(p, c) * Record::kBytes;
      if (records <= limit) break;
      ++c.waves;
    }
    c.us = modelled_us(p, caps, c);
    if (best.us < 0 || c.us < best.us) best = c;
  };
  auto offer_cut = [&](int64_t segment_chunks) {
    Choice c;
    if (segment_chunks < longest) {
      c.segment_chunks = int(segment_chunks);
      c.segments = int((longest + segment_chunks - 1) / segment_chunks);
    }
    for (c.v_split = 1; c.v_split <= 2; ++c.v_split) {
      c.prepare_blocks = 0;
      offer(c);
      // Beside: only where records come in the order in which all blocks need them.
      const int64_t blocks = std::max<int64_t>(1, p.N) * p.HV * c.v_split;  // of one wave, when there is one
      if (c.segments == 1 && (!p.varlen || p.N == 1) && longest >= 4 && blocks <= sms * 2 / 3) {
        c.prepare_blocks = int(sms - blocks);
        offer(c);
      }
    }
  };
  if (segments > 0) {
    offer_cut((longest + segments - 1) / segments);
  } else {
    offer_cut(longest);
    for (int n = 2; n <= 64 && longest / n >= 2; ++n) offer_cut((longest + n - 1) / n);
  }
  return best;
}

Buffers place(const Problem& p, const Choice& c, WorkspaceLayout& layout) {
  const int64_t heads = wave_heads(p, c);
  Buffers b;
  b.records = layout.take<uint8_t>(record_slots(p) * heads * Record::kBytes);
  const int64_t summaries = p.N * heads * (c.segments - 1);
  b.summary_state = layout.take<uint8_t>(summaries * Summary::kStateBytes);
  b.summary_transition = layout.take<uint8_t>(summaries * Summary::kTransitionBytes);
  b.summary_decay = layout.take<float>(summaries * kDim);
  b.saved_initial = layout.take<uint8_t>(c.segments > 1 && p.has_initial_state ? p.N * heads * Summary::kStateBytes : 0);
  b.ready = layout.take<uint32_t>(c.prepare_blocks > 0 ? record_slots(p) * heads : 0);
  return b;
}

}  // namespace hyla::kda::sm90_chunk
