// What only a GPU can get wrong: graphs, streams, repeatability, hidden allocation, offsets and grids beyond their limits. The case table itself
// runs in cases_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/kda/sm80_recurrent/config.h"
#include "ops/kda/tests/case_runner.h"
#include "testing/gpu.h"

namespace hyla::kda {
namespace {

using testing::GpuGraph;
using testing::GpuMemory;
using testing::GpuStream;
using testing::Guarded;

#define ASSERT_OK(expr)                                   \
  do {                                                    \
    const ::hyla::Status ok_status_ = (expr);             \
    ASSERT_TRUE(ok_status_.ok()) << ok_status_.message(); \
  } while (0)

testing::Backend* gpu() {
  static const std::unique_ptr<testing::Backend> backend = testing::cuda_backend();
  return backend.get();
}

// Two cases of one capacity: the second has the first's lengths in another order, other indices and flags.
struct Pair {
  Case first, second;
};

Pair pair_of(std::string name, void (*change)(Case&)) {
  Pair pair;
  Case& c = pair.first;
  c.name = std::move(name);
  c.lengths = {70, 1, 133, 64, 0, 300, 31};
  c.H = 2, c.HV = 4, c.state = State::kPoolInPlace, c.flags = true, c.checkpoints = Checkpoints::kEvery64;
  change(c);
  pair.second = c;
  pair.second.seed = 2;
  std::reverse(pair.second.lengths.begin(), pair.second.lengths.end());
  pair.second.skipped = c.state == State::kPool || c.state == State::kPoolInPlace;
  return pair;
}

const std::vector<Pair>& pairs() {
  static const std::vector<Pair> list{
      pair_of("pool", [](Case&) {}),
      pair_of("v_first_bf16_pool", [](Case& c) { c.v_first = true, c.state_dtype = c.checkpoint_dtype = DType::kBf16; }),
      pair_of("unbounded_scattered", [](Case& c) { c.gate = Gate::kUnbounded, c.g = DType::kFp32, c.checkpoints = Checkpoints::kScattered, c.lowest = 1; }),
      pair_of("fused_rows", [](Case& c) { c.layout = Layout::kFused, c.state = State::kRows, c.index = DType::kI32; }),
      pair_of("dense",
              [](Case& c) {
                c.dense = true, c.lengths = {100, 100, 100};
              }),
      pair_of("d64", [](Case& c) { c.D = 64; }),
      pair_of("short_turns", [](Case& c) { c.lengths = {1, 17, 63, 2, 0, 40, 5}, c.checkpoints = Checkpoints::kNone; }),
      pair_of("decode", [](Case& c) { c.dense = true, c.lengths.assign(37, 1), c.checkpoints = Checkpoints::kNone; }),
  };
  return list;
}

// Relative L2 error over what the oracle defines.
double error_of(const TensorView& got, const std::vector<double>& want) {
  const std::vector<double> values = values_of(got);
  double error = 0, norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(want[i])) continue;
    error += (values[i] - want[i]) * (values[i] - want[i]), norm += want[i] * want[i];
  }
  return norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
}

void expect_right(const Case& c, const CaseData& before, const Args& after) {
  const ReferenceResult want = reference(before.args);
  const Tolerance t = tolerance_of(c);
  EXPECT_LE(error_of(after.out, want.out), t.out);  // NaN fails too
  if (after.final_state.defined()) {
    EXPECT_LE(error_of(after.final_state, want.final_state), t.state);
  }
  if (after.checkpoints.defined()) {
    EXPECT_LE(error_of(after.checkpoints, want.checkpoints), t.state);
  }
}

struct Selection {
  std::string variant;
  size_t pair;
};
void PrintTo(const Selection& s, std::ostream* os) { *os << s.variant << " " << pairs()[s.pair].first.name; }
std::vector<Selection> selections() {
  std::vector<Selection> list;
  for (const std::string& variant : variants())
    if (variant != "cpu")
      for (size_t i = 0; i < pairs().size(); ++i) list.push_back({variant, i});
  return list;
}

