#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "benchlib/presets.h"
#include "cli/commands.h"
#include "cli/measure.h"
#include "cli/paths.h"
#include "cli/record.h"
#include "cli/report.h"

namespace hyla::cli {
namespace {

using nlohmann::json;

struct Options {
  std::vector<std::string> presets, shapes;
  BackendChoice choice;
  std::string json_path, peers;
  double max_time = 0;
  int64_t max_tokens = 0;
  bool resume = false;
};

std::string column_of(const bench::KdaShape& s) { return s.seqlens.empty() ? fmt::format("{}", s.T) : "packed"; }
std::string column_of(const bench::ExtendShape& s) {
  return fmt::format("{}{}{}", s.batch > 1 ? fmt::format("{}x", s.batch) : "", s.n, s.prefix ? fmt::format("+{}", s.prefix) : "");
}
int64_t tokens_of(const bench::KdaShape& s) { return s.B * s.T; }
int64_t tokens_of(const bench::ExtendShape& s) { return s.batch * (s.n + s.prefix); }
int64_t blocks_of(const bench::KdaShape& s) { return std::max<int64_t>(s.B, static_cast<int64_t>(s.seqlens.size())) * s.HV; }
int64_t blocks_of(const bench::ExtendShape&) { return 0; }

std::string cell_of(const json& row) {
  if (!row["pass"]) return row.contains("rel_l2") ? "FAILED" : "none";
  const double ms = row["graph_ms"];
  std::string text = milliseconds(ms);
  if (const auto peer = bench::best_peer(row)) {
    const double ratio = peer->graph_ms / ms;
    text += fmt::format(" {:.{}f}x{}", ratio, ratio < 9.95 ? 2 : 1, ratio < 1 ? "!" : " ");
  } else {
    text += " · ";
  }
  return text;
}

// Rows: groups; columns: lengths. A rule stands where the heads of a row pass the number of multiprocessors.
template <class Shape>
std::string grid_of(const std::vector<bench::Named<Shape>>& list, const json& rows, int sm_count) {
  std::vector<std::string> columns, groups;
  for (const auto& item : list) {
    if (std::find(columns.begin(), columns.end(), column_of(item.shape)) == columns.end()) columns.push_back(column_of(item.shape));
    if (std::find(groups.begin(), groups.end(), item.group) == groups.end()) groups.push_back(item.group);
  }
  if constexpr (std::is_same_v<Shape, bench::KdaShape>)
    std::stable_sort(columns.begin(), columns.end(), [](const std::string& a, const std::string& b) { return std::atoll(a.c_str()) < std::atoll(b.c_str()); });
  std::vector<std::string> header{std::is_same_v<Shape, bench::KdaShape> ? "T" : "new+prefix"};
  header.insert(header.end(), columns.begin(), columns.end());
  Table table(header);
  bool ruled = false;
  for (const std::string& group : groups) {
    std::vector<std::string> cells{group};
    int64_t blocks = 0;
    for (const std::string& column : columns) {
      std::string cell = "·";
      for (const auto& item : list)
        if (item.group == group && column_of(item.shape) == column) {
          blocks = blocks_of(item.shape);
          for (const json& row : rows)
            if (row["op"] == op_name(item.shape) && row["shape"] == to_json(item.shape)) cell = cell_of(row);
        }
      cells.push_back(cell);
    }
    if (!ruled && sm_count > 0 && blocks > sm_count) {
      table.rule();
      ruled = true;
    }
    table.add(cells);
  }
  return table.str();
}

template <class Shape>
int sweep(const Options& options, const std::vector<bench::Named<Shape>>& list) {
  auto backend = open_backend(options.choice.backend);
  if (!backend.ok()) return fail(backend.status());
  const DeviceCaps caps = backend.value()->caps();
  const bool cpu = caps.kind == DeviceKind::kCpu;
  const double max_time = options.max_time > 0 ? options.max_time : cpu ? 60 : 540;

  bench::Peers peers;
  const std::string peers_path = options.peers.empty() ? find_data("recorded_h200.json") : options.peers;
  if (!peers_path.empty() && options.peers != "none") {
    auto read = bench::Peers::read(peers_path);
    if (!read.ok()) return fail(read.status());
    peers = std::move(read).value();
  }

  json record = new_record(caps);
  if (options.resume && std::ifstream(options.json_path)) {
    const auto before = read_record(options.json_path);
    if (!before.ok()) return fail(before.status());
    if (before->value("device", "") != record["device"] || before->value("commit", "") != record["commit"])
      return fail(Status(Code::kIo, options.json_path, fmt::format("results of {} at commit {}", record["device"].dump(), record["commit"].dump()),
                         fmt::format("{} at {}", before->value("device", ""), before->value("commit", ""))));
    record["rows"] = before.value()["rows"];
  }

  // Short ones first, so that a limited time covers the most cells.
  std::vector<bench::Named<Shape>> order = list;
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return bench::work_of(a.shape).flop < bench::work_of(b.shape).flop; });
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  size_t failed = 0, skipped = 0;
  std::vector<std::string> reasons;
  double flop_per_second = 0;  // of the last cell, to foresee the next
  {
    Progress progress("sweep", order.size());
    for (const auto& item : order) {
      progress.step(item.group + " " + column_of(item.shape));
      const json shape = to_json(item.shape);
      if (std::any_of(record["rows"].begin(), record["rows"].end(), [&](const json& row) { return row["op"] == op_name(item.shape) && row["shape"] == shape; }))
        continue;
      const bench::Work work = bench::work_of(item.shape);
      const double left = max_time - elapsed(), foreseen = flop_per_second > 0 ? work.flop / flop_per_second : 0;
      if (left <= 0 || foreseen > left || work.bytes * 1.5 > static_cast<double>(available_memory()) ||
          (options.max_tokens > 0 && tokens_of(item.shape) > options.max_tokens)) {
        ++skipped;
        continue;
      }
      const double before = elapsed();
      bench::TimerOptions timer;
      if (cpu) timer.least_ms = 50;
      json row = measure(item.shape, *backend.value(), options.choice, peers, timer);
      if (row.contains("error")) {
        failed += row.contains("rel_l2");
        reasons.push_back(name_of(item.shape) + ": " + row["error"].get<std::string>());
      }
      flop_per_second = work.flop / std::max(elapsed() - before, 1e-3);
      record["rows"].push_back(std::move(row));
      if (!options.json_path.empty() && options.json_path != "-")
        if (const Status status = write_record(options.json_path, record); !status.ok()) return fail(status);
    }
  }
  if (options.json_path == "-") {
    fmt::print("{}\n", record.dump(1));
    return failed ? kFailed : kOk;
  }
  fmt::print("{} ({} {}), time of one call{}\n\n{}", caps.name, caps.sm_count, cpu ? "threads" : "SMs",
             cpu ? "" : ", device time by graph replay, inputs not in L2", grid_of(list, record["rows"], cpu ? 0 : caps.sm_count));
  fmt::print("\n{}· no data; FAILED differs from float64; none: nothing here computes it\n",
             peers.serve(caps) ? "x: best recorded peer's time / ours, ! slower than it; " : "");
  for (const std::string& reason : reasons) fmt::print("{}\n", reason);
  if (skipped > 0)
    fmt::print("{} cells not run (--max-time {:.0f} s, memory or --max-tokens); `--json FILE --resume` goes on where a run stopped\n", skipped, max_time);
  return failed ? kFailed : kOk;
}

