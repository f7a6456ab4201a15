#include "cli/paths.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace hyla::cli {

std::string find_data(const std::string& name) {
  namespace fs = std::filesystem;
  std::vector<fs::path> folders;
  if (const char* folder = std::getenv("HYLA_DATA")) folders.emplace_back(folder);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path().parent_path() / "share" / "hyla");
  folders.emplace_back(fs::path(HYLA_SOURCE_DIR) / "testing" / "data");
  folders.emplace_back(fs::path(HYLA_SOURCE_DIR) / "bench" / "peers");
  for (const fs::path& folder : folders)
    if (fs::exists(folder / name, error)) return (folder / name).string();
  return "";
}

}  // namespace hyla::cli
