// One head of one sequence, chunk by chunk.
#pragma once
#include <cstdint>

#include "hyla/kda.h"
#include "ops/kda/problem.h"

namespace hyla::kda::cpu {

// fp32 scratch memory of one worker, in floats. kChunk tokens at a time.
struct Scratch {
  static int64_t floats(int64_t K, int64_t V);
  Scratch(float* base, int64_t K, int64_t V);
  float* state;          // [K, V]
  float *q, *k, *decay;  // [kChunk, K]: normalised rows, e^g
  float *ke, *qe, *kd;   // [kChunk, K]: k e^G, q e^G, k e^(G_C - G)
  float *x, *out;        // [kChunk, V]: v, then the writes; output
  float *a_kk, *a_qk;    // [kChunk, kChunk]
  float* beta;           // [kChunk]
};

// What a head's chunks need to know of their place in the arguments.
struct Head {
  const Args& args;
  const Problem& problem;
  int64_t batch, head;  // of the value heads
};

// Advances scratch.state over tokens [begin, begin + count) of the batch row and writes their outputs; count <= kChunk.
void advance(const Head& head, int64_t begin, int64_t count, const Scratch& scratch);

}  // namespace hyla::kda::cpu
