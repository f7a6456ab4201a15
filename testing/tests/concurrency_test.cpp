// One plan run from several threads at once, each with its own outputs and workspace: the same bits as one run alone.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "hyla/extend.h"
#include "hyla/kda.h"
#include "testing/random.h"

namespace hyla::testing {
namespace {

constexpr int kThreads = 4;

std::vector<float> values(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(count);
  for (float& value : x) value = static_cast<float>(random.normal());
  return x;
}

// `with_out(out)` gives the arguments that write to `out`.
template <class Plan, class WithOut, class Run>
void expect_the_same_bits(const Plan& plan, size_t out_size, WithOut with_out, Run run) {
  std::vector<std::vector<float>> outs(kThreads + 1, std::vector<float>(out_size));
  std::vector<Status> statuses(kThreads + 1);
  const auto one = [&](int i) {
    const size_t bytes = (plan.workspace_bytes + 511) / 256 * 256;
    const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(256, bytes), std::free);
    statuses[i] = run(plan, with_out(outs[i]), Workspace{workspace.get(), bytes});
  };
  one(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(one, i);
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i <= kThreads; ++i) {
    ASSERT_TRUE(statuses[i].ok()) << statuses[i].message();
    EXPECT_EQ(std::memcmp(outs[i].data(), outs[kThreads].data(), out_size * sizeof(float)), 0) << "thread " << i;
  }
}

TEST(Concurrency, KdaPlanOnSeveralThreads) {
  constexpr int64_t T = 150, H = 3, D = 64;
  auto q = values(T * H * D, 1), k = values(T * H * D, 2), v = values(T * H * D, 3), g = values(T * H * D, 4), beta = values(T * H, 5);
  const auto arguments = [&](std::vector<float>& out) {
    kda::Args a;
    const auto view = [](std::vector<float>& x) { return contiguous(x.data(), DType::kFp32, {1, T, H, D}); };
    a.q = view(q), a.k = view(k), a.v = view(v), a.g = view(g), a.out = view(out);
    a.beta = contiguous(beta.data(), DType::kFp32, {1, T, H});
    a.beta_is_logits = true;
    return a;
  };
  std::vector<float> out(T * H * D);
  const auto plan = kda::plan(arguments(out), query_device({}).value());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  expect_the_same_bits(plan.value(), out.size(), arguments, [](const auto& p, const kda::Args& a, Workspace w) { return kda::run(p, a, w); });
}

TEST(Concurrency, ExtendPlanOnSeveralThreads) {
  constexpr int64_t n = 90, prefix = 70, H = 4, D = 64;
  auto q = values(n * H * D, 1), k = values(n * H * D, 2), v = values(n * H * D, 3), pool = values(prefix * H * D, 4);
  std::vector<int32_t> rows = {0, n}, keys = {0, prefix}, slots(prefix);
  for (int32_t i = 0; i < prefix; ++i) slots[i] = static_cast<int32_t>(i * 3 % prefix);
  const auto arguments = [&](std::vector<float>& out) {
    extend::Args a;
    const auto view = [](std::vector<float>& x) { return contiguous(x.data(), DType::kFp32, {static_cast<int64_t>(x.size()) / (H * D), H, D}); };
    a.q = view(q), a.k = view(k), a.v = view(v), a.k_buffer = a.v_buffer = view(pool), a.out = view(out);
    a.qo_indptr = contiguous(rows.data(), DType::kI32, {2}), a.kv_indptr = contiguous(keys.data(), DType::kI32, {2});
    a.kv_indices = contiguous(slots.data(), DType::kI32, {prefix});
    return a;
  };
  std::vector<float> out(n * H * D);
  const auto plan = extend::plan(arguments(out), query_device({}).value());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  expect_the_same_bits(plan.value(), out.size(), arguments, [](const auto& p, const extend::Args& a, Workspace w) { return extend::run(p, a, w); });
}

}  // namespace
}  // namespace hyla::testing
