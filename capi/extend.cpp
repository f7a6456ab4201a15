#include "hyla/extend.h"

#include "capi/convert.h"

using hyla::PlanOptions;
using hyla::Result;
using hyla::Status;

struct hyla_extend_plan {
  hyla::extend::Plan plan;
  std::string text;
};

namespace hyla::extend {
namespace {

constexpr struct {
  const char* name;
  hyla_tensor hyla_extend_args::*from;
  TensorView Args::*to;
} kTensors[] = {{"q", &hyla_extend_args::q, &Args::q},
                {"k", &hyla_extend_args::k, &Args::k},
                {"v", &hyla_extend_args::v, &Args::v},
                {"k_buffer", &hyla_extend_args::k_buffer, &Args::k_buffer},
                {"v_buffer", &hyla_extend_args::v_buffer, &Args::v_buffer},
                {"qo_indptr", &hyla_extend_args::qo_indptr, &Args::qo_indptr},
                {"kv_indptr", &hyla_extend_args::kv_indptr, &Args::kv_indptr},
                {"kv_indices", &hyla_extend_args::kv_indices, &Args::kv_indices},
                {"custom_mask", &hyla_extend_args::custom_mask, &Args::custom_mask},
                {"mask_indptr", &hyla_extend_args::mask_indptr, &Args::mask_indptr},
                {"window_kv_offsets", &hyla_extend_args::window_kv_offsets, &Args::window_kv_offsets},
                {"sinks", &hyla_extend_args::sinks, &Args::sinks},
                {"out", &hyla_extend_args::out, &Args::out},
                {"lse", &hyla_extend_args::lse, &Args::lse}};

Result<Args> to_args(const hyla_extend_args* from) {
  hyla_extend_args c;
  hyla_extend_args_init(&c);
  HYLA_RETURN_IF_ERROR(capi::read_versioned("args", from, c));
  Args a;
  for (const auto& t : kTensors) {
    Result<TensorView> view = capi::to_view(t.name, c.*t.from);
    if (!view.ok()) return view.status();
    a.*t.to = view.value();
  }
  a.max_extend = c.max_extend;
  a.max_prefix = c.max_prefix;
  a.sliding_window = c.sliding_window;
  a.xai_temperature_len = c.xai_temperature_len;
  a.sm_scale = c.sm_scale;
  a.logit_cap = c.logit_cap;
  a.k_scale = c.k_scale;
  a.v_scale = c.v_scale;
  a.causal = c.causal != 0;
  a.skip_prefix_custom_mask = c.skip_prefix_custom_mask != 0;
  a.skip_prefix = c.skip_prefix != 0;
  a.skip_extend = c.skip_extend != 0;
  return a;
}

// What can_run and plan share: everything converted, nothing null.
struct Request {
  Args args;
  PlanOptions options;
};
Result<Request> to_request(const hyla_extend_args* args, const hyla_caps* caps, const hyla_plan_options* options) {
  if (caps == nullptr) return Status::invalid("caps", "a pointer", "null");
  Result<Args> a = to_args(args);
  if (!a.ok()) return a.status();
  Result<PlanOptions> o = capi::to_options(options);
  if (!o.ok()) return o.status();
  return Request{a.value(), o.value()};
}

}  // namespace
}  // namespace hyla::extend

extern "C" {

void hyla_extend_args_init(hyla_extend_args* args) {
  const hyla::extend::Args defaults;
  *args = {};
  args->struct_size = sizeof(*args);
  args->max_extend = defaults.max_extend;
  args->max_prefix = defaults.max_prefix;
  args->sliding_window = defaults.sliding_window;
  args->xai_temperature_len = defaults.xai_temperature_len;
  args->sm_scale = defaults.sm_scale;
  args->logit_cap = defaults.logit_cap;
  args->k_scale = defaults.k_scale;
  args->v_scale = defaults.v_scale;
  args->causal = defaults.causal;
  args->skip_prefix_custom_mask = defaults.skip_prefix_custom_mask;
  args->skip_prefix = defaults.skip_prefix;
  args->skip_extend = defaults.skip_extend;
}

hyla_code hyla_extend_can_run(const hyla_extend_args* args, const hyla_caps* caps, const hyla_plan_options* options, hyla_error* error) {
  return hyla::capi::guarded(error, [&]() -> Status {
    const auto request = hyla::extend::to_request(args, caps, options);
    return request.ok() ? hyla::extend::can_run(request->args, caps->caps, request->options) : request.status();
  });
}

hyla_code hyla_extend_plan_create(const hyla_extend_args* args, const hyla_caps* caps, const hyla_plan_options* options, hyla_extend_plan** plan,
                                  hyla_error* error) {
  return hyla::capi::guarded(error, [&]() -> Status {
    if (plan == nullptr) return Status::invalid("plan", "a pointer", "null");
    *plan = nullptr;
    const auto request = hyla::extend::to_request(args, caps, options);
    if (!request.ok()) return request.status();
    auto made = hyla::extend::plan(request->args, caps->caps, request->options);
    if (!made.ok()) return made.status();
    std::string text = made->str();
    *plan = new hyla_extend_plan{std::move(made).value(), std::move(text)};
    return {};
  });
}

const char* hyla_extend_plan_describe(const hyla_extend_plan* plan) { return plan->text.c_str(); }
const char* hyla_extend_plan_variant(const hyla_extend_plan* plan) { return plan->plan.variant.c_str(); }
size_t hyla_extend_plan_workspace_bytes(const hyla_extend_plan* plan) { return plan->plan.workspace_bytes; }
void hyla_extend_plan_free(hyla_extend_plan* plan) { delete plan; }

hyla_code hyla_extend_run(const hyla_extend_plan* plan, const hyla_extend_args* args, void* workspace, size_t workspace_bytes, void* stream,
                          hyla_error* error) {
  return hyla::capi::guarded(error, [&]() -> Status {
    if (plan == nullptr) return Status::invalid("plan", "a pointer", "null");
    const auto a = hyla::extend::to_args(args);
    return a.ok() ? hyla::extend::run(plan->plan, a.value(), {workspace, workspace_bytes}, {stream}) : a.status();
  });
}

hyla_code hyla_extend_check_contents(const hyla_extend_args* args, hyla_error* error) {
  return hyla::capi::guarded(error, [&]() -> Status {
    const auto a = hyla::extend::to_args(args);
    return a.ok() ? hyla::extend::check_contents(a.value()) : a.status();
  });
}

}  // extern "C"
