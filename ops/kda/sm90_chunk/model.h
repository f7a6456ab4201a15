// Cutting long sequences into segments, and the modelled time of a run. Pure host code, for any chip.
#pragma once
#include <cstdint>

#include "config.h"
#include "hyla/kda.h"
#include "hyla/workspace.h"

namespace hyla::kda::sm90_chunk {

struct Choice {
  int segment_chunks = 0;  // chunks a segment; 0: sequences are not cut
  int segments = 1;        // room for so many segments a sequence
  int v_split = 1;         // blocks that share a head's V columns in the scan
  int prepare_blocks = 0;  // > 0: the scan runs beside prepare, which takes so many multiprocessors
  int waves = 1;           // runs over ranges of heads that share the workspace
  double us = 0;           // modelled device time
};

// The modelled time of one way to run a problem.
double modelled_us(const Problem& problem, const DeviceCaps& caps, const Choice& choice);

// The fastest by modelled time; `segments` > 0 asks for that number.
Choice choose(const Problem& problem, const DeviceCaps& caps, int segments);

// Records a head has room for: sequence n starts at cu_seqlens[n] / 64 + n.
int64_t record_slots(const Problem& problem);

// Heads of one wave.
int64_t wave_heads(const Problem& problem, const Choice& choice);

struct Buffers {
  uint8_t *records, *summary_state, *summary_transition, *saved_initial;
  float* summary_decay;
  uint32_t* ready;
};
Buffers place(const Problem& problem, const Choice& choice, WorkspaceLayout& layout);

}  // namespace hyla::kda::sm90_chunk
