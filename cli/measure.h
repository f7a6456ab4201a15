// One row of a result file: runs a shape, checks it against float64, and only then times it.
#pragma once
#include <nlohmann/json.hpp>

#include "benchlib/check.h"
#include "benchlib/inputs.h"
#include "benchlib/model.h"
#include "benchlib/peers.h"
#include "cli/execute.h"

namespace hyla::cli {

// The row's time and rates are absent when its check failed or nothing computes it ("error" says why).
template <class Shape>
nlohmann::json measure(const Shape& shape, testing::Backend& backend, const BackendChoice& choice, const bench::Peers& peers,
                       const bench::TimerOptions& timer = {}) {
  nlohmann::json row = {{"op", op_name(shape)}, {"shape", to_json(shape)}, {"pass", false}};
  row["peers"] = peers.serve(backend.caps()) ? peers.find(op_name(shape), row["shape"]) : nlohmann::json::object();
  const auto failed = [&](const Status& status) {
    row["error"] = status.message();
    return row;
  };
  auto host = bench::make_inputs(shape);
  auto prepared = Prepared<std::decay_t<decltype(host.args)>>::make(host, backend, choice);
  if (!prepared.ok()) return failed(prepared.status());
  row["backend"] = backend.name(), row["variant"] = prepared->execution().variant, row["plan"] = prepared->execution().plan;
  row["modelled_ms"] = prepared->the_plan().modelled_us / 1e3;
  if (const Status status = prepared->compute(); !status.ok()) return failed(status);
  const std::vector<bench::Measured> checks = bench::check_sample(host.args);
  for (const bench::Measured& m : checks) {
    row[m.what == "output" ? "rel_l2" : m.what + (m.absolute ? "_max_abs" : "_rel_l2")] = m.absolute ? m.max_abs : m.rel_l2;
    if (m.what == "output") row["tolerance"] = m.tolerance;
  }
  if (!all_pass(checks)) {
    row["error"] = "the result differs from float64 by more than the tolerance";
    return row;
  }
  row["pass"] = true;
  const auto timing = time_case(host, backend, choice, prepared.value(), timer);
  if (!timing.ok()) {
    row["pass"] = false;
    return failed(timing.status());
  }
  const bench::Work work = bench::work_of(shape);
  row["graph_ms"] = timing->graph_ms, row["call_ms"] = timing->call_ms, row["host_us"] = timing->host_us, row["spread"] = timing->spread;
  row["gbps"] = work.bytes / timing->graph_ms / 1e6, row["useful_tflops"] = work.flop / timing->graph_ms / 1e9;
  row["floor_ms"] = bench::floor_ms(work, backend.caps());
  return row;
}

}  // namespace hyla::cli
