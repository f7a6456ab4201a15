#include "ops/kda/sm90_chunk/model.h"

#include <algorithm>
#include <cmath>

namespace hyla::kda::sm90_chunk {
namespace {

// Measured on an H200 (NOTES.md); microseconds.
constexpr double kPrepareItem = 10.5;      // one chunk of one head on a block, two blocks a multiprocessor
constexpr double kPrepareStart = 3.0;
constexpr double kScanChunkSplit = 1.15;   // a chunk on a block that has half of V
constexpr double kScanChunkWhole = 1.75;   // all of V
constexpr double kSummaryChunk = 1.25;
constexpr double kCombineStep = 1.6;
constexpr double kBlockStart = 3.5;        // launch, state in and out, filling the ring
constexpr double kScanBytes = double(Record::kBytes) + 4 * 8192;  // a chunk of a head: record, v, o

int64_t chunks_of(int64_t tokens) { return (tokens + kChunk - 1) / kChunk; }

int64_t longest_chunks(const Problem& p) { return std::max<int64_t>(1, chunks_of(p.varlen ? std::min(p.max_seqlen, p.T) : p.T)); }

double total_chunks(const Problem& p) {
  return p.varlen ? std::max(double(p.T) / kChunk, double(p.N)) : double(p.B) * double(chunks_of(p.T));
}

// Blocks of equal length over the multiprocessors.
double rounds(double blocks, int sm_count) { return std::max(1.0, std::ceil(blocks / sm_count - 1e-9)); }

}  // namespace

int64_t record_slots(const Problem& p) { return p.varlen ? p.T / kChunk + p.N + 1 : p.B * chunks_of(p.T); }

double modelled_us(const Problem& p, const DeviceCaps& caps, const Choice& c) {
  const int sms = std::max(1, caps.sm_count);
  const double heads = double(p.HV), chunks = total_chunks(p), items = chunks * heads;
  const double longest = double(longest_chunks(p)), sequences = double(std::max<int64_t>(1, p.N));
  const double clock = caps.clock_ghz > 0 ? 1.6 / caps.clock_ghz : 1.0;
  const double prepare = kPrepareStart + rounds(items, sms * PrepareConfig::kBlocksPerSm) * kPrepareItem * clock;
  const double chunk = (c.v_split == 2 ? kScanChunkSplit : kScanChunkWhole) * clock;
  const double memory = items * kScanBytes / (caps.copy_tbs * 1e6);
  // Sequences of other lengths fill the gaps of the longest: work, not rounds, counts once there are more blocks than multiprocessors.
  const double blocks = sequences * heads * c.v_split * c.segments;
  auto pass = [&](double block_us, double work_us) {
    return p.varlen ? std::max(block_us, work_us / sms + 0.5 * block_us * (work_us / sms > block_us ? 1 : 0)) : rounds(blocks, sms) * block_us;
  };
  if (c.segments <= 1) {
    const double block = kBlockStart + longest * chunk;
    return prepare + std::max(pass(block, chunks * heads * c.v_split * chunk + blocks * kBlockStart), memory) + 2 * caps.graph_node_us;
  }
  const double length = std::min(longest, double(c.segment_chunks));
  const double summary_blocks = sequences * heads * 2 * (c.segments - 1);
  const double summary = rounds(summary_blocks, sms) * (kBlockStart + length * kSummaryChunk * clock);
  const double combine = (c.segments - 1) * kCombineStep * clock;
  const double scan = rounds(blocks, sms) * (kBlockStart + length * chunk) + combine;
  return prepare + summary + std::max(scan, memory) + 3 * caps.graph_node_us;
}

Choice choose(const Problem& p, const DeviceCaps& caps, int segments) {
  const int64_t longest = longest_chunks(p);
  Choice best;
  best.us = -1;
  auto offer = [&](int64_t segment_chunks) {
    for (int split = 1; split <= 2; ++split) {
      Choice c;
      if (segment_chunks < longest) {
        c.segment_chunks = int(segment_chunks);
        c.segments = int((longest + segment_chunks - 1) / segment_chunks);
      }
      c.v_split = split;
      c.us = modelled_us(p, caps, c);
      if (best.us < 0 || c.us < best.us) best = c;
    }
  };
  if (segments > 0) {
    offer((longest + segments - 1) / segments);
    return best;
  }
  offer(longest);
  for (int n = 2; n <= 64 && longest / n >= 2; ++n) offer((longest + n - 1) / n);
  return best;
}

Buffers place(const Problem& p, const Choice& c, WorkspaceLayout& layout) {
  Buffers b;
  b.records = layout.take<uint8_t>(record_slots(p) * p.HV * Record::kBytes);
  const int64_t summaries = p.N * p.HV * (c.segments - 1);
  b.summary_state = layout.take<uint8_t>(summaries * Summary::kStateBytes);
  b.summary_transition = layout.take<uint8_t>(summaries * Summary::kTransitionBytes);
  b.summary_decay = layout.take<float>(summaries * kDim);
  b.saved_initial = layout.take<uint8_t>(c.segments > 1 && p.has_initial_state ? p.N * p.HV * Summary::kStateBytes : 0);
  return b;
}

}  // namespace hyla::kda::sm90_chunk
