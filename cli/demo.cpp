#include <fmt/format.h>

#include "benchlib/errors.h"
#include "benchlib/presets.h"
#include "cli/case_file.h"
#include "cli/commands.h"
#include "cli/measure.h"
#include "cli/paths.h"
#include "cli/report.h"

namespace hyla::cli {
namespace {

std::string rate(double value) { return value < 99.95 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value); }

// Appends "time, TFLOP/s, GB/s, error, variant" of a measured row.
void add_row(Table& table, std::vector<std::string> cells, const nlohmann::json& row, size_t& failed, std::vector<std::string>& reasons,
             const std::string& name) {
  if (!row["pass"]) {
    ++failed;
    reasons.push_back(name + ": " + row["error"].get<std::string>());
    cells.insert(cells.end(), {"FAILED", "", "", row.contains("rel_l2") ? fmt::format("{:.1e}", row["rel_l2"].get<double>()) : "", row.value("variant", "")});
  } else {
    cells.insert(cells.end(), {milliseconds(row["graph_ms"]), rate(row["useful_tflops"]), rate(row["gbps"]), fmt::format("{:.1e}", row["rel_l2"].get<double>()),
                               row["variant"].get<std::string>()});
  }
  table.add(std::move(cells));
}

// The tensors of a layer that read English text, against its stored float64 result and the framework's own.
int captured_layer(testing::Backend& backend, const BackendChoice& choice, size_t& failed) {
  const std::string path = find_data("kda_layer_text.safetensors");
  if (path.empty())
    return fail(Status(Code::kIo, "kda_layer_text.safetensors", "in share/hyla beside the program, in the source tree, or under HYLA_DATA", "none"));
  auto file = SafetensorsFile::read(path);
  if (!file.ok()) return fail(file.status());
  auto cases = load_cases(file.value(), path, {});
  if (!cases.ok()) return fail(cases.status());
  for (const FileCase& c : cases.value()) {
    const auto* host = std::get_if<bench::KdaCase>(&c.op);
    if (host == nullptr) continue;
    auto prepared = Prepared<kda::Args>::make(*host, backend, choice);
    if (!prepared.ok()) return fail(prepared.status());
    if (const Status status = prepared->compute(); !status.ok()) return fail(status);
    const auto error_of = [&](const TensorView& got, const TensorView& want) { return bench::compare(got, bench::as_doubles(want).data()).rel_l2(); };
    const double output = error_of(host->args.out, c.stored.at("output")), state = error_of(host->args.final_state, c.stored.at("state"));
    const bool pass = output <= bench::kda_tolerance() && state <= bench::kda_tolerance();
    failed += !pass;
    const auto timing = time_case(*host, backend, choice, prepared.value());
    if (!timing.ok()) return fail(timing.status());
    fmt::print(
        "A KDA layer that read English text (B=1 T={} H={}): {}, error of the output {:.1e}, of the final state {:.1e}{}\n", host->args.q.shape[1],
        host->args.v.shape[2], pass ? milliseconds(timing->graph_ms) : "FAILED", output, state,
        c.other.count("fla_output") ? fmt::format("; the framework's own output: {:.1e}", error_of(c.other.at("fla_output"), c.stored.at("output"))) : "");
  }
  return kOk;
}

int demo(const BackendChoice& choice) {
  auto opened = open_backend(choice.backend);
  if (!opened.ok()) return fail(opened.status());
  testing::Backend& backend = *opened.value();
  const DeviceCaps caps = backend.caps();
  const bool cpu = caps.kind == DeviceKind::kCpu;
  fmt::print("hyla {} on {} ({} {}){}\n\n", HYLA_VERSION, caps.name, caps.sm_count, cpu ? "threads" : "SMs",
             cpu && built_with_cuda() ? "; the CUDA kernels are built, but there is no usable GPU" : "");
  bench::TimerOptions timer;
  if (cpu) timer.least_ms = 100;
  size_t failed = 0;
  std::vector<std::string> reasons;
  const auto kda_list = bench::kda_demo(cpu);
  const auto extend_list = bench::extend_demo(cpu);

  Table kda_table({"model", "B", "H", "T", "time", "useful TFLOP/s", "GB/s", "error", "variant"});
  {
    Progress progress("KDA", kda_list.size());
    for (const auto& [model, shape] : kda_list) {
      progress.step(name_of(shape));
      add_row(kda_table, {model, std::to_string(shape.B), std::to_string(shape.HV), std::to_string(shape.T)}, measure(shape, backend, choice, {}, timer),
              failed, reasons, name_of(shape));
    }
  }
  fmt::print("KDA prefill\n{}\n", kda_table.str());
  Table extend_table({"model", "batch", "n", "prefix", "heads", "head_dim", "time", "useful TFLOP/s", "GB/s", "error", "variant"});
  {
    Progress progress("extend attention", extend_list.size());
    for (const auto& [model, s] : extend_list) {
      progress.step(name_of(s));
      add_row(extend_table,
              {model, std::to_string(s.batch), std::to_string(s.n), std::to_string(s.prefix), fmt::format("{}/{}", s.Hq, s.Hkv),
               s.Lq == s.Lv ? std::to_string(s.Lq) : fmt::format("{}/{}", s.Lq, s.Lv)},
              measure(s, backend, choice, {}, timer), failed, reasons, name_of(s));
    }
  }
  fmt::print("Extend attention\n{}\n", extend_table.str());
  if (const int code = captured_layer(backend, choice, failed); code != kOk) return code;
  for (const std::string& reason : reasons) fmt::print("{}\n", reason);
  fmt::print(
      "\nError: relative L2 against float64 on sampled heads and rows. Useful TFLOP/s: KDA 6 K V per token and head; attention 2 (Lq + Lv) per visible pair "
      "and head.\n");
  return failed ? kFailed : kOk;
}

}  // namespace

void add_demo(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("demo", "Run both operations on shapes of real models and on a captured layer: time, rates, error");
  auto choice = std::make_shared<BackendChoice>();
  command->add_option("--backend", choice->backend, "auto, cpu or cuda")->check(CLI::IsMember({"auto", "cpu", "cuda"}))->capture_default_str();
  command->callback([&action, choice] { action = [choice] { return demo(*choice); }; });
}

}  // namespace hyla::cli
