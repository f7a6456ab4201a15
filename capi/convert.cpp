#include "capi/convert.h"

#include <algorithm>

namespace hyla::capi {
namespace {

template <size_t kSize>
void copy_text(char (&to)[kSize], const std::string& from) {
  const size_t n = std::min(from.size(), kSize - 1);
  std::memcpy(to, from.data(), n);
  to[n] = 0;
}

hyla_code code_of(Code code) {
  switch (code) {
    case Code::kOk:
      return HYLA_OK;
    case Code::kInvalidArgument:
      return HYLA_INVALID_ARGUMENT;
    case Code::kUnsupported:
      return HYLA_UNSUPPORTED;
    case Code::kWorkspace:
      return HYLA_WORKSPACE;
    case Code::kPlanMismatch:
      return HYLA_PLAN_MISMATCH;
    case Code::kDevice:
      return HYLA_DEVICE_ERROR;
    case Code::kIo:
      return HYLA_IO;
  }
  return HYLA_INTERNAL;
}

}  // namespace

hyla_code report(const Status& status, hyla_error* error) {
  if (error != nullptr) {
    copy_text(error->argument, status.argument());
    copy_text(error->expected, status.expected());
    copy_text(error->got, status.got());
    copy_text(error->message, status.message());
  }
  return code_of(status.code());
}

Status check_choice(const char* argument, int32_t value, int32_t last) {
  if (value >= 0 && value <= last) return {};
  return Status::invalid(argument, "0 .. " + std::to_string(last), std::to_string(value));
}

Result<TensorView> to_view(const char* argument, const hyla_tensor& t) {
  TensorView view;
  if (t.rank == 0) return view;
  const std::string name = argument;
  if (t.rank < 0 || t.rank > HYLA_MAX_RANK) return Status::invalid(name + ".rank", "0 .. 5", std::to_string(t.rank));
  HYLA_RETURN_IF_ERROR(check_choice((name + ".dtype").c_str(), t.dtype, HYLA_BOOL));
  HYLA_RETURN_IF_ERROR(check_choice((name + ".device_kind").c_str(), t.device_kind, HYLA_CUDA));
  view.data = t.data;
  view.dtype = static_cast<DType>(t.dtype);
  view.rank = t.rank;
  for (int d = 0; d < t.rank; ++d) view.shape[d] = t.shape[d], view.stride[d] = t.stride[d];
  view.device = {static_cast<DeviceKind>(t.device_kind), t.device_index};
  return view;
}

Result<PlanOptions> to_options(const hyla_plan_options* options) {
  PlanOptions result;
  if (options == nullptr) return result;
  hyla_plan_options o;
  hyla_plan_options_init(&o);
  HYLA_RETURN_IF_ERROR(read_versioned("options", options, o));
  if (o.variant != nullptr) result.variant = o.variant;
  result.splits = o.splits;
  result.debug_checks = o.debug_checks != 0;
  return result;
}

}  // namespace hyla::capi
