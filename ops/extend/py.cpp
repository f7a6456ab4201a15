// Python binding of extend attention.
#include "python/src/call.h"

#include "hyla/extend.h"

namespace nb = nanobind;

namespace hyla::extend {
namespace {

using Call = py::Call<Args, Plan>;
py::PlanCache<Problem, Plan> g_plans;

}  // namespace

void bind(nb::module_& m) {
  py::bind_call<Call, Plan>(m, "ExtendCall", "ExtendPlan", [](const Plan& p, const Args& a, Workspace w, Stream s) { return run(p, a, w, s); });
  m.def(
      "extend_call",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle k_buffer, nb::handle v_buffer, nb::handle qo_indptr, nb::handle kv_indptr, nb::handle kv_indices,
         int64_t max_extend, int64_t max_prefix, nb::handle custom_mask, nb::handle mask_indptr, bool skip_prefix_custom_mask, nb::handle window_kv_offsets,
         nb::handle sinks, nb::handle out, nb::handle lse, bool causal, int64_t sliding_window, double sm_scale, double logit_cap, double k_scale,
         double v_scale, int64_t xai_temperature_len, bool skip_prefix, bool skip_extend, const std::string& variant, int splits, bool debug_checks) {
        Call call;
        Args& a = call.args;
        a.q = py::to_view(q), a.k = py::to_view(k), a.v = py::to_view(v), a.k_buffer = py::to_view(k_buffer), a.v_buffer = py::to_view(v_buffer);
        a.qo_indptr = py::to_view(qo_indptr), a.kv_indptr = py::to_view(kv_indptr), a.kv_indices = py::to_view(kv_indices);
        a.max_extend = max_extend, a.max_prefix = max_prefix;
        a.custom_mask = py::to_view(custom_mask), a.mask_indptr = py::to_view(mask_indptr), a.skip_prefix_custom_mask = skip_prefix_custom_mask;
        a.window_kv_offsets = py::to_view(window_kv_offsets), a.sinks = py::to_view(sinks), a.out = py::to_view(out), a.lse = py::to_view(lse);
        a.causal = causal, a.sliding_window = sliding_window, a.sm_scale = static_cast<float>(sm_scale);
        a.logit_cap = static_cast<float>(logit_cap), a.k_scale = static_cast<float>(k_scale), a.v_scale = static_cast<float>(v_scale);
        a.xai_temperature_len = xai_temperature_len, a.skip_prefix = skip_prefix, a.skip_extend = skip_extend;
        const Problem problem = py::unwrap(make_problem(a));
        const PlanOptions options{.variant = variant, .splits = splits, .debug_checks = debug_checks};
        if (debug_checks) py::raise_if_error(check_contents(a));
        call.plan = g_plans.find(problem, variant, splits, [&] { return plan(problem, py::caps_of(problem.device), options); });
        return call;
      },
      nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("k_buffer").none(), nb::arg("v_buffer").none(), nb::arg("qo_indptr"), nb::arg("kv_indptr"),
      nb::arg("kv_indices"), nb::arg("max_extend"), nb::arg("max_prefix"), nb::arg("custom_mask").none(), nb::arg("mask_indptr").none(),
      nb::arg("skip_prefix_custom_mask"), nb::arg("window_kv_offsets").none(), nb::arg("sinks").none(), nb::arg("out"), nb::arg("lse").none(),
      nb::arg("causal"), nb::arg("sliding_window"), nb::arg("sm_scale"), nb::arg("logit_cap"), nb::arg("k_scale"), nb::arg("v_scale"),
      nb::arg("xai_temperature_len"), nb::arg("skip_prefix"), nb::arg("skip_extend"), nb::arg("variant"), nb::arg("splits"), nb::arg("debug_checks"));
  m.def("extend_variants", &variants);
}

}  // namespace hyla::extend
