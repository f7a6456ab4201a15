#include "ops/extend/tests/case_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/numeric.h"

namespace hyla::extend {
namespace {

constexpr double kFp32Unit = 0x1p-23;

struct Prepared {
  CaseData data;
  ReferenceResult reference;
};
// The oracle is slow: a case is computed once for all variants.
const Prepared& prepare(const Case& c) {
  static std::map<std::string, Prepared> cache;
  auto found = cache.find(c.name);
  if (found == cache.end()) {
    CaseData data = make_data(c);
    ReferenceResult reference = hyla::extend::reference(data.args);
    found = cache.emplace(c.name, Prepared{std::move(data), std::move(reference)}).first;
  }
  return found->second;
}

struct Bytes {
  std::vector<uint8_t> out, lse;
  bool operator==(const Bytes&) const = default;
};

Status run_once(const Plan& plan, PlacedCase& placed, testing::Guarded& workspace, testing::Backend& backend, Bytes& bytes) {
  HYLA_RETURN_IF_ERROR(placed.poison_outputs());
  HYLA_RETURN_IF_ERROR(run(plan, placed.args(), {workspace.data(), workspace.bytes()}, backend.stream()));
  HYLA_RETURN_IF_ERROR(backend.synchronize());
  return placed.outputs(bytes.out, bytes.lse);
}

}  // namespace

Tolerance tolerance_of(DType dtype, DType out) {
  Tolerance t;
  switch (out == DType::kFp32 ? DType::kFp32 : dtype) {
    case DType::kBf16:
      t.rel_l2 = 0.004, t.element = 0.02;
      break;
    case DType::kFp16:
      t.rel_l2 = 0.0006, t.element = 0.003, t.step = 0x1p-24;
      break;
    default:
      t.rel_l2 = 4e-6, t.element = 4e-5;
      break;
  }
  return t;
}

Errors compare(const Args& host, const std::vector<uint8_t>& out, const std::vector<uint8_t>& lse, const ReferenceResult& reference, std::string& problem) {
  const int64_t rows = host.q.shape[0], Hq = host.q.shape[1], Lv = host.v.shape[2];
  const auto fault = [&](const char* what, int64_t row, int64_t head, double got, double want) {
    if (problem.empty()) problem = fmt::format("{} of row {} head {} is {}, not {}", what, row, head, got, want);
  };
  const double step = tolerance_of(host.q.dtype, host.out.dtype).step;
  Errors e;
  double error2 = 0, size2 = 0;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t head = 0; head < Hq; ++head) {
      const double* want = reference.out.data() + (row * Hq + head) * Lv;
      if (std::isnan(reference.lse[static_cast<size_t>(row * Hq + head)])) continue;  // a row of no request
      double row_max = 0, row_error = 0;
      for (int64_t c = 0; c < Lv; ++c) {
        const double got = load_float(out.data(), host.out.dtype, row * host.out.stride[0] + head * host.out.stride[1] + c);
        if (!std::isfinite(got) && std::isfinite(want[c])) fault("out", row, head, got, want[c]);
        const double error = std::abs(got - want[c]);
        error2 += error * error, size2 += want[c] * want[c];
        row_max = std::max(row_max, std::abs(want[c])), row_error = std::max(row_error, error);
      }
      if (row_max == 0 && row_error != 0) fault("out", row, head, row_error, 0);
      e.max_abs = std::max(e.max_abs, row_error);
      if (row_max > 0) e.element = std::max(e.element, std::max(0.0, row_error - step) / row_max);
      if (lse.empty()) continue;
      const double got = load_float(lse.data(), DType::kFp32, row * host.lse.stride[0] + head * host.lse.stride[1]),
                   want_lse = reference.lse[static_cast<size_t>(row * Hq + head)];
      if (std::isinf(want_lse) || !std::isfinite(got)) {
        if (got != want_lse) fault("lse", row, head, got, want_lse);
      } else {
        // fp32 sums of huge terms (a soft cap's hot scores) lose absolute precision before the cap brings them down.
        const double unavoidable = kFp32Unit * reference.score_size[static_cast<size_t>(row * Hq + head)];
        e.lse = std::max(e.lse, std::max(0.0, std::abs(got - want_lse) - unavoidable) / std::max(1.0, std::abs(want_lse)));
      }
    }
  e.rel_l2 = size2 > 0 ? std::sqrt(error2 / size2) : std::sqrt(error2);
  return e;
}

