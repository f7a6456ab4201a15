// What planners of all operations share: candidates with their modelled time, and how a caller steers the choice.
#pragma once
#include <string>
#include <vector>

namespace hyla {

// One way to run a problem, as the planner saw it.
struct Candidate {
  std::string variant;  // "cpu", "sm90_chunk", ...
  std::string config;   // tiles, stages, splits in one phrase: "segments=33 v_split=2 stages=3"
  bool legal = false;
  double modelled_us = 0;  // device time; meaningful when legal
  std::string reason;      // why it was refused, passed over or chosen
};

struct PlanOptions {
  std::string variant;        // force this variant by name; empty: the fastest legal one by modelled time
  int splits = 0;             // force the number of segments (KDA) or KV parts (extend); 0: the planner's choice
  bool debug_checks = false;  // check index contents too (monotone indptr, indices inside the pool); CPU-readable arguments only
};

}  // namespace hyla
