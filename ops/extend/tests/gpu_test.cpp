// What only a GPU can get wrong: graphs, streams, repeatability, hidden allocation, offsets beyond 32 bits. The case table itself runs in cases_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ops/extend/tests/case_runner.h"
#include "testing/backends.h"
#include "testing/gpu.h"

namespace hyla::extend {
namespace {

using testing::GpuGraph;
using testing::GpuMemory;
using testing::GpuStream;
using testing::Guarded;

// Two cases of one capacity: the second has the first's lengths in another order.
struct Pair {
  const char* name;
  Case first, second;
};

Pair pair_of(const char* name, int64_t Hq, int64_t Hkv, int64_t Lq, int64_t Lv, bool latent) {
  Pair pair{name, {}, {}};
  pair.first.name = name;
  pair.first.extend = {70, 1, 133, 64}, pair.first.prefix = {65, 130, 3, 300};
  pair.first.Hq = Hq, pair.first.Hkv = Hkv, pair.first.Lq = Lq, pair.first.Lv = Lv, pair.first.latent = latent;
  pair.second = pair.first;
  pair.second.extend = {133, 64, 1, 70}, pair.second.prefix = {300, 65, 130, 3};
  pair.second.seed = 2;
  return pair;
}
const std::vector<Pair>& pairs() {
  static const std::vector<Pair> list{pair_of("d64", 4, 2, 64, 64, false),        pair_of("d128", 8, 2, 128, 128, false),
                                      pair_of("d192_128", 4, 4, 192, 128, false), pair_of("d256", 4, 2, 256, 256, false),
                                      pair_of("d512", 4, 2, 512, 512, false),     pair_of("latent576", 16, 1, 576, 512, true),
                                      pair_of("latent512", 16, 1, 512, 512, true)};
  return list;
}

struct Selection {
  std::string variant;
  size_t pair;
};
void PrintTo(const Selection& s, std::ostream* os) { *os << s.variant << " " << pairs()[s.pair].name; }
std::vector<Selection> selections() {
  std::vector<Selection> list;
  for (const std::string& variant : variants())
    if (variant != "cpu")
      for (size_t i = 0; i < pairs().size(); ++i) list.push_back({variant, i});
  return list;
}

struct Bytes {
  std::vector<uint8_t> out, lse;
  bool operator==(const Bytes&) const = default;
};

class Gpu : public ::testing::TestWithParam<Selection> {
 protected:
  void SetUp() override {
    backend_ = testing::backend_named("cuda");
    if (backend_ == nullptr) GTEST_SKIP() << "no CUDA device";
    first_ = make_data(pair().first), second_ = make_data(pair().second);
    first_.args.max_extend = second_.args.max_extend, first_.args.max_prefix = second_.args.max_prefix;
    placed_ = std::make_unique<PlacedCase>(first_, *backend_, 0);
    ASSERT_TRUE(placed_->ok());
    PlanOptions options;
    options.variant = GetParam().variant;
    const Result<Plan> plan = hyla::extend::plan(placed_->args(), backend_->caps(), options);
    if (!plan.ok()) GTEST_SKIP() << plan.status().message();
    plan_ = plan.value();
    ASSERT_EQ(plan_.variant, GetParam().variant);
    workspace_ = std::make_unique<Guarded>(*backend_, plan_.workspace_bytes);
    ASSERT_TRUE(workspace_->ok() && workspace_->fill(0xFF).ok());
  }
  const Pair& pair() const { return pairs()[GetParam().pair]; }
  Workspace workspace() const { return {workspace_->data(), workspace_->bytes()}; }
  Status enqueue(Stream stream) const { return run(plan_, placed_->args(), workspace(), stream); }
  Bytes outputs() const {
    Bytes bytes;
    EXPECT_TRUE(placed_->outputs(bytes.out, bytes.lse).ok());
    return bytes;
  }
  static void expect_right(const CaseData& data, const Bytes& bytes) {
    std::string problem;
    const ReferenceResult reference = hyla::extend::reference(data.args);
    const Errors e = compare(data.args, bytes.out, bytes.lse, reference, problem);
    const Tolerance t = tolerance_of(data.args.q.dtype, data.args.out.dtype);
    EXPECT_EQ(problem, "");
    EXPECT_LE(e.rel_l2, t.rel_l2);
    EXPECT_LE(e.element, t.element);
    EXPECT_LE(e.lse, t.lse);
  }

