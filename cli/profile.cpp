#include "cli/commands.h"
namespace hyla::cli { void add_profile(CLI::App&, Action&) {} }
