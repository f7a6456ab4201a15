// Every case of the table on every backend present, by every variant that takes it; and once by the planner's own choice.
#include <gtest/gtest.h>

#include "ops/kda/tests/case_runner.h"
#include "testing/backends.h"

namespace hyla::kda {
namespace {

struct Selection {
  testing::Backend* backend;
  std::string variant, name;
  int splits = 0;
};
void PrintTo(const Selection& run, std::ostream* os) { *os << run.backend->name() << " " << run.variant << " " << run.name; }

std::vector<Selection> all_runs() {
  std::vector<Selection> runs;
  for (testing::Backend* backend : testing::present_backends())
    for (const Case& c : all_cases()) {
      runs.push_back({backend, "", c.name});
      for (const std::string& variant : variants())
        if ((variant == "cpu") == (backend->name() == "cpu")) runs.push_back({backend, variant, c.name});
      // Cut into segments whatever the planner thinks of it: weak decay must survive the cuts.
      if (backend->name() == "cuda" && c.lengths.size() == 1 && c.lengths[0] >= 300) runs.push_back({backend, "sm90_chunk", c.name, 2});
    }
  return runs;
}

class KdaCaseTable : public ::testing::TestWithParam<Selection> {};

TEST_P(KdaCaseTable, AgreesWithFloat64) {
  const Selection& s = GetParam();
  const CaseResult result = run_case(*find_case(s.name), {s.variant, s.splits}, *s.backend);
  if (!result.supported) {
    ASSERT_FALSE(result.message.empty());
    // By its own choice the planner must find something for every case.
    if (s.variant.empty()) FAIL() << result.message;
    GTEST_SKIP() << result.message;
  }
  EXPECT_TRUE(result.pass) << result.line() << "\n" << result.plan;
  if (!s.variant.empty()) {
    EXPECT_EQ(result.variant, s.variant);
  }
}

INSTANTIATE_TEST_SUITE_P(Kda, KdaCaseTable, ::testing::ValuesIn(all_runs()), [](const auto& info) {
  const Selection& s = info.param;
  return s.backend->name() + "_" + (s.variant.empty() ? "auto" : s.variant) + (s.splits > 0 ? "_cut" : "") + "_" + s.name;
});

}  // namespace
}  // namespace hyla::kda
