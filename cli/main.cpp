// hyla: the command line.
#include <cstdio>

#include "cli/commands.h"
#include "cli/report.h"

namespace hyla::cli {

void add_backend_options(CLI::App& command, BackendChoice& choice) {
  command.add_option("--backend", choice.backend, "auto (cuda where there is a usable GPU), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command.add_option("--variant", choice.variant, "force a variant by name (see `hyla info`)");
  command.add_option("--splits", choice.splits, "force the number of segments (KDA) or KV parts (extend); 0: the planner's choice")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace hyla::cli

int main(int argc, char** argv) {
  using namespace hyla::cli;
  CLI::App app{"hyla: prefill attention kernels (Kimi Delta Attention, extend attention) on CPUs and Hopper GPUs", "hyla"};
  app.footer(
      "Exit codes: 0 success; 1 a result failed its check; 2 wrong command line; 3 a file, case or tensor is missing, malformed or\n"
      "cannot be written; 4 no backend or variant here computes the request; 5 the device reported an error.");
  app.require_subcommand(1);
  Action action;
  for (auto add : {add_info, add_demo, add_run, add_check, add_plan, add_sweep, add_profile, add_report}) add(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  try {
    return action();
  } catch (const std::exception& error) {  // out of memory, a full disk
    std::fputs((std::string("hyla: ") + error.what() + "\n").c_str(), stderr);
    return kDeviceError;
  }
}