  testing::Backend* backend_ = nullptr;
  CaseData first_, second_;
  std::unique_ptr<PlacedCase> placed_;
  Plan plan_;
  std::unique_ptr<Guarded> workspace_;
};

#define ASSERT_OK(expr)                                   \
  do {                                                    \
    const ::hyla::Status ok_status_ = (expr);             \
    ASSERT_TRUE(ok_status_.ok()) << ok_status_.message(); \
  } while (0)

// The first call of this shape in the process is the captured one (unless tests were reordered).
TEST_P(Gpu, GraphReplaysWithOtherLengths) {
  const GpuStream stream;
  const auto graph = GpuGraph::capture(stream, [&](Stream s) { return enqueue(s); });
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  RecordProperty("nodes", static_cast<int>(graph.value()->nodes()));
  for (const CaseData* data : {&first_, &second_, &first_}) {
    ASSERT_OK(placed_->replace_contents(*data));
    ASSERT_OK(placed_->poison_outputs());
    ASSERT_OK(graph.value()->replay(stream));
    ASSERT_OK(stream.synchronize());
    const Bytes replayed = outputs();
    ASSERT_OK(placed_->poison_outputs());
    ASSERT_OK(enqueue(stream.stream()));
    ASSERT_OK(stream.synchronize());
    EXPECT_TRUE(replayed == outputs()) << "a replay differs from the eager call";
    expect_right(*data, replayed);
  }
  EXPECT_TRUE(workspace_->intact());
  EXPECT_EQ(placed_->damage(), "");
}

TEST_P(Gpu, TwentyRunsGiveTheSameBits) {
  Bytes first;
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(placed_->poison_outputs());
    ASSERT_OK(enqueue(backend_->stream()));
    ASSERT_OK(backend_->synchronize());
    if (i == 0) first = outputs();
    else ASSERT_TRUE(first == outputs()) << "run " << i;
  }
}

TEST_P(Gpu, TwoStreamsDoNotMeet) {
  PlacedCase other(second_, *backend_, 0);
  Guarded other_workspace(*backend_, plan_.workspace_bytes);
  ASSERT_TRUE(other.ok() && other_workspace.ok() && other_workspace.fill(0xFF).ok());
  const GpuStream streams[2];
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(enqueue(streams[0].stream()));
    ASSERT_OK(run(plan_, other.args(), {other_workspace.data(), other_workspace.bytes()}, streams[1].stream()));
  }
  for (const GpuStream& s : streams) ASSERT_OK(s.synchronize());
  Bytes bytes;
  ASSERT_OK(other.outputs(bytes.out, bytes.lse));
  expect_right(first_, outputs());
  expect_right(second_, bytes);
}

TEST_P(Gpu, AllocatesNothing) {
  ASSERT_OK(enqueue(backend_->stream()));  // the driver loads the code at the first launch
  ASSERT_OK(backend_->synchronize());
  const int64_t before = testing::free_device_memory();
  for (int i = 0; i < 8; ++i) ASSERT_OK(enqueue(backend_->stream()));
  ASSERT_OK(backend_->synchronize());
  EXPECT_EQ(testing::free_device_memory(), before);
}

// A copy of `host` ([rows, heads, L], contiguous) whose rows lie `pitch` elements apart, the first at row `first`.
class FarRows {
 public:
  FarRows(const TensorView& host, int64_t pitch, int64_t first, int64_t rows_in_all)
      : host_(host),
        row_bytes_(static_cast<size_t>(host.shape[1] * host.shape[2] * size_of(host.dtype))),
        pitch_bytes_(static_cast<size_t>(pitch * size_of(host.dtype))),
        offset_(static_cast<size_t>(first) * pitch_bytes_),
        memory_(static_cast<size_t>(rows_in_all) * pitch_bytes_) {
    view_ = host;
    view_.data = memory_.data(), view_.device = {DeviceKind::kCuda, 0}, view_.stride[0] = pitch, view_.shape[0] = rows_in_all;
  }
  Status upload() { return memory_.upload_rows(offset_, pitch_bytes_, host_.data, row_bytes_, static_cast<size_t>(host_.shape[0])); }
  Status download(std::vector<uint8_t>& to) const {
    to.resize(row_bytes_ * static_cast<size_t>(host_.shape[0]));
    return memory_.download_rows(to.data(), offset_, pitch_bytes_, row_bytes_, static_cast<size_t>(host_.shape[0]));
  }
  bool ok() const { return memory_.ok(); }
  const TensorView& view() const { return view_; }

