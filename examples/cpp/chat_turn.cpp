// A second turn of a conversation on the CPU backend: one KDA layer resumes from the state after the first turn, one attention layer reads the first turn's
// keys from a pool of slots in any order. Both must give what one pass over the whole conversation gives.
#include <hyla/extend.h>
#include <hyla/kda.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

using hyla::contiguous;
using hyla::DType;
using hyla::TensorView;

constexpr int64_t kFirst = 130, kSecond = 40, kAll = kFirst + kSecond, kHeads = 2, kDim = 64;
constexpr int64_t kRow = kHeads * kDim;

std::vector<float> noise(size_t n, unsigned seed, float size) {
  std::vector<float> x(n);
  for (float& value : x) {
    seed = seed * 1664525u + 1013904223u;
    value = size * (static_cast<float>(seed >> 8) / 8388608.0f - 1.0f);
  }
  return x;
}

TensorView rows(std::vector<float>& x, int64_t from, int64_t count) { return contiguous(x.data() + from * kRow, DType::kFp32, {1, count, kHeads, kDim}); }
TensorView packed(std::vector<float>& x, int64_t from, int64_t count) { return contiguous(x.data() + from * kRow, DType::kFp32, {count, kHeads, kDim}); }
TensorView ints(std::vector<int32_t>& x) { return contiguous(x.data(), DType::kI32, {static_cast<int64_t>(x.size())}); }

void check(const hyla::Status& status) {
  if (status.ok()) return;
  std::printf("%s\n", status.message().c_str());
  std::exit(1);
}

// Plans and runs one call of either operation with a workspace of its own.
template <class Args, class Plan, class Run>
void compute(const Args& args, Plan plan_for, Run run) {
  const auto caps = hyla::query_device({});
  check(caps.status());
  const auto plan = plan_for(args, caps.value());
  check(plan.status());
  std::printf("%s\n", plan->str().c_str());
  const size_t bytes = (plan->workspace_bytes + 511) / 256 * 256;
  const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(256, bytes), std::free);
  check(run(plan.value(), args, hyla::Workspace{workspace.get(), bytes}));
}
void compute(const hyla::kda::Args& args) {
  compute(
      args, [](const auto& a, const auto& c) { return hyla::kda::plan(a, c); }, [](const auto& p, const auto& a, auto w) { return hyla::kda::run(p, a, w); });
}
void compute(const hyla::extend::Args& args) {
  compute(
      args, [](const auto& a, const auto& c) { return hyla::extend::plan(a, c); },
      [](const auto& p, const auto& a, auto w) { return hyla::extend::run(p, a, w); });
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float worst = 0;
  for (int64_t i = kFirst * kRow; i < kAll * kRow; ++i) worst = std::fmax(worst, std::fabs(a[i] - b[i]));
  return worst;
}

}  // namespace

int main() {
  auto q = noise(kAll * kRow, 1, 1), k = noise(kAll * kRow, 2, 1), v = noise(kAll * kRow, 3, 1), g = noise(kAll * kRow, 4, 2);
  auto beta = noise(kAll * kHeads, 5, 1);
  std::vector<float> whole(kAll * kRow), turns(kAll * kRow), state(kHeads * kDim * kDim);

  const auto layer = [&](int64_t from, int64_t count, std::vector<float>& out) {
    hyla::kda::Args a;
    a.q = rows(q, from, count), a.k = rows(k, from, count), a.v = rows(v, from, count), a.g = rows(g, from, count), a.out = rows(out, from, count);
    a.beta = contiguous(beta.data() + from * kHeads, DType::kFp32, {1, count, kHeads});
    a.beta_is_logits = true;
    return a;
  };
  compute(layer(0, kAll, whole));
  const TensorView kept = contiguous(state.data(), DType::kFp32, {1, kHeads, kDim, kDim});
  hyla::kda::Args first = layer(0, kFirst, turns), second = layer(kFirst, kSecond, turns);
  first.final_state = second.initial_state = kept;
  compute(first);
  compute(second);
  const float kda = largest_difference(whole, turns);

  constexpr int64_t kSlots = 256;
  std::vector<float> pool_k(kSlots * kRow), pool_v(kSlots * kRow);
  std::vector<int32_t> none = {0, 0}, all = {0, kAll}, two = {0, kSecond}, prefix = {0, kFirst}, slots;
  for (int64_t t = 0; t < kFirst; ++t) {  // wherever the allocator had room
    const int64_t slot = t * 101 % kSlots;
    slots.push_back(static_cast<int32_t>(slot));
    std::copy_n(&k[t * kRow], kRow, &pool_k[slot * kRow]);
    std::copy_n(&v[t * kRow], kRow, &pool_v[slot * kRow]);
  }
  const auto attention = [&](int64_t from, int64_t count, std::vector<int32_t>& new_rows, std::vector<int32_t>& old_rows, std::vector<float>& out) {
    hyla::extend::Args a;
    a.q = packed(q, from, count), a.k = packed(k, from, count), a.v = packed(v, from, count), a.out = packed(out, from, count);
    a.k_buffer = packed(pool_k, 0, kSlots), a.v_buffer = packed(pool_v, 0, kSlots);
    a.qo_indptr = ints(new_rows), a.kv_indptr = ints(old_rows), a.kv_indices = ints(slots);
    return a;
  };
  compute(attention(0, kAll, all, none, whole));
  compute(attention(kFirst, kSecond, two, prefix, turns));
  const float extend = largest_difference(whole, turns);

  std::printf("largest difference between two turns and one pass: KDA %g, attention %g\n", kda, extend);
  return kda < 1e-5f && extend < 1e-5f ? 0 : 1;
}
