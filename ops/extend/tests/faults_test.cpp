// Inputs on which other kernels are known to have failed, with the right values worked out by hand where that is possible.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "ops/extend/tests/test_targets.h"

namespace hyla::extend {
namespace {

class ExtendFaults : public OnTargets {};

Case single(int64_t rows, int64_t prefix, int64_t D) {
  Case c;
  c.extend = {rows}, c.prefix = {prefix}, c.Hq = 2, c.Hkv = 1, c.Lq = c.Lv = D;
  return c;
}
void fill(const TensorView& t, float value) {
  for (int64_t i = 0; i < t.numel(); ++i) store_float(t.data, t.dtype, i, value);
}

// One key with score s: the LSE is s itself, in natural units, on every path.
TEST_P(ExtendFaults, LseIsNatural) {
  for (const bool in_prefix : {false, true})
    for (const float cap : {0.0f, 50.0f}) {
      Case c = single(1, in_prefix ? 1 : 0, 64);
      c.skip_extend = in_prefix, c.cap = cap;
      CaseData data = make_data(c);
      fill(data.args.q, 0.5f), fill(data.args.k, 0.25f);
      if (in_prefix) fill(data.args.k_buffer, 0.25f);
      const double raw = 64 * 0.5 * 0.25 / 8;
      HYLA_COMPUTE(o, data);
      EXPECT_NEAR(o.lse[0], cap > 0 ? cap * std::tanh(raw / cap) : raw, 1e-5);
    }
}

// exp(s / cap) of both signs overflows long before the cap is reached: the score must saturate.
TEST_P(ExtendFaults, SoftCapSaturates) {
  for (const float cap : {30.0f, 50.0f})
    for (const float score : {4400.0f, 5000.0f, 10000.0f, -10000.0f, 100000.0f, -100000.0f}) {
      Case c = single(2, 3, 64);
      c.cap = cap;
      CaseData data = make_data(c);
      data.args.sm_scale = 1;
      fill(data.args.q, score / 64), fill(data.args.k, 1), fill(data.args.k_buffer, 1);
      HYLA_COMPUTE(o, data);
      const double raw = static_cast<double>(bf16_to_float(float_to_bf16(score / 64))) * 64;
      for (int64_t q = 0; q < 2; ++q) EXPECT_NEAR(o.lse[static_cast<size_t>(q * 2)], cap * std::tanh(raw / cap) + std::log(4.0 + q), 1e-5 * cap);
      for (const double x : o.out) EXPECT_TRUE(std::isfinite(x));
    }
}

// A row without keys: output 0 and LSE -inf; with a sink output 0 and LSE the sink's logit.
TEST_P(ExtendFaults, RowsWithoutKeys) {
  for (const bool sinks : {false, true}) {
    Case c = single(5, 0, 64);
    c.skip_extend = true, c.sinks = sinks ? Sinks::kFp32 : Sinks::kNone;
    CaseData data = make_data(c);
    HYLA_COMPUTE(o, data);
    for (const double x : o.out) EXPECT_EQ(x, 0);
    for (size_t i = 0; i < o.lse.size(); ++i) {
      if (sinks) EXPECT_NEAR(o.lse[i], static_cast<double>(data.args.sinks.as<float>()[i % 2]), 1e-5);
      else EXPECT_EQ(o.lse[i], -INFINITY);
    }
  }
}

// The sink's logit is neither scaled nor capped, and counts in the denominator alone: two equal keys and a sink of the same logit share by three.
TEST_P(ExtendFaults, SinksAreRawLogits) {
  for (const float cap : {0.0f, 2.0f}) {
    Case c = single(1, 1, 64);
    c.sinks = Sinks::kFp32, c.cap = cap;
    CaseData data = make_data(c);
    fill(data.args.q, 1), fill(data.args.k, 0.5f), fill(data.args.k_buffer, 0.5f), fill(data.args.v, 3), fill(data.args.v_buffer, 3);
    const double raw = 64 * 0.5 / 8, score = cap > 0 ? cap * std::tanh(raw / cap) : raw;
    data.args.sinks.as<float>()[0] = static_cast<float>(score), data.args.sinks.as<float>()[1] = static_cast<float>(score + std::log(2.0));
    HYLA_COMPUTE(o, data);
    EXPECT_NEAR(o.out[0], 2, 0.01);
    EXPECT_NEAR(o.out[64], 1.5, 0.01);
    EXPECT_NEAR(o.lse[0], score + std::log(3.0), 1e-5);
    EXPECT_NEAR(o.lse[1], score + std::log(4.0), 1e-5);
  }
}

// fp8 scales act on the prefix once, before the cap, and not on the new tokens.
TEST_P(ExtendFaults, Fp8ScalesActOnceAndOnThePrefixOnly) {
  for (const DType pool : {DType::kE4m3, DType::kE5m2})
    for (const float cap : {0.0f, 4.0f}) {
      Case c = single(1, 1, 64);
      c.pool_dtype = pool, c.k_scale = 0.02f, c.v_scale = 3, c.cap = cap;
      CaseData data = make_data(c);
      fill(data.args.q, 1), fill(data.args.k, 0.25f), fill(data.args.k_buffer, 16), fill(data.args.v, 1), fill(data.args.v_buffer, 2);
      const auto capped = [&](double s) { return cap > 0 ? cap * std::tanh(s / cap) : s; };
      const double prefix = capped(64 * 16 * 0.02 / 8), own = capped(64 * 0.25 / 8), weight = 1 / (1 + std::exp(own - prefix));
      HYLA_COMPUTE(o, data);
      EXPECT_NEAR(o.out[0], weight * 6 + (1 - weight) * 1, 0.02);
      EXPECT_NEAR(o.lse[0], std::log(std::exp(prefix) + std::exp(own)), 1e-5);
    }
}

// Temperature multiplies after the cap: log2(p) / log2(L) for positions p > L.
TEST_P(ExtendFaults, TemperatureByPosition) {
  Case c = single(40, 0, 64);
  c.temperature = 8, c.cap = 3;
  CaseData data = make_data(c);
  fill(data.args.q, 1), fill(data.args.k, 0.5f);
  HYLA_COMPUTE(o, data);
  for (int64_t p = 0; p < 40; ++p) {
    const double factor = p > 8 ? std::log2(static_cast<double>(p)) / 3 : 1;
    EXPECT_NEAR(o.lse[static_cast<size_t>(p * 2)], 3 * std::tanh(4.0 / 3) * factor + std::log(p + 1.0), 2e-5) << "position " << p;
  }
}

// A mask may let a query see later new tokens, past any causal tile.
TEST_P(ExtendFaults, MasksReachPastTheDiagonal) {
  for (const bool causal : {true, false}) {
    Case c = single(160, 37, 64);
    c.mask = Mask::kAll, c.causal = causal;
    CaseData data = make_data(c);
    fill(data.args.q, 0);
    // Only the last new token has a value: every row must find it.
    fill(data.args.v, 0), fill(data.args.v_buffer, 0);
    for (int64_t d = 0; d < 64; ++d) data.args.v.as<uint16_t>()[159 * 64 + d] = float_to_bf16(197);
    HYLA_COMPUTE(o, data);
    for (const double x : o.out) ASSERT_NEAR(x, 1, 0.01);
  }
}

TEST_P(ExtendFaults, BatchOf65536) {
  for (const int64_t batch : {65535, 65536, 70000}) {
    Case c;
    c.extend.assign(static_cast<size_t>(batch), 1), c.prefix.assign(static_cast<size_t>(batch), 0), c.Hq = 2, c.Hkv = 1, c.Lq = c.Lv = 64;
    for (size_t i = 0; i < c.prefix.size(); i += 1000) c.prefix[i] = 3;
    const CaseData data = make_data(c);
    HYLA_COMPUTE(o, data);
    std::string problem;
    const Errors e = compare(data.args, o.out_bytes, o.lse_bytes, reference(data.args), problem);
    EXPECT_EQ(problem, "");
    EXPECT_LE(e.rel_l2, 0.004);
  }
}

HYLA_INSTANTIATE(ExtendFaults);

// Offsets past 2^31 elements in every tensor, over memory of which only the touched pages exist.
class Sparse {
 public:
  explicit Sparse(size_t bytes) : bytes_(bytes), data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Sparse() {
    if (ok()) munmap(data_, bytes_);
  }
  bool ok() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

TEST(ExtendCpu, OffsetsPast32Bits) {
  Case c = single(6, 5, 64);
  const CaseData data = make_data(c);
  const Outputs dense = compute(data, {"cpu", 0}, *testing::backend_named("cpu"));
  constexpr int64_t kStride = int64_t{1} << 30;  // elements between tokens
  const int64_t slots = data.args.k_buffer.shape[0];
  std::vector<std::unique_ptr<Sparse>> memory;
  Args a = data.args;
  for (TensorView* t : {&a.q, &a.k, &a.v, &a.k_buffer, &a.v_buffer, &a.out}) {
    TensorView wide = *t;
    wide.stride[0] = kStride;
    memory.push_back(std::make_unique<Sparse>(static_cast<size_t>(wide.shape[0] * kStride * 2)));
    if (!memory.back()->ok()) GTEST_SKIP() << "no address space for sparse tensors";
    wide.data = memory.back()->data();
    for (int64_t row = 0; row < wide.shape[0]; ++row) copy_row(*t, row, wide, row);
    *t = wide;
  }
  ASSERT_GT(slots * kStride, int64_t{1} << 32);
  const Plan p = plan(a, find_device("cpu").value()).value();
  testing::Guarded workspace(*testing::backend_named("cpu"), p.workspace_bytes);
  const Status status = run(p, a, {workspace.data(), p.workspace_bytes});
  ASSERT_TRUE(status.ok()) << status.message();
  for (int64_t row = 0; row < 6; ++row)
    EXPECT_EQ(std::memcmp(a.out.as<uint16_t>() + row * kStride, dense.out_bytes.data() + row * 256, 256), 0) << "row " << row;
}

}  // namespace
}  // namespace hyla::extend