class Gpu : public ::testing::TestWithParam<Selection> {
 protected:
  void SetUp() override {
    if (gpu() == nullptr) GTEST_SKIP() << "no CUDA device";
    first_ = make_data(pair().first), second_ = make_data(pair().second);
    placed_ = std::make_unique<PlacedCase>(first_, *gpu());
    ASSERT_TRUE(placed_->ok());
    const Result<Plan> plan = plan_for(placed_->args());
    if (!plan.ok()) GTEST_SKIP() << plan.status().message();
    plan_ = plan.value();
    ASSERT_EQ(plan_.variant, GetParam().variant);
    workspace_ = std::make_unique<Guarded>(*gpu(), plan_.workspace_bytes);
    ASSERT_TRUE(workspace_->ok() && workspace_->fill(0xFF).ok());
  }
  const Pair& pair() const { return pairs()[GetParam().pair]; }
  Result<Plan> plan_for(const Args& args) const {
    PlanOptions options;
    options.variant = GetParam().variant;
    return kda::plan(args, gpu()->caps(), options);
  }
  Workspace workspace() const { return {workspace_->data(), workspace_->bytes()}; }
  Status enqueue(Stream stream) const { return run(plan_, placed_->args(), workspace(), stream); }

  CaseData first_, second_;
  std::unique_ptr<PlacedCase> placed_;
  Plan plan_;
  std::unique_ptr<Guarded> workspace_;
};

// The first call of this kind in the process is the captured one (unless tests were reordered).
TEST_P(Gpu, GraphReplaysWithOtherLengths) {
  const GpuStream stream;
  const auto graph = GpuGraph::capture(stream, [&](Stream s) { return enqueue(s); });
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  RecordProperty("nodes", static_cast<int>(graph.value()->nodes()));
  for (const bool second : {false, true, false}) {
    const CaseData& data = second ? second_ : first_;
    ASSERT_OK(placed_->upload(data));
    ASSERT_OK(graph.value()->replay(stream));
    ASSERT_OK(stream.synchronize());
    const CaseData replayed = placed_->download();
    ASSERT_OK(placed_->upload(data));
    ASSERT_OK(enqueue(stream.stream()));
    ASSERT_OK(stream.synchronize());
    EXPECT_TRUE(replayed.buffers == placed_->download().buffers) << "a replay differs from the eager call";
    expect_right(second ? pair().second : pair().first, data, replayed.args);
  }
  EXPECT_TRUE(workspace_->intact() && placed_->intact());
}

TEST_P(Gpu, TwentyRunsGiveTheSameBits) {
  CaseData first;
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(placed_->upload(first_));
    ASSERT_OK(enqueue(gpu()->stream()));
    ASSERT_OK(gpu()->synchronize());
    CaseData now = placed_->download();
    if (i > 0) {
      ASSERT_TRUE(first.buffers == now.buffers) << "run " << i;
    }
    first = std::move(now);
  }
}

TEST_P(Gpu, TwoStreamsDoNotMeet) {
  PlacedCase other(second_, *gpu());
  Guarded other_workspace(*gpu(), plan_.workspace_bytes);
  ASSERT_TRUE(other.ok() && other_workspace.ok() && other_workspace.fill(0xFF).ok());
  const GpuStream streams[2];
  for (int i = 0; i < 10; ++i) {  // states in place move on with every call, so both start afresh
    ASSERT_OK(placed_->upload(first_));
    ASSERT_OK(other.upload(second_));
    ASSERT_OK(enqueue(streams[0].stream()));
    ASSERT_OK(run(plan_, other.args(), {other_workspace.data(), other_workspace.bytes()}, streams[1].stream()));
    for (const GpuStream& s : streams) ASSERT_OK(s.synchronize());
  }
  expect_right(pair().first, first_, placed_->download().args);
  expect_right(pair().second, second_, other.download().args);
}

