// Bad requests: each is refused with a message that names the argument, and nothing is written.
#include <gtest/gtest.h>

#include <functional>

#include "hyla/kda.h"
#include "ops/kda/tests/case_data.h"

namespace hyla::kda {
namespace {

Case plain() {
  Case c;
  c.name = "plain", c.lengths = {70, 20}, c.H = 2, c.HV = 4, c.checkpoints = Checkpoints::kEvery64;
  return c;
}

struct Bad {
  const char* argument;
  std::function<void(Args&)> spoil;
};

const std::vector<Bad>& bad_requests() {
  static int64_t other[4096] = {};
  static const std::vector<Bad> list{
      {"q", [](Args& a) { a.q = {}; }},
      {"q.dtype", [](Args& a) { a.q.dtype = DType::kI32; }},
      {"q.data", [](Args& a) { a.q.data = nullptr; }},
      {"q.stride[3]", [](Args& a) { a.q.stride[3] = 2; }},
      {"k.shape[2]", [](Args& a) { a.k.shape[2] = 1; }},
      {"k.shape[1]", [](Args& a) { a.k.shape[1] -= 1; }},
      {"k.dtype", [](Args& a) { a.k.dtype = DType::kFp16; }},
      {"v.shape[2]", [](Args& a) { a.v.shape[2] = 3; }},
      {"v.device",
       [](Args& a) {
         a.v.device = {DeviceKind::kCuda, 0};
       }},
      {"g.dtype", [](Args& a) { a.g.dtype = DType::kFp16; }},
      {"g.shape[2]", [](Args& a) { a.g.shape[2] = 2; }},
      {"beta", [](Args& a) { a.beta.rank = 2; }},
      {"beta.dtype", [](Args& a) { a.beta.dtype = DType::kI32; }},
      {"K, V",
       [](Args& a) {
         a.q.shape[3] = a.k.shape[3] = a.g.shape[3] = 96;
         a.initial_state = a.final_state = a.checkpoints = a.dt_bias = {};
       }},
      {"lower_bound", [](Args& a) { a.lower_bound = 0.0f; }},
      {"lower_bound", [](Args& a) { a.lower_bound = -5.5f; }},
      {"lower_bound", [](Args& a) { a.lower_bound = std::numeric_limits<float>::quiet_NaN(); }},
      {"A_log", [](Args& a) { a.gate = Gate::kUnbounded, a.A_log = {}; }},
      {"A_log", [](Args& a) { a.gate = Gate::kGiven; }},
      {"A_log.shape[0]", [](Args& a) { a.A_log.shape[0] = 2; }},
      {"dt_bias", [](Args& a) { a.dt_bias.shape[1] = 64; }},
      {"dt_bias.dtype", [](Args& a) { a.dt_bias.dtype = DType::kBf16; }},
      {"cu_seqlens.dtype", [](Args& a) { a.cu_seqlens.dtype = DType::kFp32; }},
      {"initial_state.shape[0]", [](Args& a) { a.initial_state.shape[0] = 1; }},
      {"initial_state.shape[1]", [](Args& a) { a.initial_state.shape[1] = 2; }},
      {"initial_state.dtype", [](Args& a) { a.initial_state.dtype = DType::kFp16; }},
      {"final_state.stride", [](Args& a) { a.final_state.stride[0] = 0; }},
      {"final_state", [](Args& a) { a.final_state.data = a.v.data; }},
      {"state_indices.shape[0]", [](Args& a) { a.state_indices = contiguous(other, DType::kI64, {5}); }},
      {"state_indices", [](Args& a) { a.state_indices = contiguous(other, DType::kI64, {2}), a.initial_state = a.final_state = {}; }},
      {"has_initial_state.dtype", [](Args& a) { a.has_initial_state = contiguous(other, DType::kI64, {2}); }},
      {"lowest_valid_slot", [](Args& a) { a.lowest_valid_slot = -1; }},
      {"checkpoints",
       [](Args& a) {
         a.checkpoints = {}, a.checkpoint_offsets = contiguous(other, DType::kI64, {2, 1});
       }},
      {"checkpoints.shape[0]",
       [](Args& a) {
         a.checkpoint_offsets = contiguous(other, DType::kI64, {2, 9});
       }},
      {"out.dtype", [](Args& a) { a.out.dtype = DType::kFp16; }},
      {"out", [](Args& a) { a.out.data = a.v.data; }},
      {"out.shape[3]", [](Args& a) { a.out.shape[3] = 64; }},
      {"scale", [](Args& a) { a.scale = std::numeric_limits<float>::infinity(); }},
      {"max_seqlen", [](Args& a) { a.max_seqlen = -3; }},
      {"q.shape[1]", [](Args& a) { a.q.shape[1] = -1; }},
      {"q", [](Args& a) { a.q.shape[0] = a.q.shape[1] = a.q.shape[2] = int64_t{1} << 40; }},
  };
  return list;
}

TEST(KdaProblem, RefusesBadRequestsByName) {
  for (const Bad& bad : bad_requests()) {
    CaseData data = make_data(plain());
    const auto before = data.buffers;
    bad.spoil(data.args);
    const Status status = make_problem(data.args).status();
    ASSERT_FALSE(status.ok()) << bad.argument;
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
    EXPECT_EQ(status.argument().rfind(bad.argument, 0), 0u) << "wanted " << bad.argument << ": " << status.message();
    EXPECT_FALSE(status.expected().empty()) << status.message();
    EXPECT_FALSE(status.got().empty()) << status.message();
    EXPECT_FALSE(can_run(data.args, find_device("cpu").value()).ok());
    EXPECT_EQ(before, data.buffers);
  }
}

TEST(KdaProblem, CheckContentsNamesTheIndex) {
  CaseData data = make_data(plain());
  EXPECT_TRUE(check_contents(data.args).ok()) << check_contents(data.args).message();
  data.args.cu_seqlens.as<int64_t>()[1] = 95;
  EXPECT_EQ(check_contents(data.args).argument(), "cu_seqlens[1]");  // past the tokens
  data.args.cu_seqlens.as<int64_t>()[1] = 70;
  data.args.cu_seqlens.as<int64_t>()[2] = 60;
  EXPECT_EQ(check_contents(data.args).argument(), "cu_seqlens[2]") << check_contents(data.args).message();  // falls
}

TEST(KdaRun, RefusesOtherProblemsAndSmallWorkspaces) {
  CaseData data = make_data(plain());
  const auto before = data.buffers;
  const auto caps = find_device("cpu").value();
  const Plan made = plan(data.args, caps).value();
  ASSERT_GT(made.workspace_bytes, 0u);
  std::vector<uint8_t> memory(made.workspace_bytes + 512);
  auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256);
  EXPECT_EQ(run(made, data.args, {nullptr, 0}).code(), Code::kWorkspace);
  EXPECT_EQ(run(made, data.args, {aligned, made.workspace_bytes - 1}).code(), Code::kWorkspace);
  EXPECT_EQ(run(made, data.args, {aligned + 16, made.workspace_bytes}).code(), Code::kWorkspace);
  Args other = data.args;
  other.beta_doubled = true;
  const Status mismatch = run(made, other, {aligned, made.workspace_bytes});
  EXPECT_EQ(mismatch.code(), Code::kPlanMismatch);
  EXPECT_EQ(mismatch.argument(), "beta_doubled");
  EXPECT_EQ(before, data.buffers);
  EXPECT_TRUE(run(made, data.args, {aligned, made.workspace_bytes}).ok());
}

TEST(KdaPlanner, PlansForAbsentChipsAndSaysWhy) {
  Problem p;
  p.B = p.N = 1, p.T = p.max_seqlen = 8192, p.H = p.HV = 12, p.K = p.V = 128, p.scale = 0.088f, p.has_A_log = true;
  p.device = {DeviceKind::kCuda, 0};
  for (const DeviceCaps& caps : known_devices()) {
    if (caps.kind == DeviceKind::kCpu) continue;
    const auto made = plan(p, caps);
    if (caps.compute_capability == 90) {
      ASSERT_TRUE(made.ok()) << caps.name << ": " << made.status().message();
      EXPECT_GT(made->modelled_us, 0);
      EXPECT_EQ(made->candidates.size(), variants().size());
      for (const Candidate& c : made->candidates) EXPECT_FALSE(c.reason.empty()) << c.variant;
      EXPECT_FALSE(made->why.empty());
      EXPECT_EQ(made->str().find('\n'), std::string::npos);
    } else {
      ASSERT_FALSE(made.ok()) << caps.name;
      EXPECT_EQ(made.status().code(), Code::kUnsupported);
    }
  }
}

TEST(KdaPlanner, WorkspaceStaysNearTheInputs) {
  for (const int64_t T : {int64_t{64}, int64_t{8192}, int64_t{1} << 24})
    for (const int64_t H : {1, 4, 12, 64, 96}) {
      Problem p;
      p.B = p.N = 1, p.T = p.max_seqlen = T, p.H = p.HV = H, p.K = p.V = 128, p.scale = 0.088f, p.has_A_log = true;
      p.device = {DeviceKind::kCuda, 0};
      const auto made = plan(p, find_device("h200").value());
      ASSERT_TRUE(made.ok()) << made.status().message();
      // The chunk records stay within the bytes of q, k, v and g; the summaries of segments and rounding come on top.
      if (T >= 8192) {
        EXPECT_LE(made->workspace_bytes, static_cast<size_t>(T * H * 4 * 256) * 5 / 4) << made->str();
      }
    }
}

TEST(KdaPlanner, ForcedVariantMustExist) {
  CaseData data = make_data(plain());
  const Status status = can_run(data.args, find_device("cpu").value(), {.variant = "sm90_chonk"});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.argument(), "options.variant");
}

}  // namespace
}  // namespace hyla::kda
