// Pointer, dtype, shape, strides, device: how arguments cross the API. A view owns nothing.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "hyla/status.h"

namespace hyla {

enum class DType : uint8_t { kBf16, kFp16, kFp32, kE4m3, kE5m2, kI32, kI64, kU8, kBool };

int64_t size_of(DType dtype);        // bytes an element
const char* to_string(DType dtype);  // "bf16", "fp32", ...

enum class DeviceKind : uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};
std::string to_string(Device device);  // "cpu", "cuda:0"

struct TensorView {
  static constexpr int kMaxRank = 5;

  void* data = nullptr;
  DType dtype = DType::kBf16;
  int rank = 0;  // 0: the tensor is absent
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};  // in elements; never negative
  Device device{};

  bool defined() const { return rank > 0; }
  int64_t numel() const;  // product of the shape; 0 for an absent tensor
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// A view with row-major (contiguous) strides.
TensorView contiguous(void* data, DType dtype, std::initializer_list<int64_t> shape, Device device = {});
// The same from a pointer to `rank` extents.
TensorView contiguous(void* data, DType dtype, const int64_t* shape, int rank, Device device = {});

bool is_contiguous(const TensorView& t);
std::string shape_string(const TensorView& t);  // "[1, 130, 2, 128]"
std::string describe(const TensorView& t);      // "bf16 [1, 130, 2, 128] on cuda:0", "absent"

// Product of extents, or an error naming `argument` when it does not fit int64 or an extent is negative.
Result<int64_t> checked_numel(const std::string& argument, const int64_t* shape, int rank);
// Checks what holds for any argument: rank within limits, extents >= 0, strides >= 0, addressable size within int64, data non-null
// unless empty, data aligned to the element.
Status check_view(const std::string& argument, const TensorView& t);

// An opaque stream handle (cudaStream_t); ignored by the CPU backend.
struct Stream {
  void* handle = nullptr;
};

// Caller-owned scratch memory on the device that runs the plan; aligned to 256 bytes.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

}  // namespace hyla
