// Sizes of a problem as people and result files name them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hyla/extend.h"
#include "hyla/kda.h"

namespace hyla::bench {

struct KdaShape {
  int64_t B = 1, T = 1024, H = 4, HV = 0, D = 128;  // HV 0: H; D = K = V
  std::vector<int64_t> seqlens;                     // packed sequences: B is 1 and T their sum
  kda::Gate gate = kda::Gate::kBounded;
  bool bf16_state = false, checkpoints = false;
  bool operator==(const KdaShape&) const = default;
};

struct ExtendShape {
  int64_t batch = 1, n = 1024, prefix = 0, Hq = 32, Hkv = 8, Lq = 128, Lv = 0, page_size = 1, window = -1;  // n and prefix of each request; Lv 0: Lq
  DType dtype = DType::kBf16;
  bool sinks = false, latent = false;  // latent: V is a view of K's first Lv columns
  double cap = 0;
  bool operator==(const ExtendShape&) const = default;
};

// "B=1,T=8192,H=4"; keys as in the struct, "seqlens=100+200+4096", "gate=unbounded", "state=bf16", "checkpoints=64". Errors name the key.
Result<KdaShape> parse_kda_shape(const std::string& text);
// "n=1024,prefix=4096,Hq=32,Hkv=8,D=128"; D sets Lq and Lv; "window=1024", "sinks=1", "latent=1", "page_size=16", "dtype=fp16", "cap=50".
Result<ExtendShape> parse_extend_shape(const std::string& text);

std::string name_of(const KdaShape& shape);
std::string name_of(const ExtendShape& shape);

// The "shape" of a row of a result file.
nlohmann::json to_json(const KdaShape& shape);
nlohmann::json to_json(const ExtendShape& shape);

inline const char* op_name(const KdaShape&) { return "kda"; }
inline const char* op_name(const ExtendShape&) { return "extend"; }

}  // namespace hyla::bench
