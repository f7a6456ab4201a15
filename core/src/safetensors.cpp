#include "hyla/safetensors.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace hyla {
namespace {

using nlohmann::json;

constexpr std::pair<const char*, DType> kNames[] = {{"BF16", DType::kBf16},    {"F16", DType::kFp16},     {"F32", DType::kFp32},
                                                    {"F8_E4M3", DType::kE4m3}, {"F8_E5M2", DType::kE5m2}, {"I32", DType::kI32},
                                                    {"I64", DType::kI64},      {"U8", DType::kU8},        {"BOOL", DType::kBool}};

Status io_error(std::string what, std::string expected, std::string got) { return Status(Code::kIo, std::move(what), std::move(expected), std::move(got)); }

// Rejects keys that occur twice in one object: nlohmann-json would keep the last one silently.
class DuplicateKeys {
 public:
  bool operator()(int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys_.emplace_back();
    if (event == json::parse_event_t::object_end) keys_.pop_back();
    if (event == json::parse_event_t::key && !keys_.back().insert(value.get<std::string>()).second) duplicate_ = value.get<std::string>();
    return true;
  }
  const std::string& duplicate() const { return duplicate_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string duplicate_;
};

struct Entry {
  TensorView view;
  uint64_t begin, end;
};

Result<Entry> parse_entry(const std::string& name, const json& value, uint64_t data_bytes) {
  if (!value.is_object()) return io_error(name, "an object with dtype, shape and data_offsets", value.type_name());
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!value.contains(key)) return io_error(name, std::string("a field ") + key, "none");
  const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];

  Entry entry{};
  TensorView& t = entry.view;
  const auto* known = std::find_if(std::begin(kNames), std::end(kNames), [&](auto& k) { return dtype.is_string() && dtype == k.first; });
  if (known == std::end(kNames)) return io_error(name + ".dtype", "BF16, F16, F32, F8_E4M3, F8_E5M2, I32, I64, U8 or BOOL", dtype.dump());
  if (!shape.is_array() || shape.size() > TensorView::kMaxRank)
    return io_error(name + ".shape", "an array of at most " + std::to_string(TensorView::kMaxRank) + " extents", shape.dump().substr(0, 80));
  int64_t extents[TensorView::kMaxRank];
  int rank = 0;
  for (const json& extent : shape) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > INT64_MAX) return io_error(name + ".shape", "extents >= 0", extent.dump());
    extents[rank++] = extent.get<int64_t>();
  }
  if (rank == 0) extents[rank++] = 1;  // a scalar: rank 0 would mean an absent tensor
  auto numel = checked_numel(name, extents, rank);
  if (!numel.ok()) return io_error(name + ".shape", numel.status().expected(), numel.status().got());
  t = contiguous(nullptr, known->second, extents, rank);

  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    return io_error(name + ".data_offsets", "two offsets >= 0", offsets.dump().substr(0, 80));
  entry.begin = offsets[0].get<uint64_t>(), entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > data_bytes)
    return io_error(name + ".data_offsets", "begin <= end <= " + std::to_string(data_bytes) + " (the file's data)", offsets.dump());
  int64_t bytes;
  if (__builtin_mul_overflow(numel.value(), size_of(t.dtype), &bytes) || static_cast<uint64_t>(bytes) != entry.end - entry.begin)
    return io_error(name + ".data_offsets", "as many bytes as dtype and shape " + shape_string(t) + " need",
                    std::to_string(entry.end - entry.begin) + " bytes");
  return entry;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return io_error(path, "a readable file", "none");
  const std::streamoff size = file.tellg();
  if (size < 0 || size == std::numeric_limits<std::streamoff>::max()) return io_error(path, "a readable file", "a folder or a device");
  std::vector<char> bytes;
  try {
    bytes.resize(static_cast<size_t>(size));
  } catch (const std::exception&) {
    return io_error(path, "a file that fits memory", std::to_string(size) + " bytes");
  }
  file.seekg(0);
  if (!file.read(bytes.data(), size)) return io_error(path, std::to_string(size) + " bytes", "a read error");
  return parse(std::move(bytes), path);
}

