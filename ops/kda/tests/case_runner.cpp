#include "ops/kda/tests/case_runner.h"

#include <fmt/format.h>

#include <cmath>

#include "core/numeric.h"

namespace hyla::kda {
namespace {

// Relative L2 error over what the oracle defines; the rest must still hold NaN. `message` takes the first fault.
double compare(const char* name, const TensorView& got, const std::vector<double>& want, std::string& message) {
  const std::vector<double> values = values_of(got);
  double error = 0, norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(want[i])) {
      if (!std::isnan(values[i]) && message.empty()) message = fmt::format("{}[{}] was written and must not be: {}", name, i, values[i]);
      continue;
    }
    if (!std::isfinite(values[i])) {
      if (message.empty()) message = fmt::format("{}[{}] is {}, not {}", name, i, values[i], want[i]);
      return INFINITY;
    }
    error += (values[i] - want[i]) * (values[i] - want[i]), norm += want[i] * want[i];
  }
  return norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
}

// What the call may write: everything else must be as it was.
std::string changed_inputs(const CaseData& before, const CaseData& after) {
  const struct {
    const char* name;
    TensorView Args::*member;
  } inputs[] = {{"q", &Args::q},
                {"k", &Args::k},
                {"v", &Args::v},
                {"g", &Args::g},
                {"beta", &Args::beta},
                {"A_log", &Args::A_log},
                {"dt_bias", &Args::dt_bias},
                {"cu_seqlens", &Args::cu_seqlens},
                {"initial_state", &Args::initial_state},
                {"state_indices", &Args::state_indices},
                {"has_initial_state", &Args::has_initial_state},
                {"checkpoint_offsets", &Args::checkpoint_offsets},
                {"checkpoint_indices", &Args::checkpoint_indices}};
  for (const auto& input : inputs) {
    const TensorView &a = before.args.*input.member, &b = after.args.*input.member;
    if (!a.defined() || a.data == before.args.final_state.data) continue;
    int64_t reach = 1;
    for (int i = 0; i < a.rank; ++i) reach += (a.shape[i] - 1) * a.stride[i];
    if (a.numel() > 0 && std::memcmp(a.data, b.data, static_cast<size_t>(reach * size_of(a.dtype))) != 0) return fmt::format("{} was changed", input.name);
  }
  return {};
}

bool same_bits(const CaseData& a, const CaseData& b) { return a.buffers == b.buffers; }

}  // namespace

std::vector<double> values_of(const TensorView& t) {
  std::vector<double> values(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), offset = 0;
    for (int d = t.rank - 1; d >= 0; --d) offset += rest % t.shape[d] * t.stride[d], rest /= t.shape[d];
    values[i] = load_float(t.data, t.dtype, offset);
  }
  return values;
}

Tolerance tolerance_of(const Case& c) {
  if (c.profile == Profile::kRepeated) return {1e-1, 2e-1};
  if (c.profile == Profile::kWeak || c.profile == Profile::kSpikes) return {8e-3, 7e-3};
  return {};
}

Outputs compute(const CaseData& data, const RunOptions& options, testing::Backend& backend) {
  Outputs result;
  PlacedCase placed(data, backend);
  if (!placed.ok()) {
    result.status = Status(Code::kDevice, "memory", "enough for the case", "none left");
    return result;
  }
  const auto plan = kda::plan(placed.args(), backend.caps(), {.variant = options.variant, .splits = options.splits});
  if (!plan.ok()) {
    result.status = plan.status();
    return result;
  }
  testing::Guarded workspace(backend, plan->workspace_bytes);
  if (workspace.ok()) result.status = workspace.fill(0xFF);
  result.variant = plan->variant, result.plan = plan->str();
  for (int pass = 0; pass < 2 && result.status.ok(); ++pass) {
    if (pass == 1) result.status = placed.upload(data);  // fresh outputs and pools, dirty workspace
    if (result.status.ok()) result.status = run(plan.value(), placed.args(), {workspace.data(), plan->workspace_bytes}, backend.stream());
    if (result.status.ok()) result.status = backend.synchronize();
    if (!result.status.ok()) break;
    CaseData host = placed.download();
    if (pass == 1 && !same_bits(host, result.host)) result.status = Status(Code::kDevice, "output", "the same bits in two runs", "others");
    result.host = std::move(host);
  }
  result.intact = placed.intact() && workspace.intact();
  return result;
}

CaseResult run_case(const Case& c, const RunOptions& options, testing::Backend& backend) {
  CaseResult result;
  result.tolerance = tolerance_of(c);
  const CaseData data = make_data(c);
  Outputs outputs = compute(data, options, backend);
  result.variant = outputs.variant, result.plan = outputs.plan;
  if (!outputs.status.ok()) {
    result.supported = outputs.status.code() != Code::kUnsupported;
    result.message = outputs.status.message();
    return result;
  }
  const ReferenceResult want = reference(data.args);
  const Args& got = outputs.host.args;
  result.message = changed_inputs(data, outputs.host);
  result.out = compare("out", got.out, want.out, result.message);
  // A pool in place keeps what nobody lists: compare the rest only.
  if (got.final_state.defined()) {
    std::vector<double> states = want.final_state;
    if (c.state == State::kPoolInPlace) {
      const std::vector<double> before = values_of(data.args.initial_state);
      for (size_t i = 0; i < states.size(); ++i)
        if (std::isnan(states[i])) states[i] = before[i];
    }
    result.state = compare("final_state", got.final_state, states, result.message);
  }
  if (got.checkpoints.defined()) result.checkpoints = compare("checkpoints", got.checkpoints, want.checkpoints, result.message);
  if (result.message.empty() && !outputs.intact) result.message = "memory beside a tensor was written";
  const bool close = result.out <= result.tolerance.out && result.state <= result.tolerance.state && result.checkpoints <= result.tolerance.state;
  if (result.message.empty() && !close) result.message = "the error is over the tolerance";
  result.pass = result.message.empty();
  return result;
}

std::string CaseResult::line() const {
  return fmt::format("{} {} out={:.2e} (allowed {:.0e}) state={:.2e} checkpoints={:.2e} (allowed {:.0e}){}{}", pass ? "ok" : "FAIL", variant, out,
                     tolerance.out, state, checkpoints, tolerance.state, message.empty() ? "" : ": ", message);
}

}  // namespace hyla::kda