TEST_P(Gpu, AllocatesNothing) {
  ASSERT_OK(enqueue(gpu()->stream()));  // the driver loads the code at the first launch
  ASSERT_OK(gpu()->synchronize());
  const int64_t before = testing::free_device_memory();
  for (int i = 0; i < 8; ++i) ASSERT_OK(enqueue(gpu()->stream()));
  ASSERT_OK(gpu()->synchronize());
  EXPECT_EQ(testing::free_device_memory(), before);
}

constexpr int64_t kBeyond = (int64_t{1} << 31) + 4096;  // elements

// Rows of `host` (dimension `dim` slowest; everything behind it dense) placed `pitch` elements apart, the first at row `first`.
struct FarTensor {
  FarTensor(const TensorView& host, int dim, int64_t pitch, int64_t first, int64_t rows_in_all)
      : rows(static_cast<size_t>(host.shape[dim])),
        row_bytes(static_cast<size_t>(host.stride[dim] * size_of(host.dtype))),
        pitch_bytes(static_cast<size_t>(pitch * size_of(host.dtype))),
        offset(static_cast<size_t>(first) * pitch_bytes),
        memory(static_cast<size_t>(rows_in_all) * pitch_bytes),
        view(host),
        host_data(host.data) {
    view.data = memory.data(), view.device = {DeviceKind::kCuda, 0}, view.stride[dim] = pitch, view.shape[dim] = rows_in_all;
    if (dim > 0) view.stride[0] = pitch * rows_in_all;
  }
  Status upload() { return memory.upload_rows(offset, pitch_bytes, host_data, row_bytes, rows); }
  Status download() { return memory.download_rows(host_data, offset, pitch_bytes, row_bytes, rows); }  // over the host tensor

  size_t rows, row_bytes, pitch_bytes, offset;
  GpuMemory memory;
  TensorView view;
  void* host_data;
};

TEST_P(Gpu, TokenOffsetsBeyond32Bits) {
  if (pair().first.layout == Layout::kFused || pair().first.dense) GTEST_SKIP() << "covered by the packed pairs";
  CaseData result = make_data(pair().first);
  Args args = placed_->args();
  std::vector<std::unique_ptr<FarTensor>> tensors;
  FarTensor* out = nullptr;
  for (auto member : {&Args::q, &Args::k, &Args::v, &Args::g, &Args::out}) {
    const TensorView& host = result.args.*member;
    const int64_t tokens = host.shape[1], pitch = (kBeyond / (tokens - 1) + 63) / 64 * 64;
    tensors.push_back(std::make_unique<FarTensor>(host, 1, pitch, 0, tokens));
    if (!tensors.back()->memory.ok()) GTEST_SKIP() << "not enough device memory";
    ASSERT_OK(tensors.back()->upload());
    args.*member = tensors.back()->view;
    out = tensors.back().get();
  }
  const Result<Plan> plan = plan_for(args);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_LE(plan->workspace_bytes, plan_.workspace_bytes);
  ASSERT_OK(run(plan.value(), args, workspace(), gpu()->stream()));
  ASSERT_OK(gpu()->synchronize());
  ASSERT_OK(out->download());
  CaseData rest = placed_->download();
  rest.args.out = result.args.out;
  expect_right(pair().first, first_, rest.args);
}

