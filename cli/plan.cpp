#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "benchlib/inputs.h"
#include "benchlib/model.h"
#include "cli/commands.h"
#include "cli/report.h"

namespace hyla::cli {
namespace {

struct Options {
  std::string shape, device, variant;
  int splits = 0;
  bool as_json = false;
};

Result<DeviceCaps> device_of(const std::string& name) {
  if (!name.empty()) return find_device(name);
  if (cuda_device_count() > 0) return query_device({DeviceKind::kCuda, 0});
  return query_device({});
}

template <class Shape>
int show(const Shape& shape, const Options& options) {
  const auto caps = device_of(options.device);
  if (!caps.ok()) return fail(caps.status());
  const auto args = bench::bare_args(shape, {caps->kind, 0});
  const auto problem = make_problem(args);
  if (!problem.ok()) return fail(problem.status());
  const auto made = plan(problem.value(), caps.value(), PlanOptions{.variant = options.variant, .splits = options.splits});
  const double floor = bench::floor_ms(bench::work_of(shape), caps.value());
  if (options.as_json) {
    using nlohmann::json;
    json candidates = json::array();
    if (made.ok())
      for (const Candidate& c : made->candidates) {
        candidates.push_back({{"variant", c.variant}, {"config", c.config}, {"legal", c.legal}, {"modelled_us", nullptr}, {"reason", c.reason}});
        if (c.legal) candidates.back()["modelled_us"] = c.modelled_us;
      }
    json all = {{"op", op_name(shape)}, {"shape", to_json(shape)}, {"device", caps->name}, {"floor_us", floor * 1e3}, {"candidates", candidates}};
    if (made.ok()) {
      all["plan"] = made->str(), all["variant"] = made->variant, all["modelled_us"] = made->modelled_us, all["workspace_bytes"] = made->workspace_bytes;
    } else {
      all["error"] = made.status().message();
    }
    fmt::print("{}\n", all.dump(1));
    return made.ok() ? kOk : kUnsupported;
  }
  fmt::print("problem  {}\ndevice   {}, {} {}\nfloor    {} (bytes at copy rate or FLOP at tensor rate)\n", problem->str(), caps->name, caps->sm_count,
             caps->kind == DeviceKind::kCpu ? "threads" : "SMs", milliseconds(floor));
  if (!made.ok()) return fail(made.status());
  fmt::print("plan     {}\n\n", made->str());
  Table table({"variant", "config", "modelled", "reason"});
  for (const Candidate& c : made->candidates)
    table.add({c.variant, c.config.empty() ? "-" : c.config, c.legal ? milliseconds(c.modelled_us / 1e3) : "-", c.reason});
  fmt::print("{}", table.str(4));
  return kOk;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("plan", "Show how a problem would be run on a chip, present or not: every candidate with its modelled time and why");
  command->require_subcommand(1);
  for (const bool is_kda : {true, false}) {
    auto* op = command->add_subcommand(is_kda ? "kda" : "extend", is_kda ? "Kimi Delta Attention" : "extend attention");
    auto options = std::make_shared<Options>();
    op->add_option("--shape", options->shape,
                   is_kda ? "B=1,T=8192,H=4[,HV=,D=128,seqlens=100+200,gate=bounded|unbounded|given,state=fp32|bf16,checkpoints=64]"
                          : "batch=1,n=1024,prefix=0,Hq=32,Hkv=8,D=128[,Lq=,Lv=,page_size=1,window=-1,dtype=bf16|fp16,sinks=0|1,latent=0|1,cap=]")
        ->required();
    op->add_option("--device", options->device, "h200, h100, a100, rtx4090, rtx-pro-6000, b200 or cpu; default: the device of this machine");
    op->add_option("--variant", options->variant, "force a variant by name");
    op->add_option("--splits", options->splits, "force the number of segments or KV parts")->check(CLI::NonNegativeNumber);
    op->add_flag("--json", options->as_json, "print JSON");
    op->callback([&action, options, is_kda] {
      action = [options, is_kda] {
        if (is_kda) {
          const auto shape = bench::parse_kda_shape(options->shape);
          return shape.ok() ? show(shape.value(), *options) : fail(shape.status());
        }
        const auto shape = bench::parse_extend_shape(options->shape);
        return shape.ok() ? show(shape.value(), *options) : fail(shape.status());
      };
    });
  }
}

}  // namespace hyla::cli
