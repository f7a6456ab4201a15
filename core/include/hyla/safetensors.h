// Reader and writer of the safetensors format: 8 bytes little-endian header length, a JSON header, then the tensors' bytes.
// Format: https://github.com/huggingface/safetensors (README, "Format"). The reader is strict: offsets must tile the data without holes or overlaps.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hyla/status.h"
#include "hyla/tensor.h"

namespace hyla {

// A file in memory; the views point into it. Tensors are contiguous CPU tensors, not to be written.
class SafetensorsFile {
 public:
  // Reads and checks a whole file. Errors (kIo) name the file or the tensor.
  static Result<SafetensorsFile> read(const std::string& path);
  // Checks `bytes` as a file's contents; `name` stands for the path in errors.
  static Result<SafetensorsFile> parse(std::vector<char> bytes, const std::string& name);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  // The tensor, or an error that names it and the file.
  Result<TensorView> tensor(const std::string& name) const;
  bool contains(const std::string& name) const { return tensors_.count(name) != 0; }

 private:
  std::string name_;
  std::shared_ptr<std::vector<char>> bytes_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, TensorView> tensors_;
};

// Writes contiguous CPU tensors. Errors name the tensor or the file.
Status write_safetensors(const std::string& path, const std::map<std::string, TensorView>& tensors, const std::map<std::string, std::string>& metadata = {});

}  // namespace hyla
