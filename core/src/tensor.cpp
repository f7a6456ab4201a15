#include "hyla/tensor.h"

#include <algorithm>
#include <limits>

namespace hyla {
namespace {

// More than any machine addresses, and far enough from the end of int64 that planners may multiply by tiles, splits and bytes.
constexpr int64_t kMostElements = int64_t{1} << 48;

}  // namespace

int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
    case DType::kFp16:
      return 2;
    case DType::kFp32:
    case DType::kI32:
      return 4;
    case DType::kI64:
      return 8;
    case DType::kE4m3:
    case DType::kE5m2:
    case DType::kU8:
    case DType::kBool:
      return 1;
  }
  return 0;
}

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return "bf16";
    case DType::kFp16:
      return "fp16";
    case DType::kFp32:
      return "fp32";
    case DType::kE4m3:
      return "e4m3";
    case DType::kE5m2:
      return "e5m2";
    case DType::kI32:
      return "int32";
    case DType::kI64:
      return "int64";
    case DType::kU8:
      return "u8";
    case DType::kBool:
      return "bool";
  }
  return "unknown dtype";
}

std::string to_string(Device device) { return device.kind == DeviceKind::kCpu ? "cpu" : "cuda:" + std::to_string(device.index); }

int64_t TensorView::numel() const {
  if (!defined()) return 0;
  uint64_t n = 1;  // unsigned: extents not yet checked may overflow
  for (int i = 0; i < rank; ++i) n *= static_cast<uint64_t>(shape[i]);
  return static_cast<int64_t>(n);
}

TensorView contiguous(void* data, DType dtype, const int64_t* shape, int rank, Device device) {
  TensorView t{.data = data, .dtype = dtype, .rank = rank, .device = device};
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    t.shape[i] = shape[i];
    t.stride[i] = stride;
    // Only an empty tensor's strides can overflow, and they are never used.
    if (shape[i] > 0 && __builtin_mul_overflow(stride, shape[i], &stride)) stride = std::numeric_limits<int64_t>::max();
  }
  return t;
}

TensorView contiguous(void* data, DType dtype, std::initializer_list<int64_t> shape, Device device) {
  return contiguous(data, dtype, shape.begin(), static_cast<int>(shape.size()), device);
}

bool is_contiguous(const TensorView& t) {
  if (std::find(t.shape.begin(), t.shape.begin() + t.rank, 0) != t.shape.begin() + t.rank) return true;
  int64_t stride = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    if (t.shape[i] != 1 && t.stride[i] != stride) return false;
    stride *= t.shape[i];
  }
  return true;
}

std::string shape_string(const TensorView& t) {
  if (t.rank > TensorView::kMaxRank) return "[" + std::to_string(t.rank) + " dimensions]";  // not yet checked
  std::string text = "[";
  for (int i = 0; i < t.rank; ++i) text += (i ? ", " : "") + std::to_string(t.shape[i]);
  return text + "]";
}

std::string describe(const TensorView& t) {
  if (!t.defined()) return "absent";
  return std::string(to_string(t.dtype)) + " " + shape_string(t) + " on " + to_string(t.device);
}

Result<int64_t> checked_numel(const std::string& argument, const int64_t* shape, int rank) {
  // Empty dimensions do not excuse absurd ones: planners multiply and round up single extents.
  int64_t n = 1;
  bool empty = false;
  for (int i = 0; i < rank; ++i) {
    if (shape[i] < 0) return Status::invalid(argument + ".shape[" + std::to_string(i) + "]", "an extent >= 0", std::to_string(shape[i]));
    empty |= shape[i] == 0;
    if (__builtin_mul_overflow(n, std::max<int64_t>(shape[i], 1), &n) || n > kMostElements)
      return Status::invalid(argument, "a product of extents up to 2^48, far within int64", "more at dimension " + std::to_string(i));
  }
  return empty ? 0 : n;
}

Status check_view(const std::string& argument, const TensorView& t) {
  if (t.rank < 0 || t.rank > TensorView::kMaxRank)
    return Status::invalid(argument + ".rank", "0 to " + std::to_string(TensorView::kMaxRank), std::to_string(t.rank));
  if (!t.defined()) return {};
  auto numel = checked_numel(argument, t.shape.data(), t.rank);
  if (!numel.ok()) return numel.status();
  for (int i = 0; i < t.rank; ++i)
    if (t.stride[i] < 0) return Status::invalid(argument + ".stride[" + std::to_string(i) + "]", "a stride >= 0", std::to_string(t.stride[i]));
  if (numel.value() == 0) return {};
  int64_t last = 0;  // offset of the last element
  for (int i = 0; i < t.rank; ++i) {
    int64_t reach;
    if (__builtin_mul_overflow(t.shape[i] - 1, t.stride[i], &reach) || __builtin_add_overflow(last, reach, &last))
      return Status::invalid(argument, "an extent in memory within int64", "an overflow at dimension " + std::to_string(i));
  }
  if (last > std::numeric_limits<int64_t>::max() / size_of(t.dtype) - 1)
    return Status::invalid(argument, "an extent in memory within int64", "more than 2^63 bytes");
  if (t.data == nullptr) return Status::invalid(argument + ".data", "a pointer to " + describe(t), "null");
  if (reinterpret_cast<uintptr_t>(t.data) % size_of(t.dtype) != 0)
    return Status::invalid(argument + ".data", "alignment to its element size of " + std::to_string(size_of(t.dtype)) + " bytes", "a misaligned pointer");
  return {};
}

}  // namespace hyla
