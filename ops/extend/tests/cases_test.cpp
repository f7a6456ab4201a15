// Every case of the table on every backend present, by every variant that takes it; and once by the planner's own choice.
#include <gtest/gtest.h>

#include "ops/extend/tests/case_runner.h"
#include "testing/backends.h"

namespace hyla::extend {
namespace {

struct Selection {
  std::string backend, variant, name;
};
void PrintTo(const Selection& run, std::ostream* os) { *os << run.backend << " " << run.variant << " " << run.name; }

std::vector<Selection> all_runs() {
  std::vector<Selection> runs;
  for (const testing::Backend* backend : testing::present_backends())
    for (const Case& c : all_cases()) {
      runs.push_back({backend->name(), "", c.name});
      for (const std::string& variant : variants())
        if ((variant == "cpu") == (backend->name() == "cpu")) runs.push_back({backend->name(), variant, c.name});
    }
  return runs;
}

class CaseTable : public ::testing::TestWithParam<Selection> {};

TEST_P(CaseTable, AgreesWithFloat64) {
  const Selection& selection = GetParam();
  const CaseResult result = run_case(*find_case(selection.name), selection.variant, *testing::backend_named(selection.backend));
  if (!result.supported) {
    ASSERT_FALSE(result.message.empty());
    // By its own choice the planner must find something for every case the device can hold.
    if (selection.variant.empty() && selection.backend == "cpu") FAIL() << result.message;
    GTEST_SKIP() << result.line();
  }
  EXPECT_TRUE(result.pass) << result.line() << "\n" << result.plan;
  if (!selection.variant.empty()) {
    EXPECT_EQ(result.variant, selection.variant);
  }
}

INSTANTIATE_TEST_SUITE_P(Extend, CaseTable, ::testing::ValuesIn(all_runs()), [](const auto& info) {
  return info.param.backend + "_" + (info.param.variant.empty() ? "auto" : info.param.variant) + "_" + info.param.name;
});

}  // namespace
}  // namespace hyla::extend
