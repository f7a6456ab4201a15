#include "hyla/tensor.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "core/overlap.h"

namespace hyla {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
alignas(64) char memory[64];

TEST(Tensor, ContiguousStridesAreRowMajor) {
  const TensorView t = contiguous(memory, DType::kBf16, {2, 3, 5});
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.stride[0], 15);
  EXPECT_EQ(t.stride[1], 5);
  EXPECT_EQ(t.stride[2], 1);
  EXPECT_EQ(t.numel(), 30);
  EXPECT_TRUE(is_contiguous(t));
}

TEST(Tensor, StridesOfDimensionsOfOneDoNotMatter) {
  TensorView t = contiguous(memory, DType::kFp32, {1, 4});
  t.stride[0] = 1000;
  EXPECT_TRUE(is_contiguous(t));
  t.shape[0] = 2;
  EXPECT_FALSE(is_contiguous(t));
}

TEST(Tensor, EmptyTensorsNeedNoMemory) {
  const TensorView t = contiguous(nullptr, DType::kFp32, {0, 4, 128});
  EXPECT_EQ(t.numel(), 0);
  EXPECT_TRUE(check_view("t", t).ok());
  EXPECT_TRUE(is_contiguous(t));
}

TEST(Tensor, AbsurdExtentsAreRefusedInEmptyTensorsToo) {
  const TensorView t = contiguous(nullptr, DType::kFp32, {0, kMax, kMax});
  EXPECT_EQ(t.numel(), 0);
  EXPECT_EQ(check_view("t", t).argument(), "t");
}

TEST(Tensor, AbsentTensorIsValidAndEmpty) {
  EXPECT_FALSE(TensorView{}.defined());
  EXPECT_EQ(TensorView{}.numel(), 0);
  EXPECT_TRUE(check_view("t", TensorView{}).ok());
  EXPECT_EQ(describe(TensorView{}), "absent");
}

TEST(Tensor, DescribeNamesTypeShapeAndDevice) {
  EXPECT_EQ(describe(contiguous(memory, DType::kBf16, {1, 2}, {DeviceKind::kCuda, 3})), "bf16 [1, 2] on cuda:3");
}

TEST(Tensor, DescribesARankThatNoViewCanHave) {
  TensorView t = contiguous(memory, DType::kBf16, {1, 2});
  t.rank = 1 << 30;
  EXPECT_EQ(describe(t), "bf16 [1073741824 dimensions] on cpu");
}

TEST(Tensor, NumelOverflowIsAnErrorThatNamesTheArgument) {
  const int64_t shape[] = {int64_t{1} << 40, int64_t{1} << 40};
  const auto n = checked_numel("k", shape, 2);
  ASSERT_FALSE(n.ok());
  EXPECT_EQ(n.status().argument(), "k");
  const int64_t empty[] = {0, int64_t{1} << 40, int64_t{1} << 40};  // nothing there, and still no shape to calculate with
  EXPECT_FALSE(checked_numel("k", empty, 3).ok());
  const int64_t longest[] = {0, int64_t{1} << 48};
  EXPECT_EQ(checked_numel("k", longest, 2).value(), 0);
  const int64_t negative[] = {3, -1};
  EXPECT_EQ(checked_numel("k", negative, 2).status().argument(), "k.shape[1]");
}

struct BadView {
  const char* what;
  const char* argument;
  TensorView view;
};
std::vector<BadView> bad_views() {
  std::vector<BadView> list;
  const TensorView good = contiguous(memory, DType::kFp32, {2, 2});
  const auto add = [&](const char* what, const char* argument, auto&& change) {
    TensorView t = good;
    change(t);
    list.push_back({what, argument, t});
  };
  add("rank too high", "t.rank", [](TensorView& t) { t.rank = TensorView::kMaxRank + 1; });
  add("negative rank", "t.rank", [](TensorView& t) { t.rank = -1; });
  add("negative extent", "t.shape[0]", [](TensorView& t) { t.shape[0] = -2; });
  add("negative stride", "t.stride[1]", [](TensorView& t) { t.stride[1] = -1; });
  add("null data", "t.data", [](TensorView& t) { t.data = nullptr; });
  add("misaligned data", "t.data", [](TensorView& t) { t.data = memory + 1; });
  add("reach overflows", "t", [](TensorView& t) { t.stride[0] = kMax, t.shape[0] = 4; });
  add("sum of reaches overflows", "t", [](TensorView& t) { t.stride[0] = kMax - 1, t.stride[1] = kMax - 1; });
  add("bytes overflow", "t", [](TensorView& t) { t.stride[0] = kMax / 2; });
  return list;
}
TEST(Tensor, CheckViewRefusesWhatNoKernelMayGet) {
  for (const BadView& bad : bad_views()) {
    const Status status = check_view("t", bad.view);
    EXPECT_FALSE(status.ok()) << bad.what;
    EXPECT_EQ(status.argument(), bad.argument) << bad.what;
  }
}

TEST(Tensor, OverlapOfSingleRowsWithAnyStride) {
  TensorView a = contiguous(memory, DType::kBf16, {1, 8}), b = contiguous(memory + 8, DType::kBf16, {1, 8});
  a.stride[0] = b.stride[0] = kMax - 100;
  ASSERT_TRUE(check_view("a", a).ok());
  EXPECT_TRUE(overlap(a, b));
  b.data = memory + 16;
  EXPECT_FALSE(overlap(a, b));
}

TEST(Tensor, SizesOfTypes) {
  EXPECT_EQ(size_of(DType::kBf16), 2);
  EXPECT_EQ(size_of(DType::kFp32), 4);
  EXPECT_EQ(size_of(DType::kE4m3), 1);
  EXPECT_EQ(size_of(DType::kI64), 8);
  EXPECT_EQ(size_of(DType::kBool), 1);
}

}  // namespace
}  // namespace hyla