Result<SafetensorsFile> SafetensorsFile::parse(std::vector<char> bytes, const std::string& name) {
  uint64_t header_bytes;
  if (bytes.size() < sizeof header_bytes) return io_error(name, "at least 8 bytes", std::to_string(bytes.size()));
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > bytes.size() - sizeof header_bytes)
    return io_error(name, "a header of at most " + std::to_string(bytes.size() - sizeof header_bytes) + " bytes (is the file truncated?)",
                    std::to_string(header_bytes));
  constexpr uint64_t kMaxHeader = 100'000'000;  // the format's limit
  if (header_bytes > kMaxHeader) return io_error(name, "a header of at most " + std::to_string(kMaxHeader) + " bytes", std::to_string(header_bytes));
  const char* header = bytes.data() + sizeof header_bytes;
  DuplicateKeys keys;
  const json root = json::parse(header, header + header_bytes, std::ref(keys), /*allow_exceptions=*/false);
  if (root.is_discarded() || !root.is_object()) return io_error(name, "a JSON object as header", "malformed JSON");
  if (!keys.duplicate().empty()) return io_error(name, "each name once", "'" + keys.duplicate() + "' twice");

  SafetensorsFile file;
  file.name_ = name;
  const uint64_t data_bytes = bytes.size() - sizeof header_bytes - header_bytes;
  std::vector<std::pair<std::string, Entry>> entries;
  for (const auto& [key, value] : root.items()) {
    if (key == "__metadata__") {
      if (!value.is_object()) return io_error(name + ": __metadata__", "an object of strings", value.type_name());
      for (const auto& [k, v] : value.items()) {
        if (!v.is_string()) return io_error(name + ": __metadata__." + k, "a string", v.type_name());
        file.metadata_[k] = v.get<std::string>();
      }
      continue;
    }
    auto entry = parse_entry(key, value, data_bytes);
    if (!entry.ok()) return io_error(name + ": " + entry.status().argument(), entry.status().expected(), entry.status().got());
    entries.emplace_back(key, entry.value());
  }
  std::sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end); });
  uint64_t covered = 0;
  for (const auto& [key, entry] : entries) {
    if (entry.begin != covered)
      return io_error(name + ": " + key + ".data_offsets", "to begin at " + std::to_string(covered) + ", where the tensor before it ends",
                      std::to_string(entry.begin));
    covered = entry.end;
  }
  if (covered != data_bytes) return io_error(name, std::to_string(covered) + " bytes of data as the header says", std::to_string(data_bytes));

  // Tensors may start at any byte of the file; move them to aligned places so that they can be read in place.
  file.bytes_ = std::make_shared<std::vector<char>>();
  constexpr size_t kAlign = 64;
  size_t total = kAlign;
  for (auto& [key, entry] : entries) total += (entry.end - entry.begin + kAlign - 1) / kAlign * kAlign;
  file.bytes_->resize(total);
  char* to = file.bytes_->data() + (kAlign - reinterpret_cast<uintptr_t>(file.bytes_->data()) % kAlign) % kAlign;
  for (auto& [key, entry] : entries) {
    const size_t size = entry.end - entry.begin;
    if (size != 0) std::memcpy(to, header + header_bytes + entry.begin, size);
    entry.view.data = to;
    file.tensors_[key] = entry.view;
    to += (size + kAlign - 1) / kAlign * kAlign;
  }
  return file;
}

Result<TensorView> SafetensorsFile::tensor(const std::string& name) const {
  auto it = tensors_.find(name);
  if (it == tensors_.end()) return io_error(name_ + ": " + name, "a tensor of this name", "none");
  return it->second;
}

Status write_safetensors(const std::string& path, const std::map<std::string, TensorView>& tensors, const std::map<std::string, std::string>& metadata) {
  json root = json::object();
  if (!metadata.empty()) root["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, t] : tensors) {
    HYLA_RETURN_IF_ERROR(check_view(name, t));
    if (t.device.kind != DeviceKind::kCpu) return Status::invalid(name, "a CPU tensor", describe(t));
    if (!t.defined() || !is_contiguous(t)) return Status::invalid(name, "a contiguous tensor", describe(t));
    const auto* known = std::find_if(std::begin(kNames), std::end(kNames), [dtype = t.dtype](auto& k) { return k.second == dtype; });
    const uint64_t bytes = static_cast<uint64_t>(t.numel() * size_of(t.dtype));
    root[name] = {
        {"dtype", known->first}, {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.begin() + t.rank)}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string header = root.dump(-1, ' ', false, json::error_handler_t::replace);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes).write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const auto& [name, t] : tensors) file.write(t.as<char>(), t.numel() * size_of(t.dtype));
  file.flush();
  if (!file) return io_error(path, "a writable file", "a write error");
  return {};
}

}  // namespace hyla
