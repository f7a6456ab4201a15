// Python binding of KDA prefill.
#include "python/src/call.h"

#include "hyla/kda.h"

namespace nb = nanobind;

namespace hyla::kda {
namespace {

using Call = py::Call<Args, Plan>;
py::PlanCache<Problem, Plan> g_plans;

Gate gate_from(const std::string& name) {
  if (name == "bounded") return Gate::kBounded;
  if (name == "unbounded") return Gate::kUnbounded;
  if (name == "given") return Gate::kGiven;
  py::raise_if_error(Status::invalid("gate", "'bounded', 'unbounded' or 'given'", "'" + name + "'"));
  return Gate::kBounded;
}

}  // namespace

void bind(nb::module_& m) {
  py::bind_call<Call, Plan>(m, "KdaCall", "KdaPlan", [](const Plan& p, const Args& a, Workspace w, Stream s) { return run(p, a, w, s); });
  m.def(
      "kda_call",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle g, nb::handle beta, nb::handle A_log, nb::handle dt_bias, nb::handle cu_seqlens,
         int64_t max_seqlen, nb::handle initial_state, nb::handle state_indices, nb::handle has_initial_state, int64_t lowest_valid_slot,
         nb::handle final_state, bool state_v_first, nb::handle checkpoints, nb::handle checkpoint_offsets, nb::handle checkpoint_indices, nb::handle out,
         const std::string& gate, double lower_bound, bool qk_l2norm, bool beta_is_logits, bool beta_doubled, double scale, const std::string& variant,
         int splits, bool debug_checks) {
        Call call;
        Args& a = call.args;
        a.q = py::to_view(q), a.k = py::to_view(k), a.v = py::to_view(v), a.g = py::to_view(g), a.beta = py::to_view(beta);
        a.A_log = py::to_view(A_log), a.dt_bias = py::to_view(dt_bias), a.cu_seqlens = py::to_view(cu_seqlens), a.max_seqlen = max_seqlen;
        a.initial_state = py::to_view(initial_state), a.state_indices = py::to_view(state_indices);
        a.has_initial_state = py::to_view(has_initial_state), a.lowest_valid_slot = lowest_valid_slot;
        a.final_state = py::to_view(final_state), a.state_layout = state_v_first ? StateLayout::kVFirst : StateLayout::kKFirst;
        a.checkpoints = py::to_view(checkpoints), a.checkpoint_offsets = py::to_view(checkpoint_offsets);
        a.checkpoint_indices = py::to_view(checkpoint_indices), a.out = py::to_view(out);
        a.gate = gate_from(gate), a.lower_bound = static_cast<float>(lower_bound), a.qk_l2norm = qk_l2norm;
        a.beta_is_logits = beta_is_logits, a.beta_doubled = beta_doubled, a.scale = static_cast<float>(scale);
        const Problem problem = py::unwrap(make_problem(a));
        const PlanOptions options{.variant = variant, .splits = splits, .debug_checks = debug_checks};
        if (debug_checks) py::raise_if_error(check_contents(a));
        call.plan = g_plans.find(problem, variant, splits, [&] { return plan(problem, py::caps_of(problem.device), options); });
        return call;
      },
      nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("g"), nb::arg("beta"), nb::arg("A_log").none(), nb::arg("dt_bias").none(), nb::arg("cu_seqlens").none(),
      nb::arg("max_seqlen"), nb::arg("initial_state").none(), nb::arg("state_indices").none(), nb::arg("has_initial_state").none(),
      nb::arg("lowest_valid_slot"), nb::arg("final_state").none(), nb::arg("state_v_first"), nb::arg("checkpoints").none(),
      nb::arg("checkpoint_offsets").none(), nb::arg("checkpoint_indices").none(), nb::arg("out"), nb::arg("gate"), nb::arg("lower_bound"), nb::arg("qk_l2norm"),
      nb::arg("beta_is_logits"), nb::arg("beta_doubled"), nb::arg("scale"), nb::arg("variant"), nb::arg("splits"), nb::arg("debug_checks"));
  m.def("kda_variants", &variants);
}

}  // namespace hyla::kda