TEST_P(Gpu, PoolOffsetsBeyond32Bits) {
  if (pair().first.state != State::kPoolInPlace) GTEST_SKIP() << "no pool";
  CaseData result = make_data(pair().first);
  const TensorView& pool = result.args.initial_state;
  const int64_t slot = pool.stride[0], shift = kBeyond / slot + 1, slots = pool.shape[0] + shift;
  FarTensor far(pool, 0, slot, shift, slots);
  if (!far.memory.ok()) GTEST_SKIP() << "not enough device memory";
  ASSERT_OK(far.upload());
  Args args = placed_->args();
  args.initial_state = args.final_state = far.view;
  const TensorView& host_indices = result.args.state_indices;
  std::vector<int64_t> indices(static_cast<size_t>(host_indices.shape[0]));
  ASSERT_EQ(host_indices.dtype, DType::kI64);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = host_indices.as<int64_t>()[i] + shift;
  ASSERT_OK(gpu()->upload(args.state_indices.data, indices.data(), indices.size() * sizeof(int64_t)));
  const Result<Plan> plan = plan_for(args);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_LE(plan->workspace_bytes, plan_.workspace_bytes);
  ASSERT_OK(run(plan.value(), args, workspace(), gpu()->stream()));
  ASSERT_OK(gpu()->synchronize());
  ASSERT_OK(far.download());
  CaseData rest = placed_->download();
  rest.args.initial_state = rest.args.final_state = result.args.final_state;
  expect_right(pair().first, first_, rest.args);
}

INSTANTIATE_TEST_SUITE_P(Kda, Gpu, ::testing::ValuesIn(selections()),
                         [](const auto& info) { return info.param.variant + "_" + pairs()[info.param.pair].first.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Gpu);

// sm80_recurrent has three kernels, of which the planner chooses one; every one computes every case.
class RecurrentKinds : public ::testing::TestWithParam<std::string> {};

TEST_P(RecurrentKinds, AgreeWithFloat64) {
  if (gpu() == nullptr) GTEST_SKIP() << "no CUDA device";
  const Case& c = *find_case(GetParam());
  const CaseData data = make_data(c);
  PlacedCase placed(data, *gpu());
  ASSERT_TRUE(placed.ok());
  PlanOptions options;
  options.variant = "sm80_recurrent";
  Result<Plan> plan = kda::plan(placed.args(), gpu()->caps(), options);
  if (!plan.ok()) GTEST_SKIP() << plan.status().message();
  for (int kind = 0; kind < sm80_recurrent::kKinds; ++kind) {
    SCOPED_TRACE(kind);
    plan->tuning[0] = kind;
    ASSERT_OK(placed.upload(data));
    ASSERT_OK(run(plan.value(), placed.args(), {}, gpu()->stream()));
    ASSERT_OK(gpu()->synchronize());
    expect_right(c, data, placed.download().args);
    EXPECT_TRUE(placed.intact());
  }
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const Case& c : all_cases()) names.push_back(c.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Kda, RecurrentKinds, ::testing::ValuesIn(case_names()), [](const auto& info) { return info.param; });

// More sequences x heads than a grid's y and z axes hold.
TEST(KdaGpu, SequencesTimesHeadsBeyond65535) {
  if (gpu() == nullptr) GTEST_SKIP() << "no CUDA device";
  Case c;
  c.name = "many", c.lengths.assign(2048, 1), c.H = 1, c.HV = 64, c.D = 64, c.state = State::kNone, c.final_state = false;
  const CaseData data = make_data(c);
  PlacedCase placed(data, *gpu());
  ASSERT_TRUE(placed.ok());
  for (const std::string& variant : variants()) {
    if (variant == "cpu") continue;
    SCOPED_TRACE(variant);
    PlanOptions options;
    options.variant = variant;
    const Result<Plan> plan = kda::plan(placed.args(), gpu()->caps(), options);
    if (!plan.ok()) continue;
    Guarded workspace(*gpu(), plan->workspace_bytes);
    ASSERT_TRUE(workspace.ok());
    ASSERT_OK(placed.upload(data));
    ASSERT_OK(run(plan.value(), placed.args(), {workspace.data(), workspace.bytes()}, gpu()->stream()));
    ASSERT_OK(gpu()->synchronize());
    expect_right(c, data, placed.download().args);
  }
}

}  // namespace
}  // namespace hyla::kda
