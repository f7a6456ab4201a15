#include <hyla/kda.h>

#include <cstdio>
#include <vector>

int main() {
  const int64_t T = 256, H = 4, D = 128;
  std::vector<float> x(T * H * D, 0.1f), beta(T * H, 0.5f), out(T * H * D);
  hyla::kda::Args args;
  args.q = args.k = args.v = args.g = hyla::contiguous(x.data(), hyla::DType::kFp32, {1, T, H, D});
  args.beta = hyla::contiguous(beta.data(), hyla::DType::kFp32, {1, T, H});
  args.out = hyla::contiguous(out.data(), hyla::DType::kFp32, {1, T, H, D});
  const auto plan = hyla::kda::plan(args, hyla::query_device({}).value());
  if (!plan.ok()) return std::puts(plan.status().message().c_str()), 1;
  std::vector<char> memory(plan->workspace_bytes + 256);
  void* workspace = memory.data() + (256 - reinterpret_cast<uintptr_t>(memory.data()) % 256) % 256;
  const hyla::Status status = hyla::kda::run(plan.value(), args, {workspace, plan->workspace_bytes});
  std::printf("%s\n%s, out[0] = %g\n", plan->str().c_str(), status.message().c_str(), out[0]);
  return status.ok() ? 0 : 1;
}
