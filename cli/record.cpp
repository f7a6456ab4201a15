#include "cli/record.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace hyla::cli {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[256];
  while (std::fgets(buffer, sizeof buffer, pipe)) text += buffer;
  pclose(pipe);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// The commit of the source tree, or HYLA_COMMIT where the program runs without it.
std::pair<std::string, bool> commit() {
  if (const char* given = std::getenv("HYLA_COMMIT")) return {given, false};
  std::error_code error;
  if (!std::filesystem::exists(std::string(HYLA_SOURCE_DIR) + "/.git", error)) return {"", false};
  const std::string git = "git -C '" HYLA_SOURCE_DIR "' ";
  return {output_of(git + "rev-parse HEAD 2>/dev/null"), !output_of(git + "status --porcelain --untracked-files=no 2>/dev/null").empty()};
}

std::string driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word)
    if (word.find('.') != std::string::npos && std::isdigit(static_cast<unsigned char>(word[0]))) return word;
  return "";
}

}  // namespace

nlohmann::json new_record(const DeviceCaps& caps) {
  const auto [sha, dirty] = commit();
  const std::time_t now = std::time(nullptr);
  char date[16];
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  nlohmann::json versions = {{"hyla", HYLA_VERSION}};
#ifdef HYLA_CUDA_VERSION
  versions["cuda"] = HYLA_CUDA_VERSION;
#endif
  return {{"device", caps.name},
          {"driver", caps.kind == DeviceKind::kCuda ? driver() : ""},
          {"commit", sha},
          {"dirty", dirty},
          {"date", date},
          {"versions", versions},
          {"sm_count", caps.sm_count},
          {"ceilings",
           {{"copy_tbs", caps.copy_tbs},
            {"gemm_tflops", caps.tensor_flop_per_clock * caps.sm_count * caps.clock_ghz / 1e3},
            {"empty_graph_node_us", caps.graph_node_us}}},
          {"rows", nlohmann::json::array()}};
}

Status write_record(const std::string& path, const nlohmann::json& record) {
  // One row a line; written beside and moved, so that a stop in the middle leaves a whole file.
  nlohmann::json head = record;
  head.erase("rows");
  std::string text = head.dump(1);
  text = text.substr(0, text.size() - 2) + ",\n \"rows\": [";
  bool first = true;
  for (const auto& row : record["rows"]) {
    text += (first ? "\n  " : ",\n  ") + row.dump();
    first = false;
  }
  text += "\n ]\n}\n";
  const std::string beside = path + ".part";
  std::ofstream file(beside);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(beside, path, error);
  if (!file || error) return Status(Code::kIo, path, "a writable file", "a write error");
  return {};
}

Result<nlohmann::json> read_record(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status(Code::kIo, path, "a readable file", "none");
  nlohmann::json record = nlohmann::json::parse(file, nullptr, false);
  if (!record.is_object() || !record.contains("rows") || !record["rows"].is_array())
    return Status(Code::kIo, path, "a result file: a JSON object with rows", "something else");
  for (const auto& row : record["rows"])
    if (!row.is_object() || !row.contains("op") || !row["op"].is_string() || !row.contains("shape") || !row["shape"].is_object())
      return Status(Code::kIo, path + ": rows", "objects with op and shape", row.dump().substr(0, 80));
  return record;
}

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    file.ignore(256, '\n');
  }
  return int64_t{4} << 30;
}

}  // namespace hyla::cli
