#include <fmt/format.h>

#include <fstream>

#include "benchlib/model.h"
#include "cli/commands.h"
#include "cli/record.h"
#include "cli/report.h"

namespace hyla::cli {

extern const char kReportPage[];  // report_page.html

namespace {

using nlohmann::json;

// Useful work of a row, for its floors; rows with lists of lengths have none.
void add_work(json& row) {
  const auto work = bench::work_of_row(row["op"].get<std::string>(), row["shape"]);
  if (work) row["flop"] = work->flop, row["bytes"] = work->bytes;
}

int report(const std::vector<std::string>& inputs, const std::string& output) {
  json records = json::array();
  for (const std::string& path : inputs) {
    auto record = read_record(path);
    if (!record.ok()) return fail(record.status());
    for (json& row : record.value()["rows"]) add_work(row);
    records.push_back(std::move(record).value());
  }
  std::string data = records.dump(-1, ' ', true, json::error_handler_t::replace);
  for (size_t at = 0; (at = data.find("</", at)) != std::string::npos; at += 3) data.insert(at + 1, "\\");  // a string must not end the script
  for (size_t at = 0; (at = data.find("<!--", at)) != std::string::npos; at += 6) data.replace(at, 1, "\\u003c");
  std::string page = kReportPage;
  const std::string mark = "@HYLA_REPORT_DATA@";
  page.replace(page.find(mark), mark.size(), data);
  std::ofstream file(output);
  file << page;
  file.close();
  if (!file) return fail(Status(Code::kIo, output, "a writable file", "a write error"));
  fmt::print("{}\n", output);
  return kOk;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("report", "Make one self-contained web page of result files: ratios, time against length, roofline, accuracy, plans");
  struct Options {
    std::vector<std::string> inputs;
    std::string output = "report.html";
  };
  auto options = std::make_shared<Options>();
  command->add_option("results", options->inputs, "result files of `hyla sweep --json` or of the benchmarks")->required();
  command->add_option("-o,--output", options->output, "the page")->capture_default_str();
  command->callback([&action, options] { action = [options] { return report(options->inputs, options->output); }; });
}

}  // namespace hyla::cli
