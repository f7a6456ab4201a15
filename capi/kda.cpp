#include "hyla/kda.h"

#include "capi/convert.h"

using hyla::PlanOptions;
using hyla::Result;
using hyla::Status;

struct hyla_kda_plan {
  hyla::kda::Plan plan;
  std::string text;
};

namespace hyla::kda {
namespace {

constexpr struct {
  const char* name;
  hyla_tensor hyla_kda_args::*from;
  TensorView Args::*to;
} kTensors[] = {{"q", &hyla_kda_args::q, &Args::q},
                {"k", &hyla_kda_args::k, &Args::k},
                {"v", &hyla_kda_args::v, &Args::v},
                {"g", &hyla_kda_args::g, &Args::g},
                {"beta", &hyla_kda_args::beta, &Args::beta},
                {"A_log", &hyla_kda_args::A_log, &Args::A_log},
                {"dt_bias", &hyla_kda_args::dt_bias, &Args::dt_bias},
                {"cu_seqlens", &hyla_kda_args::cu_seqlens, &Args::cu_seqlens},
                {"initial_state", &hyla_kda_args::initial_state, &Args::initial_state},
                {"state_indices", &hyla_kda_args::state_indices, &Args::state_indices},
                {"has_initial_state", &hyla_kda_args::has_initial_state, &Args::has_initial_state},
                {"final_state", &hyla_kda_args::final_state, &Args::final_state},
                {"checkpoints", &hyla_kda_args::checkpoints, &Args::checkpoints},
                {"checkpoint_offsets", &hyla_kda_args::checkpoint_offsets, &Args::checkpoint_offsets},
                {"checkpoint_indices", &hyla_kda_args::checkpoint_indices, &Args::checkpoint_indices},
                {"out", &hyla_kda_args::out, &Args::out}};

Result<Args> to_args(const hyla_kda_args* from) {
  hyla_kda_args c;
  hyla_kda_args_init(&c);
  HYLA_RETURN_IF_ERROR(capi::read_versioned("args", from, c));
  Args a;
  for (const auto& t : kTensors) {
    Result<TensorView> view = capi::to_view(t.name, c.*t.from);
    if (!view.ok()) return view.status();
    a.*t.to = view.value();
  }
  HYLA_RETURN_IF_ERROR(capi::check_choice("state_layout", c.state_layout, HYLA_KDA_V_FIRST));
  HYLA_RETURN_IF_ERROR(capi::check_choice("gate", c.gate, HYLA_KDA_GIVEN));
  a.state_layout = static_cast<StateLayout>(c.state_layout);
  a.gate = static_cast<Gate>(c.gate);
  a.max_seqlen = c.max_seqlen;
  a.lowest_valid_slot = c.lowest_valid_slot;
  a.lower_bound = c.lower_bound;
  a.scale = c.scale;
  a.qk_l2norm = c.qk_l2norm != 0;
  a.beta_is_logits = c.beta_is_logits != 0;
  a.beta_doubled = c.beta_doubled != 0;
  return a;
}

// What can_run and plan share: everything converted, nothing null.
struct Request {
  Args args;
  PlanOptions options;
};
Result<Request> to_request(const hyla_kda_args* args, const hyla_caps* caps, const hyla_plan_options* options) {
  if (caps == nullptr) return Status::invalid("caps", "a pointer", "null");
  Result<Args> a = to_args(args);
  if (!a.ok()) return a.status();
  Result<PlanOptions> o = capi::to_options(options);
  if (!o.ok()) return o.status();
  return Request{a.value(), o.value()};
}

}  // namespace
}  // namespace hyla::kda

extern "C" {

void hyla_kda_args_init(hyla_kda_args* args) {
  const hyla::kda::Args defaults;
  *args = {};
  args->struct_size = sizeof(*args);
  args->max_seqlen = defaults.max_seqlen;
  args->lowest_valid_slot = defaults.lowest_valid_slot;
  args->lower_bound = defaults.lower_bound;
  args->scale = defaults.scale;
  args->qk_l2norm = defaults.qk_l2norm;
  args->beta_is_logits = defaults.beta_is_logits;
  args->beta_doubled = defaults.beta_doubled;
  args->state_layout = static_cast<int32_t>(defaults.state_layout);
  args->gate = static_cast<int32_t>(defaults.gate);
}

hyla_code hyla_kda_can_run(const hyla_kda_args* args, const hyla_caps* caps, const hyla_plan_options* options, hyla_error* error) {
  return hyla::capi::guarded(error, [&]() -> Status {
    const auto request = hyla::kda::to_request(args, caps, options);
    return request.ok() ? hyla::kda::can_run(request->args, caps->caps, request->options) : request.status();
  });
}

hyla_code hyla_kda_plan_create(const hyla_kda_args* args, const hyla_caps* caps, const hyla_plan_options* options, hyla_kda_plan** plan, hyla_error* error) {
  return hyla::capi::guarded(error, [&]() -> Status {
    if (plan == nullptr) return Status::invalid("plan", "a pointer", "null");
    *plan = nullptr;
    const auto request = hyla::kda::to_request(args, caps, options);
    if (!request.ok()) return request.status();
    auto made = hyla::kda::plan(request->args, caps->caps, request->options);
    if (!made.ok()) return made.status();
    std::string text = made->str();
    *plan = new hyla_kda_plan{std::move(made).value(), std::move(text)};
    return {};
  });
}

const char* hyla_kda_plan_describe(const hyla_kda_plan* plan) { return plan->text.c_str(); }
const char* hyla_kda_plan_variant(const hyla_kda_plan* plan) { return plan->plan.variant.c_str(); }
size_t hyla_kda_plan_workspace_bytes(const hyla_kda_plan* plan) { return plan->plan.workspace_bytes; }
void hyla_kda_plan_free(hyla_kda_plan* plan) { delete plan; }

hyla_code hyla_kda_run(const hyla_kda_plan* plan, const hyla_kda_args* args, void* workspace, size_t workspace_bytes, void* stream, hyla_error* error) {
  return hyla::capi::guarded(error, [&]() -> Status {
    if (plan == nullptr) return Status::invalid("plan", "a pointer", "null");
    const auto a = hyla::kda::to_args(args);
    return a.ok() ? hyla::kda::run(plan->plan, a.value(), {workspace, workspace_bytes}, {stream}) : a.status();
  });
}

hyla_code hyla_kda_check_contents(const hyla_kda_args* args, hyla_error* error) {
  return hyla::capi::guarded(error, [&]() -> Status {
    const auto a = hyla::kda::to_args(args);
    return a.ok() ? hyla::kda::check_contents(a.value()) : a.status();
  });
}

}  // extern "C"