template <class Shape, class Preset, class Parse>
int sweep_named(const Options& options, const Preset& preset, const std::vector<std::string>& names, const Parse& parse) {
  std::vector<bench::Named<Shape>> list;
  for (const std::string& name : options.presets) {
    const auto found = preset(name);
    if (!found) return fail(Status::invalid("--preset", fmt::format("one of {}", fmt::join(names, ", ")), name));
    list.insert(list.end(), found->begin(), found->end());
  }
  for (const std::string& text : options.shapes) {
    const auto shape = parse(text);
    if (!shape.ok()) return fail(shape.status());
    list.push_back({name_of(shape.value()), shape.value()});
  }
  if (list.empty()) list = *preset("grid");
  return sweep<Shape>(options, list);
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("sweep", "Time a grid of shapes, each checked against float64 first, beside the peers recorded for this device");
  command->require_subcommand(1);
  for (const bool is_kda : {true, false}) {
    auto* op =
        command->add_subcommand(is_kda ? "kda" : "extend", is_kda ? "rows B x H, columns T = 64..16384" : "rows head sizes, columns new tokens + prefix");
    auto options = std::make_shared<Options>();
    op->add_option("--preset", options->presets, fmt::format("{} (default: grid)", fmt::join(is_kda ? bench::kda_presets() : bench::extend_presets(), ", ")));
    op->add_option("--shape", options->shapes, "single shapes, as for `hyla plan`");
    op->add_option("--json", options->json_path, "write a result file, row by row; - prints it instead of the table");
    op->add_flag("--resume", options->resume, "keep the rows that the --json file already has")->needs("--json");
    op->add_option("--max-time", options->max_time, "seconds; default 60 on the CPU, 540 on a GPU");
    op->add_option("--max-tokens", options->max_tokens, "leave out larger cells");
    op->add_option("--peers", options->peers, "recorded peers' times, used on the same kind of device only (default: those that come with hyla; none)");
    add_backend_options(*op, options->choice);
    op->callback([&action, options, is_kda] {
      action = [options, is_kda] {
        return is_kda ? sweep_named<bench::KdaShape>(*options, bench::kda_preset, bench::kda_presets(), bench::parse_kda_shape)
                      : sweep_named<bench::ExtendShape>(*options, bench::extend_preset, bench::extend_presets(), bench::parse_extend_shape);
      };
    });
  }
}

}  // namespace hyla::cli
