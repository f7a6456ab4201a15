// What must hold between runs: pieces equal the whole, batch mates do not matter, checkpoints are the states of prefixes, NaN stays where it is.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/numeric.h"
#include "ops/kda/tests/case_runner.h"
#include "testing/backends.h"
#include "testing/random.h"

namespace hyla::kda {
namespace {

double rel_l2(const std::vector<double>& got, const std::vector<double>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) error += (got[i] - want[i]) * (got[i] - want[i]), norm += want[i] * want[i];
  return std::sqrt(error / norm);
}

struct Setting {
  testing::Backend* backend;
  std::string variant;
};
std::vector<Setting> settings() {
  std::vector<Setting> list;
  for (testing::Backend* backend : testing::present_backends())
    for (const std::string& variant : variants())
      if ((variant == "cpu") == (backend->name() == "cpu")) list.push_back({backend, variant});
  return list;
}

class KdaProperties : public ::testing::TestWithParam<Setting> {
 protected:
  // Tokens [begin, end) of a dense single-sequence case, starting from `state` (null: the case's own).
  Outputs run_tokens(const CaseData& data, int64_t begin, int64_t end, const TensorView* state) {
    CaseData part{data.args, data.buffers};
    part.buffers.clear();
    part.buffers.reserve(32);
    Args& a = part.args;
    const auto copy = [&](const TensorView& t) {
      part.buffers.emplace_back(t.as<uint8_t>(), t.as<uint8_t>() + t.numel() * size_of(t.dtype));
      TensorView moved = t;
      moved.data = part.buffers.back().data();
      return moved;
    };
    for (TensorView Args::*member : {&Args::q, &Args::k, &Args::v, &Args::g, &Args::beta, &Args::out}) {
      TensorView t = data.args.*member;
      const int64_t row = t.stride[1] * size_of(t.dtype);
      t.data = t.as<uint8_t>() + begin * row;
      t.shape[1] = end - begin;
      TensorView moved = copy(t);
      moved.stride = contiguous(nullptr, t.dtype, moved.shape.data(), moved.rank).stride;
      a.*member = moved;
    }
    for (TensorView Args::*member : {&Args::A_log, &Args::dt_bias, &Args::final_state})
      if ((data.args.*member).defined()) a.*member = copy(data.args.*member);
    a.initial_state = copy(state != nullptr ? *state : data.args.initial_state);
    if (data.args.checkpoints.defined()) a.checkpoints = copy(data.args.checkpoints);
    return compute(part, {GetParam().variant, 0}, *GetParam().backend);
  }
};

Case one_sequence(int64_t T, Profile profile) {
  Case c;
  c.name = "one", c.lengths = {T}, c.dense = true, c.H = c.HV = 2, c.profile = profile, c.checkpoints = Checkpoints::kEvery64;
  return c;
}

TEST_P(KdaProperties, RandomPiecesEqualOneShot) {
  testing::Random random(7);
  for (const Profile profile : {Profile::kStandard, Profile::kWeak}) {
    const Case c = one_sequence(333, profile);
    const CaseData data = make_data(c);
    const Outputs whole = run_tokens(data, 0, 333, nullptr);
    if (whole.status.code() == Code::kUnsupported) GTEST_SKIP() << whole.status.message();
    ASSERT_TRUE(whole.status.ok()) << whole.status.message();
    std::vector<double> pieces;
    TensorView state;
    Outputs last;
    for (int64_t at = 0; at < 333;) {
      const int64_t end = std::min<int64_t>(333, at + 1 + random.below(120));
      Outputs part = run_tokens(data, at, end, at == 0 ? nullptr : &state);
      ASSERT_TRUE(part.status.ok()) << part.status.message();
      const auto values = values_of(part.host.args.out);
      pieces.insert(pieces.end(), values.begin(), values.end());
      last = std::move(part), state = last.host.args.final_state, at = end;
    }
    EXPECT_LT(rel_l2(pieces, values_of(whole.host.args.out)), 6e-3) << whole.plan;
    EXPECT_LT(rel_l2(values_of(last.host.args.final_state), values_of(whole.host.args.final_state)), 5e-3) << whole.plan;
  }
}

TEST_P(KdaProperties, CheckpointIsTheFinalStateOfItsPrefix) {
  const CaseData data = make_data(one_sequence(200, Profile::kMixed));
  const Outputs whole = run_tokens(data, 0, 200, nullptr);
  if (whole.status.code() == Code::kUnsupported) GTEST_SKIP() << whole.status.message();
  ASSERT_TRUE(whole.status.ok()) << whole.status.message();
  for (int64_t p = 0; p < 3; ++p) {
    const Outputs prefix = run_tokens(data, 0, 64 * (p + 1), nullptr);
    ASSERT_TRUE(prefix.status.ok()) << prefix.status.message();
    const TensorView &all = whole.host.args.checkpoints, &state = prefix.host.args.final_state;
    const size_t bytes = static_cast<size_t>(state.numel() * size_of(state.dtype));
    EXPECT_EQ(std::memcmp(all.as<uint8_t>() + static_cast<size_t>(p) * bytes, state.data, bytes), 0) << "checkpoint " << p << ": " << whole.plan;
  }
}

TEST_P(KdaProperties, BatchMatesDoNotChangeBits) {
  Case c;
  c.name = "pack", c.lengths = {70, 129, 3, 64}, c.H = c.HV = 2;
  CaseData data = make_data(c);
  const Outputs whole = compute(data, {GetParam().variant, 0}, *GetParam().backend);
  if (whole.status.code() == Code::kUnsupported) GTEST_SKIP() << whole.status.message();
  ASSERT_TRUE(whole.status.ok()) << whole.status.message();
  // NaN in the second sequence alone: the others keep their bits.
  const Args& a = data.args;
  for (int64_t t = 70; t < 199; ++t)
    for (int64_t d = 0; d < 2 * 128; ++d) store_float(a.k.data, a.k.dtype, t * a.k.stride[1] + d, std::numeric_limits<float>::quiet_NaN());
  const Outputs poisoned = compute(data, {GetParam().variant, 0}, *GetParam().backend);
  ASSERT_TRUE(poisoned.status.ok()) << poisoned.status.message();
  const std::vector<double> before = values_of(whole.host.args.out), after = values_of(poisoned.host.args.out);
  for (size_t i = 0; i < before.size(); ++i) {
    const size_t token = i / (2 * 128);
    if (token < 70 || token >= 199) {
      ASSERT_EQ(before[i], after[i]) << "token " << token;
    }
  }
  const std::vector<double> s0 = values_of(whole.host.args.final_state), s1 = values_of(poisoned.host.args.final_state);
  const size_t size = 2 * 128 * 128;
  for (size_t i = 0; i < s0.size(); ++i)
    if (i / size != 1) {
      ASSERT_EQ(s0[i], s1[i]) << "state of sequence " << i / size;
    }
}

TEST_P(KdaProperties, HugeRatesStayFinite) {
  for (const Gate gate : {Gate::kBounded, Gate::kUnbounded}) {
    Case c = one_sequence(70, Profile::kStandard);
    c.gate = gate;
    CaseData data = make_data(c);
    data.args.A_log.as<float>()[0] = 40.0f, data.args.A_log.as<float>()[1] = 100.0f;
    const Outputs got = compute(data, {GetParam().variant, 0}, *GetParam().backend);
    if (got.status.code() == Code::kUnsupported) GTEST_SKIP() << got.status.message();
    ASSERT_TRUE(got.status.ok()) << got.status.message();
    EXPECT_LT(rel_l2(values_of(got.host.args.out), reference(data.args).out), 6e-3) << got.plan;
  }
}

INSTANTIATE_TEST_SUITE_P(Kda, KdaProperties, ::testing::ValuesIn(settings()),
                         [](const auto& info) { return info.param.backend->name() + "_" + info.param.variant; });

}  // namespace
}  // namespace hyla::kda
