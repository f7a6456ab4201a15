#include "hyla/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace hyla {
namespace {

TEST(Status, DefaultIsOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().message(), "ok");
}

TEST(Status, MessageNamesArgumentExpectedAndGot) {
  const Status status = Status::invalid("k.shape[2]", "4 (= q.shape[2])", "3");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "invalid argument: k.shape[2]: expected 4 (= q.shape[2]), got 3");
}

TEST(Status, EveryCodeHasItsOwnName) {
  const Code codes[] = {Code::kOk, Code::kInvalidArgument, Code::kUnsupported, Code::kWorkspace, Code::kPlanMismatch, Code::kDevice, Code::kIo};
  for (const Code a : codes)
    for (const Code b : codes) EXPECT_EQ(std::string(to_string(a)) == to_string(b), a == b);
}

Status fails_second(int& steps) {
  ++steps;
  HYLA_RETURN_IF_ERROR(Status());
  ++steps;
  HYLA_RETURN_IF_ERROR(Status::unsupported("x", "y", "z"));
  ++steps;
  return {};
}

TEST(Status, ReturnIfErrorStopsAtTheFirst) {
  int steps = 0;
  EXPECT_EQ(fails_second(steps).code(), Code::kUnsupported);
  EXPECT_EQ(steps, 2);
}

TEST(Result, HoldsMoveOnlyValuesOrAStatus) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(7));
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(*std::move(good).value(), 7);
  Result<int> bad(Status::invalid("a", "b", "c"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().argument(), "a");
}

}  // namespace
}  // namespace hyla
