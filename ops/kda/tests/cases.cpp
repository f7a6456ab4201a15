#include "ops/kda/tests/cases.h"

namespace hyla::kda {
namespace {

Case base(std::string name, std::vector<int64_t> lengths) {
  Case c;
  c.name = std::move(name), c.lengths = std::move(lengths);
  return c;
}

std::vector<Case> make_cases() {
  std::vector<Case> list;
  const auto add = [&](std::string name, std::vector<int64_t> lengths, auto change) {
    Case c = base(std::move(name), std::move(lengths));
    c.seed = list.size() + 1;
    change(c);
    list.push_back(std::move(c));
  };
  const auto same = [](Case&) {};

  for (int64_t T : {1, 2, 15, 16, 17, 63, 64, 65, 100, 128, 129, 1000}) {
    add("length_" + std::to_string(T), {T}, [](Case& c) { c.H = c.HV = 2, c.dense = true; });
    add("length64_" + std::to_string(T), {T}, [](Case& c) { c.D = 64, c.dense = true; });
  }
  add("dense_batch", {70, 70, 70}, [](Case& c) { c.dense = true, c.H = c.HV = 2; });
  add("packed_tails", {65, 63, 1, 16, 17, 128, 33}, [](Case& c) { c.checkpoints = Checkpoints::kEvery64; });
  add("packed_empty", {0, 64, 0, 0, 129, 1, 0}, [](Case& c) { c.checkpoints = Checkpoints::kEvery64, c.index = DType::kI32; });
  add("packed_trailing", {640, 783}, [](Case& c) { c.trailing = 77; });
  add("only_empty", {0, 0}, [](Case& c) { c.trailing = 5; });
  add("many_short", std::vector<int64_t>(40, 3), same);
  add("long", {1500}, [](Case& c) { c.dense = true; });

  struct Named {
    const char* name;
    Profile profile;
  };
  const Named profiles[] = {{"standard", Profile::kStandard}, {"mixed", Profile::kMixed},        {"weak", Profile::kWeak},        {"strong", Profile::kStrong},
                            {"spikes", Profile::kSpikes},     {"zero_keys", Profile::kZeroKeys}, {"repeated", Profile::kRepeated}};
  for (const auto& [name, profile] : profiles) {
    add(std::string("bounded_") + name, {300}, [&](Case& c) { c.profile = profile; });
    add(std::string("unbounded_") + name, {300}, [&](Case& c) { c.profile = profile, c.gate = Gate::kUnbounded; });
    add(std::string("given_") + name, {300}, [&](Case& c) { c.profile = profile, c.gate = Gate::kGiven, c.g = DType::kFp32; });
  }
  add("given_bf16", {130}, [](Case& c) { c.gate = Gate::kGiven; });
  add("no_A_log", {130}, [](Case& c) { c.A_log = false; });
  add("no_dt_bias", {130}, [](Case& c) { c.dt_bias = false; });
  add("flat_dt_bias", {130}, [](Case& c) { c.H = c.HV = 2, c.flat_bias = true; });
  add("gate_fp32", {130}, [](Case& c) { c.g = DType::kFp32, c.beta = DType::kFp32; });
  add("beta_given", {130}, [](Case& c) { c.logits = false; });
  add("beta_doubled", {130}, [](Case& c) { c.doubled = true; });
  add("no_norm", {130}, [](Case& c) { c.norm = false; });
  add("own_scale", {130}, [](Case& c) { c.scale = 0.25f; });
  add("large_values", {130}, [](Case& c) { c.value_scale = 1e6f; });
  add("small_values", {130}, [](Case& c) { c.value_scale = 1e-6f, c.state = State::kNone; });
  add("grouped_1_4", {100}, [](Case& c) { c.HV = 4; });
  add("grouped_2_4_packed", {33, 0, 130}, [](Case& c) { c.H = 2, c.HV = 4, c.checkpoints = Checkpoints::kEvery64; });

  add("no_initial", {130}, [](Case& c) { c.state = State::kNone; });
  add("no_states", {130}, [](Case& c) { c.state = State::kNone, c.final_state = false; });
  add("no_final", {130}, [](Case& c) { c.final_state = false; });
  add("v_first", {130, 64}, [](Case& c) { c.v_first = true, c.checkpoints = Checkpoints::kEvery64; });
  add("state_bf16", {130}, [](Case& c) { c.state_dtype = DType::kBf16; });
  add("state_bf16_v_first", {130}, [](Case& c) { c.state_dtype = DType::kBf16, c.v_first = true, c.D = 64; });
  add("flags", {65, 64, 3, 0}, [](Case& c) { c.flags = true; });
  add("pool", {65, 1, 130}, [](Case& c) { c.state = State::kPool, c.H = c.HV = 2; });
  add("pool_in_place", {65, 1, 130, 0}, [](Case& c) { c.state = State::kPoolInPlace, c.v_first = true, c.index = DType::kI32; });
  add("pool_skipped", {65, 20, 130, 7}, [](Case& c) { c.state = State::kPoolInPlace, c.skipped = true, c.lowest = 1, c.flags = true; });
  add("pool_bf16_skipped", {65, 20, 130, 7}, [](Case& c) { c.state = State::kPoolInPlace, c.skipped = true, c.state_dtype = DType::kBf16; });
  add("decode", std::vector<int64_t>(9, 1), [](Case& c) { c.state = State::kPoolInPlace, c.HV = 2; });
  add("checkpoints_bf16", {200, 64}, [](Case& c) { c.checkpoints = Checkpoints::kEvery64, c.checkpoint_dtype = DType::kBf16; });
  add("checkpoints_dense", {200, 200}, [](Case& c) { c.dense = true, c.checkpoints = Checkpoints::kEvery64; });
  add("checkpoints_offsets", {200, 64, 30}, [](Case& c) { c.checkpoints = Checkpoints::kOffsets; });
  add("checkpoints_scattered", {200, 64, 30}, [](Case& c) { c.checkpoints = Checkpoints::kScattered, c.lowest = 1, c.state = State::kPool; });

  add("fused_slices", {100, 30}, [](Case& c) { c.layout = Layout::kFused, c.H = c.HV = 2; });
  add("shifted", {70}, [](Case& c) { c.layout = Layout::kShifted; });
  add("fp16", {130}, [](Case& c) { c.dtype = c.out = DType::kFp16; });
  add("fp32", {130}, [](Case& c) { c.dtype = c.out = DType::kFp32; });
  add("out_fp32", {130}, [](Case& c) { c.out = DType::kFp32; });
  return list;
}

}  // namespace

const std::vector<Case>& all_cases() {
  static const std::vector<Case> list = make_cases();
  return list;
}

const Case* find_case(const std::string& name) {
  for (const Case& c : all_cases())
    if (c.name == name) return &c;
  return nullptr;
}

}  // namespace hyla::kda
