// The subcommands. Each adds itself to the parser and stores what to run; main calls it and returns its exit code.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

#include "cli/execute.h"

namespace hyla::cli {

using Action = std::function<int()>;

void add_info(CLI::App& app, Action& action);
void add_demo(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_sweep(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);

// --backend, --variant, --splits.
void add_backend_options(CLI::App& command, BackendChoice& choice);

}  // namespace hyla::cli
