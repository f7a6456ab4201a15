#include <fmt/format.h>

#include <cmath>

#include "benchlib/check.h"
#include "benchlib/errors.h"
#include "cli/case_file.h"
#include "cli/commands.h"
#include "cli/report.h"

namespace hyla::cli {
namespace {

struct Options {
  std::vector<std::string> files, cases;
  BackendChoice choice;
  bool as_json = false;
};

struct Line {
  std::string against;  // "float64", "stored", "fla_output"
  bench::Measured measured;
  bool counts = true;  // other implementations' results are shown, not judged
};

TensorView output_named(const kda::Args& a, const std::string& what) {
  return what == "output" ? a.out : what == "state" ? a.final_state : what == "checkpoints" ? a.checkpoints : TensorView{};
}
TensorView output_named(const extend::Args& a, const std::string& what) { return what == "output" ? a.out : what == "lse" ? a.lse : TensorView{}; }
double tolerance_of(const kda::Args&) { return bench::kda_tolerance(); }
double tolerance_of(const extend::Args& a) { return bench::extend_tolerance(a.q.dtype, a.out.dtype); }

// Same numbers of elements in the same order: a stored tensor may have the batch dimension or not.
Result<bench::Measured> against_tensor(const std::string& file, const std::string& name, const std::string& what, const TensorView& got, const TensorView& want,
                                       double tolerance) {
  if (got.numel() != want.numel())
    return Status(Code::kIo, fmt::format("{}: {}: {}", file, name, what), shape_string(got) + " (the result's shape)", shape_string(want));
  const bench::ErrorSum sum = bench::compare(got, bench::as_doubles(want).data());
  bench::Measured m{what, sum.rel_l2(), sum.max_abs, tolerance};
  if (what == "lse") m.absolute = true, m.tolerance = bench::kLseTolerance, m.max_scaled = sum.not_finite ? INFINITY : sum.max_scaled;
  return m;
}

template <class Args>
Result<std::vector<Line>> lines_of(const std::string& file, const FileCase& c, const Args& args) {
  std::vector<Line> lines;
  for (const bench::Measured& m : bench::check_all(args)) lines.push_back({"float64", m});
  for (const auto& [what, tensor] : c.stored) {
    const TensorView got = output_named(args, what);
    if (!got.defined()) continue;
    auto m = against_tensor(file, c.name, what, got, tensor, tolerance_of(args));
    if (!m.ok()) return m.status();
    lines.push_back({"stored", m.value()});
  }
  for (const auto& [name, tensor] : c.other) {
    auto m = against_tensor(file, c.name, "output", args.out, tensor, tolerance_of(args));
    if (!m.ok()) return m.status();
    lines.push_back({name, m.value(), false});
  }
  return lines;
}

int check(const Options& options) {
  auto backend = open_backend(options.choice.backend);
  if (!backend.ok()) return fail(backend.status());
  // Everything is read and checked before anything runs.
  std::vector<std::pair<std::string, std::vector<FileCase>>> files;
  std::vector<SafetensorsFile> kept;
  size_t total = 0;
  for (const std::string& path : options.files) {
    auto file = SafetensorsFile::read(path);
    if (!file.ok()) return fail(file.status());
    auto cases = load_cases(file.value(), path, options.cases);
    if (!cases.ok()) return fail(cases.status());
    total += cases->size();
    files.emplace_back(path, std::move(cases).value());
    kept.push_back(std::move(file).value());
  }

  nlohmann::json results = nlohmann::json::array();
  Table table({"case", "backend", "variant", "result", "against", "rel L2", "max error", "tolerance", ""});
  Progress progress("checking", total);
  size_t failed = 0;
  for (const auto& [path, cases] : files)
    for (const FileCase& c : cases) {
      progress.step(c.name);
      Execution execution;
      std::vector<Line> lines;
      const Status status = std::visit(
          [&, &path = path](const auto& host) -> Status {
            auto prepared = Prepared<std::decay_t<decltype(host.args)>>::make(host, *backend.value(), options.choice);
            if (!prepared.ok()) return prepared.status();
            execution = prepared->execution();
            HYLA_RETURN_IF_ERROR(prepared->compute());
            auto list = lines_of(path, c, host.args);
            if (!list.ok()) return list.status();
            lines = std::move(list).value();
            return {};
          },
          c.op);
      if (!status.ok()) return fail(Status(status.code(), fmt::format("{}: {}: {}", path, c.name, status.argument()), status.expected(), status.got()));
      bool pass = true;
      nlohmann::json json_lines = nlohmann::json::array();
      for (const Line& line : lines) {
        const bench::Measured& m = line.measured;
        pass = pass && (m.pass() || !line.counts);
        table.add({&line == &lines[0] ? c.name : "", execution.backend, execution.variant, m.what, line.against, fmt::format("{:.2e}", m.rel_l2),
                   fmt::format("{:.2e}", m.max_abs), line.counts ? fmt::format("{:.0e}{}", m.tolerance, m.absolute ? " abs" : "") : "-",
                   !line.counts ? ""
                   : m.pass()   ? "pass"
                                : "FAIL"});
        json_lines.push_back({{"result", m.what},
                              {"against", line.against},
                              {"rel_l2", m.rel_l2},
                              {"max_abs", m.max_abs},
                              {"tolerance", m.tolerance},
                              {"judged", line.counts},
                              {"pass", m.pass()}});
      }
      failed += !pass;
      results.push_back({{"file", path},
                         {"case", c.name},
                         {"backend", execution.backend},
                         {"variant", execution.variant},
                         {"plan", execution.plan},
                         {"notes", c.notes},
                         {"results", json_lines},
                         {"pass", pass}});
    }
  if (options.as_json) {
    fmt::print("{}\n", results.dump(1));
  } else {
    fmt::print("{}{} of {} cases pass\n", table.str(5), total - failed, total);
  }
  return failed == 0 ? kOk : kFailed;
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("check", "Run the cases of safetensors files and compare with the stored results and with float64; exit code 1 if any fails");
  auto options = std::make_shared<Options>();
  command->add_option("files", options->files, "files with tensors <case>/<tensor> and each case's arguments as JSON in the metadata")->required();
  command->add_option("--case", options->cases, "only these cases");
  command->add_flag("--json", options->as_json, "print JSON");
  add_backend_options(*command, options->choice);
  command->callback([&action, options] { action = [options] { return check(*options); }; });
}

}  // namespace hyla::cli