Outputs compute(const CaseData& data, const RunOptions& options, testing::Backend& backend) {
  Outputs o;
  PlacedCase placed(data, backend, 0);
  if (!placed.ok()) return o.status = Status(Code::kDevice, "memory", "room for the tensors", "none"), o;
  PlanOptions plan_options;
  plan_options.variant = options.variant, plan_options.splits = options.splits;
  const Result<Plan> plan = hyla::extend::plan(placed.args(), backend.caps(), plan_options);
  if (!plan.ok()) return o.status = plan.status(), o;
  o.variant = plan->variant;
  testing::Guarded workspace(backend, plan->workspace_bytes);
  if (!workspace.ok()) return o.status = Status(Code::kDevice, "memory", "room for the workspace", "none"), o;
  if (o.status = workspace.fill(0xFF); !o.status.ok()) return o;
  Bytes bytes;
  if (o.status = run_once(plan.value(), placed, workspace, backend, bytes); !o.status.ok()) return o;
  if (const std::string damage = placed.damage(); !damage.empty())
    return o.status = Status(Code::kDevice, "memory", "untouched inputs and canaries", damage), o;
  o.out_bytes = std::move(bytes.out), o.lse_bytes = std::move(bytes.lse);
  const Args& a = data.args;
  const int64_t rows = a.q.shape[0], Hq = a.q.shape[1], Lv = a.v.shape[2];
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t head = 0; head < Hq; ++head) {
      for (int64_t c = 0; c < Lv; ++c) o.out.push_back(load_float(o.out_bytes.data(), a.out.dtype, row * a.out.stride[0] + head * a.out.stride[1] + c));
      if (!o.lse_bytes.empty()) o.lse.push_back(load_float(o.lse_bytes.data(), DType::kFp32, row * a.lse.stride[0] + head * a.lse.stride[1]));
    }
  return o;
}

std::string CaseResult::line() const {
  if (!supported) return "not taken: " + message;
  std::string s = fmt::format("{} {} rel_l2={:.2e} max={:.2e} element={:.2e} lse={:.1e} (allowed {:.1e}, element {:.1e}, lse {:.0e})", pass ? "pass" : "FAIL",
                              variant, errors.rel_l2, errors.max_abs, errors.element, errors.lse, tolerance.rel_l2, tolerance.element, tolerance.lse);
  return message.empty() ? s : s + ": " + message;
}

CaseResult run_case(const Case& c, const RunOptions& options, testing::Backend& backend) {
  CaseResult result;
  result.tolerance = tolerance_of(c.dtype, c.out);
  const Prepared& prepared = prepare(c);
  PlacedCase placed(prepared.data, backend, static_cast<size_t>(c.shift));
  if (!placed.ok()) return result.message = "the tensors could not be placed", result;

  PlanOptions plan_options;
  plan_options.variant = options.variant, plan_options.splits = options.splits;
  const Result<Plan> plan = hyla::extend::plan(placed.args(), backend.caps(), plan_options);
  if (!plan.ok()) {
    const Code code = plan.status().code();
    // fp32 is computed on the CPU only, and refused at the door elsewhere.
    result.supported = !(code == Code::kUnsupported ||
                         (code == Code::kInvalidArgument && backend.device().kind == DeviceKind::kCuda && (c.dtype == DType::kFp32 || c.out == DType::kFp32)));
    return result.message = plan.status().message(), result;
  }
  result.variant = plan->variant, result.plan = plan->str();
  if (!options.variant.empty() && plan->variant != options.variant) return result.message = "the plan names another variant than was asked for", result;

  testing::Guarded workspace(backend, plan->workspace_bytes);
  if (!workspace.ok() || !workspace.fill(0xFF).ok()) return result.message = "no memory for the workspace", result;
  Bytes first, second;
  for (Bytes* bytes : {&first, &second})
    if (const Status status = run_once(plan.value(), placed, workspace, backend, *bytes); !status.ok()) return result.message = status.message(), result;
  result.errors = compare(prepared.data.args, first.out, first.lse, prepared.reference, result.message);
  if (!result.message.empty()) return result;
  if (!(first == second)) return result.message = "the second run gave other bits", result;
  if (!workspace.intact()) return result.message = "a canary around the workspace was overwritten", result;
  if (result.message = placed.damage(); !result.message.empty()) return result;
  const Errors& e = result.errors;
  if (!(e.rel_l2 <= result.tolerance.rel_l2)) result.message = "the output is too far from float64";
  else if (!(e.element <= result.tolerance.element)) result.message = "one value is too far from float64";
  else if (!(e.lse <= result.tolerance.lse)) result.message = "the LSE is too far from float64";
  result.pass = result.message.empty();
  return result;
}

CaseResult run_case(const Case& c, const std::string& variant, testing::Backend& backend) { return run_case(c, RunOptions{variant, 0}, backend); }

}  // namespace hyla::extend
