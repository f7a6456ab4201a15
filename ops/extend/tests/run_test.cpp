// What run() checks before it enqueues, and what it does when there is nothing to do.
#include <gtest/gtest.h>

#include <functional>

#include "ops/extend/tests/case_runner.h"
#include "testing/guarded.h"

namespace hyla::extend {
namespace {

class ExtendRun : public ::testing::Test {
 protected:
  ExtendRun() : data_(make_data(make())), plan_(plan(data_.args, find_device("cpu").value()).value()), workspace_(*backend_, plan_.workspace_bytes + 256) {}
  static Case make() {
    Case c;
    c.name = "run", c.extend = {40, 3}, c.prefix = {7, 30}, c.Hq = 4, c.Hkv = 2, c.Lq = c.Lv = 64, c.sinks = Sinks::kFp32;
    return c;
  }
  Workspace workspace() { return {workspace_.data(), plan_.workspace_bytes}; }
  bool untouched() const {
    return std::all_of(out().begin(), out().end(), [](uint8_t b) { return b == 0xFF; });
  }
  const std::vector<uint8_t>& out() const { return data_.buffers[data_.out_buffer]; }

  std::unique_ptr<testing::Backend> backend_ = testing::cpu_backend();
  CaseData data_;
  Plan plan_;
  testing::Guarded workspace_;
};

TEST_F(ExtendRun, Runs) {
  const Status status = run(plan_, data_.args, workspace());
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(untouched());
}

TEST_F(ExtendRun, RefusesOtherProblemsAndNamesTheField) {
  struct Change {
    const char* field;
    std::function<void(Args&)> apply;
  };
  const CaseData other = make_data(*find_case("d64"));
  for (const Change& change : std::vector<Change>{
           {"sm_scale", [](Args& a) { a.sm_scale = 0.5f; }},
           {"logit_cap", [](Args& a) { a.logit_cap = 30; }},
           {"k_scale", [](Args& a) { a.k_scale = 2; }},
           {"v_scale", [](Args& a) { a.v_scale = 2; }},
           {"sliding_window", [](Args& a) { a.sliding_window = 4; }},
           {"xai_temperature_len", [](Args& a) { a.xai_temperature_len = 4; }},
           {"causal", [](Args& a) { a.causal = false; }},
           {"has_sinks", [](Args& a) { a.sinks = {}; }},
           {"has_lse", [](Args& a) { a.lse = {}; }},
           {"skip_prefix", [](Args& a) { a.skip_prefix = true; }},
           {"skip_extend", [](Args& a) { a.skip_extend = true; }},
           {"max_extend", [](Args& a) { a.max_extend = 41; }},
           {"max_prefix", [](Args& a) { a.max_prefix = 7; }},
           {"prefix_capacity", [](Args& a) { a.kv_indices.shape[0] -= 1; }},
           {"slots", [](Args& a) { a.k_buffer.shape[0] -= 1, a.v_buffer.shape[0] -= 1; }},
           {"n", [](Args& a) { a.q.shape[0] = a.k.shape[0] = a.v.shape[0] = a.out.shape[0] = a.lse.shape[0] = 42; }},
           {"batch", [](Args& a) { a.qo_indptr.shape[0] = a.kv_indptr.shape[0] = 2; }},
           {"n", [&](Args& a) { a = other.args; }},
       }) {
    Args args = data_.args;
    change.apply(args);
    const Status status = run(plan_, args, workspace());
    EXPECT_EQ(status.code(), Code::kPlanMismatch) << change.field;
    EXPECT_EQ(status.argument(), change.field) << status.message();
    EXPECT_NE(status.expected().find("the plan's"), std::string::npos);
    EXPECT_FALSE(status.got().empty());
  }
  EXPECT_TRUE(untouched());
}

TEST_F(ExtendRun, SamePlanServesOtherPointersAndLengths) {
  CaseData other = make_data(make());
  int32_t* indptr = other.args.qo_indptr.as<int32_t>();
  ASSERT_EQ(indptr[1], 40);
  indptr[1] = 20;  // other lengths, same capacity
  other.args.max_extend = plan_.problem.max_extend;
  const Status status = run(plan_, other.args, workspace());
  EXPECT_TRUE(status.ok()) << status.message();
  std::string problem;
  const Errors e = compare(other.args, other.buffers[other.out_buffer], other.buffers[other.lse_buffer], reference(other.args), problem);
  EXPECT_EQ(problem, "");
  EXPECT_LE(e.rel_l2, tolerance_of(DType::kBf16, DType::kBf16).rel_l2);
}

TEST_F(ExtendRun, WorkspaceIsChecked) {
  ASSERT_GT(plan_.workspace_bytes, 0u);
  const auto expect = [&](Workspace w, const char* argument) {
    const Status status = run(plan_, data_.args, w);
    EXPECT_EQ(status.code(), Code::kWorkspace);
    EXPECT_EQ(status.argument(), argument) << status.message();
    EXPECT_TRUE(untouched());
  };
  expect({}, "workspace.data");
  expect({nullptr, plan_.workspace_bytes}, "workspace.data");
  expect({workspace_.data(), plan_.workspace_bytes - 1}, "workspace.bytes");
  expect({static_cast<std::byte*>(workspace_.data()) + 64, plan_.workspace_bytes}, "workspace.data");
  // A workspace over the output.
  std::vector<uint8_t> memory(plan_.workspace_bytes + 512);
  auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256);
  Args args = data_.args;
  args.out.data = aligned;
  const Status status = run(plan_, args, {aligned, plan_.workspace_bytes});
  EXPECT_EQ(status.code(), Code::kWorkspace);
  EXPECT_NE(status.got().find("out"), std::string::npos);
  EXPECT_TRUE(workspace_.intact());
}

TEST_F(ExtendRun, APlanOfNothingIsRefused) {
  const Status status = run(Plan{}, data_.args, workspace());
  EXPECT_EQ(status.code(), Code::kPlanMismatch);
  Plan renamed = plan_;
  renamed.variant = "no_such";
  EXPECT_EQ(run(renamed, data_.args, workspace()).argument(), "variant");
  EXPECT_TRUE(untouched());
}

TEST_F(ExtendRun, EmptyBatchAndEmptyTensorsDoNothing) {
  CaseData data = make_data(make());
  Args args = data.args;
  args.qo_indptr.shape[0] = args.kv_indptr.shape[0] = 1;
  const Result<Plan> none = plan(args, find_device("cpu").value());
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_TRUE(run(none.value(), args, workspace()).ok());

  Args empty = data.args;
  for (TensorView* t : {&empty.q, &empty.k, &empty.v, &empty.out, &empty.lse, &empty.k_buffer, &empty.v_buffer, &empty.kv_indices})
    t->shape[0] = 0, t->data = nullptr;
  const int32_t zeros[3] = {};
  empty.qo_indptr.data = empty.kv_indptr.data = const_cast<int32_t*>(zeros);
  const Result<Plan> no_rows = plan(empty, find_device("cpu").value());
  ASSERT_TRUE(no_rows.ok()) << no_rows.status().message();
  EXPECT_TRUE(run(no_rows.value(), empty, workspace()).ok());
  EXPECT_TRUE(std::all_of(data.buffers[data.out_buffer].begin(), data.buffers[data.out_buffer].end(), [](uint8_t b) { return b == 0xFF; }));
}

// Offsets that lie anywhere are clamped: nothing is read or written out of bounds (the sanitizer build is the judge).
TEST_F(ExtendRun, WildIndptrsStayInBounds) {
  Case c = make();
  c.mask = Mask::kTree, c.mask_prefix = true, c.mask_offset = 3;
  for (const int64_t wild : {int64_t{-1}, int64_t{1000000}, int64_t{INT32_MAX}, int64_t{INT32_MIN}})
    for (int which = 0; which < 5; ++which) {
      CaseData data = make_data(c);
      const Plan wild_plan = plan(data.args, find_device("cpu").value()).value();
      TensorView& t = which == 0   ? data.args.qo_indptr
                      : which == 1 ? data.args.kv_indptr
                      : which == 2 ? data.args.mask_indptr
                      : which == 3 ? data.args.kv_indices
                                   : data.args.window_kv_offsets;
      if (t.dtype == DType::kI64) t.as<int64_t>()[1] = wild * (int64_t{1} << 20);
      else t.as<int32_t>()[1] = static_cast<int32_t>(wild);
      std::vector<std::byte> memory(wild_plan.workspace_bytes + 256);
      auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256);
      EXPECT_TRUE(run(wild_plan, data.args, {aligned, wild_plan.workspace_bytes}).ok());
    }
}