 private:
  TensorView host_, view_;
  size_t row_bytes_, pitch_bytes_, offset_;
  GpuMemory memory_;
};

constexpr int64_t kBeyond = (int64_t{1} << 31) + 4096;  // elements

TEST_P(Gpu, TokenOffsetsBeyond32Bits) {
  const int64_t rows = first_.args.q.shape[0], pitch = (kBeyond / (rows - 1) + 63) / 64 * 64;
  FarRows q(first_.args.q, pitch, 0, rows), k(first_.args.k, pitch, 0, rows), out(first_.args.out, pitch, 0, rows);
  std::unique_ptr<FarRows> v;
  if (!pair().first.latent) v = std::make_unique<FarRows>(first_.args.v, pitch, 0, rows);
  if (!q.ok() || !k.ok() || !out.ok() || (v && !v->ok())) GTEST_SKIP() << "not enough device memory";
  Args args = placed_->args();
  args.q = q.view(), args.k = k.view(), args.out = out.view();
  if (v) {
    args.v = v->view();
    ASSERT_OK(v->upload());
  } else {
    args.v = args.k, args.v.shape[2] = pair().first.Lv;
  }
  ASSERT_OK(q.upload());
  ASSERT_OK(k.upload());
  ASSERT_OK(run(plan_, args, workspace(), backend_->stream()));
  ASSERT_OK(backend_->synchronize());
  Bytes bytes = outputs();
  ASSERT_OK(out.download(bytes.out));
  expect_right(first_, bytes);
}

TEST_P(Gpu, PoolOffsetsBeyond32Bits) {
  const TensorView& pool = first_.args.k_buffer;
  const int64_t row = pool.shape[1] * pool.shape[2], shift = kBeyond / row + 1, slots = pool.shape[0] + shift;
  FarRows k(pool, row, shift, slots);
  std::unique_ptr<FarRows> v;
  if (!pair().first.latent) v = std::make_unique<FarRows>(first_.args.v_buffer, first_.args.v_buffer.shape[1] * first_.args.v_buffer.shape[2], shift, slots);
  if (!k.ok() || (v && !v->ok())) GTEST_SKIP() << "not enough device memory";
  ASSERT_OK(k.upload());
  Args args = placed_->args();
  args.k_buffer = k.view();
  if (v) {
    ASSERT_OK(v->upload());
    args.v_buffer = v->view();
  } else {
    args.v_buffer = args.k_buffer, args.v_buffer.shape[2] = pair().first.Lv;
  }
  std::vector<int32_t> indices(static_cast<size_t>(args.kv_indices.shape[0]));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int32_t>(first_.args.kv_indices.as<int32_t>()[i] + shift);
  ASSERT_OK(backend_->upload(args.kv_indices.data, indices.data(), indices.size() * sizeof(int32_t)));
  PlanOptions options;
  options.variant = GetParam().variant;
  const Result<Plan> plan = hyla::extend::plan(args, backend_->caps(), options);  // the pool's size is part of the problem
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_LE(plan->workspace_bytes, plan_.workspace_bytes);
  ASSERT_OK(run(plan.value(), args, workspace(), backend_->stream()));
  ASSERT_OK(backend_->synchronize());
  expect_right(first_, outputs());
}

INSTANTIATE_TEST_SUITE_P(Extend, Gpu, ::testing::ValuesIn(selections()),
                         [](const auto& info) { return info.param.variant + "_" + pairs()[info.param.pair].name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Gpu);

}  // namespace
}  // namespace hyla::extend
