// The case table of extend attention, shared by tests, command line and benchmarks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "hyla/extend.h"

namespace hyla::extend {

enum class Pool : uint8_t {
  kSlots,        // [slots, Hkv, L]
  kPages,        // [pages, page, Hkv, L], heads within a token
  kHeadsFirst,   // [pages, Hkv, page, L] seen through strides
  kBlocksFirst,  // K and V interleaved in one buffer: [pages, 2, page, Hkv, L]
  kStacked,      // one layer of a buffer of three: [slots, 3, Hkv, L]
};

enum class Mask : uint8_t {
  kNone,
  kCausal,       // what causality would allow
  kTree,         // a random subset of the earlier new tokens, and the query itself
  kBlockCausal,  // blocks of 32 see each other whole: not triangular
  kSparse,       // random; the first 14, some middle and the last rows see no key at all
  kAll,
};

enum class Sinks : uint8_t { kNone, kFp32, kBf16 };

struct Case {
  std::string name;
  std::vector<int64_t> extend, prefix;  // lengths of each request
  int64_t Hq = 1, Hkv = 1, Lq = 64, Lv = 64;
  bool latent = false;  // V is a view of K's first columns
  DType dtype = DType::kBf16, pool_dtype = DType::kBf16, out = DType::kBf16;
  Pool pool = Pool::kSlots;
  int64_t page_size = 1;
  bool causal = true;
  int64_t window = -1;
  float cap = 0, k_scale = 1, v_scale = 1;
  Sinks sinks = Sinks::kNone;
  float sink_size = 1;  // sinks alternate between + and - of about this size
  float gain = 1;       // of q: raw scores are about gain * N(0, 1)
  Mask mask = Mask::kNone;
  bool mask_prefix = false;  // the mask has a say in the prefix too
  int64_t mask_offset = 0;   // columns in front of the listed prefix
  int64_t temperature = -1;
  bool skip_prefix = false, skip_extend = false, lse = true;
  int64_t trailing = 0;       // rows of q, k, v, out that belong to no request
  int64_t bad_slots = 0;      // entries of kv_indices that name no slot
  DType index = DType::kI32;  // of indptrs and indices; mask_indptr is always int64
  bool fused = false;         // q, k, v are slices of one projection
  int64_t shift = 0;          // bytes by which every tensor's memory is off its 256-byte alignment
  uint64_t seed = 1;
};

const std::vector<Case>& all_cases();
// Null when there is none of that name.
const Case* find_case(const std::string& name);

}  // namespace hyla::extend