TEST(ExtendContents, FindsWhatOnlyTheTensorsTell) {
  Case c;
  c.name = "contents", c.extend = {5, 3}, c.prefix = {7, 2}, c.Hq = 2, c.Hkv = 1, c.Lq = c.Lv = 16, c.mask = Mask::kTree, c.mask_offset = 2;
  struct Spoil {
    const char* argument;
    std::function<void(Args&)> apply;
  };
  ASSERT_TRUE(check_contents(make_data(c).args).ok()) << check_contents(make_data(c).args).message();
  for (const Spoil& spoil : std::vector<Spoil>{
           {"qo_indptr[0]", [](Args& a) { a.qo_indptr.as<int32_t>()[0] = -1; }},
           {"qo_indptr[2]", [](Args& a) { a.qo_indptr.as<int32_t>()[2] = 4; }},
           {"qo_indptr[2]", [](Args& a) { a.qo_indptr.as<int32_t>()[2] = 9; }},
           {"kv_indptr[1]", [](Args& a) { a.kv_indptr.as<int32_t>()[1] = -3; }},
           {"kv_indptr[2]", [](Args& a) { a.kv_indptr.as<int32_t>()[2] = 10; }},
           {"kv_indices[3]", [](Args& a) { a.kv_indices.as<int32_t>()[3] = 1000; }},
           {"kv_indices[8]", [](Args& a) { a.kv_indices.as<int32_t>()[8] = -1; }},
           {"mask_indptr[1]", [](Args& a) { a.mask_indptr.as<int64_t>()[1] = -1; }},
           {"custom_mask.shape[0]", [](Args& a) { a.custom_mask.shape[0] -= 1; }},
           {"custom_mask.shape[0]", [](Args& a) { a.mask_indptr.as<int64_t>()[1] = int64_t{1} << 62; }},
           {"window_kv_offsets[1]", [](Args& a) { a.window_kv_offsets.as<int32_t>()[1] = -1; }},
           {"max_extend", [](Args& a) { a.max_extend = 4; }},
           {"max_prefix", [](Args& a) { a.max_prefix = 6; }},
       }) {
    CaseData data = make_data(c);
    spoil.apply(data.args);
    const Status status = check_contents(data.args);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.argument(), spoil.argument) << status.message();
    PlanOptions options;
    EXPECT_TRUE(plan(data.args, find_device("cpu").value(), options).ok()) << "contents are read on request only";
    options.debug_checks = true;
    EXPECT_EQ(plan(data.args, find_device("cpu").value(), options).status().argument(), spoil.argument);
  }
}

TEST(ExtendContents, DeviceMemoryIsNotRead) {
  CaseData data = make_data(*find_case("d64"));
  Args& a = data.args;
  for (TensorView* t : {&a.q, &a.k, &a.v, &a.k_buffer, &a.v_buffer, &a.qo_indptr, &a.kv_indptr, &a.kv_indices, &a.out, &a.lse})
    t->device = {DeviceKind::kCuda, 0};
  EXPECT_EQ(check_contents(a).code(), Code::kUnsupported);
}

}  // namespace
}  // namespace hyla::extend
