// Arguments on a backend's device: copies of the host tensors, aliasing kept (a V that is a view of K stays one).
#pragma once
#include <algorithm>
#include <vector>

#include "benchlib/host_case.h"
#include "testing/backend.h"

namespace hyla::bench {

class DeviceMemory {
 public:
  DeviceMemory(testing::Backend& backend, size_t bytes) : backend_(backend), data_(backend.allocate(std::max<size_t>(bytes, 1))), bytes_(bytes) {}
  ~DeviceMemory() {
    if (data_) backend_.release(data_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  testing::Backend& backend_;
  void* data_;
  size_t bytes_;
};

template <class Args>
class Placed {
 public:
  static Result<Placed> make(const Args& host, testing::Backend& backend) {
    Placed placed;
    placed.host_ = placed.args_ = host;
    if (backend.device().kind == DeviceKind::kCpu) return placed;  // the host tensors themselves
    for_each_tensor(placed.host_, [&](const char*, TensorView& t, bool) {
      if (t.defined()) placed.ranges_.push_back({t.template as<char>(), t.template as<char>() + extent_bytes(t), nullptr});
    });
    placed.merge();
    for (Range& range : placed.ranges_) {
      const size_t bytes = static_cast<size_t>(range.end - range.begin);
      range.memory = std::make_shared<DeviceMemory>(backend, bytes + kSlack);
      if (range.memory->data() == nullptr) return Status(Code::kDevice, "inputs", std::to_string(bytes) + " bytes of device memory", "none left");
      HYLA_RETURN_IF_ERROR(backend.upload(placed.address(range, range.begin), range.begin, bytes));
    }
    for_each_tensor(placed.args_, [&](const char*, TensorView& t, bool) {
      if (!t.defined()) return;
      t.data = placed.moved(t.data);
      t.device = backend.device();
    });
    return placed;
  }
  const Args& args() const { return args_; }
  // Copies what a run wrote back to the host tensors.
  Status fetch(testing::Backend& backend) {
    if (backend.device().kind == DeviceKind::kCpu) return {};
    Status status;
    for_each_tensor(host_, [&](const char*, TensorView& t, bool written) {
      if (written && t.defined() && status.ok()) status = backend.download(t.data, moved(t.data), static_cast<size_t>(extent_bytes(t)));
    });
    return status;
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Range& range : ranges_) sum += range.end - range.begin;
    return sum;
  }

 private:
  static constexpr size_t kSlack = 256;
  struct Range {
    char *begin, *end;
    std::shared_ptr<DeviceMemory> memory;
  };
  // Ranges that share bytes become one.
  void merge() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::vector<Range> merged;
    for (const Range& range : ranges_) {
      if (!merged.empty() && range.begin < merged.back().end) {
        merged.back().end = std::max(merged.back().end, range.end);
      } else {
        merged.push_back(range);
      }
    }
    ranges_ = std::move(merged);
  }
  // Keeps an address's offset from a 256-byte boundary, so that the device sees the host's alignment.
  char* address(const Range& range, const char* host) const {
    return static_cast<char*>(range.memory->data()) + reinterpret_cast<uintptr_t>(range.begin) % kSlack + (host - range.begin);
  }
  void* moved(void* data) const {
    for (const Range& range : ranges_)
      if (data >= range.begin && (data < range.end || data == range.begin)) return address(range, static_cast<char*>(data));
    return data;
  }

  Args host_, args_;
  std::vector<Range> ranges_;
};

}  // namespace hyla::bench
