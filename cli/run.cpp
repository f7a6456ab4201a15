#include <fmt/format.h>

#include "cli/case_file.h"
#include "cli/commands.h"
#include "cli/report.h"

namespace hyla::cli {
namespace {

struct Options {
  std::string in, out;
  std::vector<std::string> cases;
  BackendChoice choice;
};

void results_of(const kda::Args& a, const std::string& name, std::map<std::string, TensorView>& out) {
  out[name + "/output"] = a.out;
  if (a.final_state.defined()) out[name + "/final_state"] = a.final_state;
  if (a.checkpoints.defined()) out[name + "/checkpoints"] = a.checkpoints;
}
void results_of(const extend::Args& a, const std::string& name, std::map<std::string, TensorView>& out) {
  out[name + "/output"] = a.out;
  if (a.lse.defined()) out[name + "/lse"] = a.lse;
}

int run_file(const Options& options, bool is_kda) {
  auto backend = open_backend(options.choice.backend);
  if (!backend.ok()) return fail(backend.status());
  auto file = SafetensorsFile::read(options.in);
  if (!file.ok()) return fail(file.status());
  auto cases = load_cases(file.value(), options.in, options.cases);
  if (!cases.ok()) return fail(cases.status());

  std::map<std::string, TensorView> results;
  std::map<std::string, std::string> metadata;
  std::string lines;
  Progress progress("running", cases->size());
  for (const FileCase& c : cases.value()) {
    progress.step(c.name);
    if (is_kda != std::holds_alternative<bench::KdaCase>(c.op)) {
      if (options.cases.empty()) continue;
      return fail(Status(Code::kIo, options.in + ": " + c.name, is_kda ? "a KDA case" : "an extend case", "one of the other operation"));
    }
    const Status status = std::visit(
        [&](const auto& host) -> Status {
          auto prepared = Prepared<std::decay_t<decltype(host.args)>>::make(host, *backend.value(), options.choice);
          if (!prepared.ok()) return prepared.status();
          HYLA_RETURN_IF_ERROR(prepared->compute());
          const Execution e = prepared->execution();
          results_of(host.args, c.name, results);
          metadata[c.name] = nlohmann::json{{"backend", e.backend}, {"variant", e.variant}, {"plan", e.plan}}.dump();
          lines += fmt::format("{}: {}\n", c.name, e.plan);
          for (const std::string& note : c.notes) lines += fmt::format("{}: {}\n", c.name, note);
          return {};
        },
        c.op);
    if (!status.ok()) return fail(Status(status.code(), fmt::format("{}: {}: {}", options.in, c.name, status.argument()), status.expected(), status.got()));
  }
  if (results.empty()) return fail(Status(Code::kIo, options.in, is_kda ? "a KDA case" : "an extend case", "none"));
  const Status written = write_safetensors(options.out, results, metadata);
  if (!written.ok()) return fail(written);
  fmt::print("{}{} tensors written to {}\n", lines, results.size(), options.out);
  return kOk;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("run", "Compute the cases of a safetensors file and write the results to another");
  command->require_subcommand(1);
  for (const bool is_kda : {true, false}) {
    auto* op =
        command->add_subcommand(is_kda ? "kda" : "extend", is_kda ? "Kimi Delta Attention: output, final state, checkpoints" : "extend attention: output, LSE");
    auto options = std::make_shared<Options>();
    op->add_option("--in", options->in, "inputs, as for `hyla check`")->required();
    op->add_option("--out", options->out, "results, named <case>/output, <case>/final_state, ...")->required();
    op->add_option("--case", options->cases, "only these cases");
    add_backend_options(*op, options->choice);
    op->callback([&action, options, is_kda] { action = [options, is_kda] { return run_file(*options, is_kda); }; });
  }
}

}  // namespace hyla::cli
