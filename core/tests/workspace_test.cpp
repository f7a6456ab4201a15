#include "hyla/workspace.h"

#include <gtest/gtest.h>

namespace hyla {
namespace {

struct Buffers {
  float* a;
  int64_t* b;
  char* c;
};
Buffers place(WorkspaceLayout& layout) { return {layout.take<float>(3), layout.take<int64_t>(100), layout.take<char>(0)}; }

TEST(Workspace, CountingAndPlacingAgree) {
  WorkspaceLayout counting;
  EXPECT_EQ(place(counting).a, nullptr);
  alignas(WorkspaceLayout::kAlignment) static std::byte memory[4096];
  WorkspaceLayout placing(memory);
  const Buffers buffers = place(placing);
  EXPECT_EQ(counting.bytes(), placing.bytes());
  EXPECT_EQ(counting.bytes(), 256u + 1024u);
  EXPECT_EQ(reinterpret_cast<std::byte*>(buffers.a), memory);
  EXPECT_EQ(reinterpret_cast<std::byte*>(buffers.b), memory + 256);
  EXPECT_EQ(reinterpret_cast<std::byte*>(buffers.c), memory + 1280);
}

TEST(Workspace, SizesBeyond32Bits) {
  WorkspaceLayout counting;
  counting.take<double>(int64_t{1} << 34);
  EXPECT_EQ(counting.bytes(), size_t{1} << 37);
}

}  // namespace
}  // namespace hyla
