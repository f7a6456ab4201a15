// Draws numbers and tensors from a fuzzer's input; zeros once it is used up.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "hyla/tensor.h"

namespace hyla::fuzz {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  bool flag() { return byte() & 1; }
  // Mostly small numbers and powers of two, sometimes extremes.
  int64_t number() {
    const uint8_t kind = byte();
    if (kind < 200) return kind % 16;
    if (kind < 230) return int64_t{1} << (byte() % 63);
    if (kind < 240) return -static_cast<int64_t>(byte());
    if (kind < 250) return INT64_MAX - byte();
    return INT64_MIN + byte();
  }
  float real() {
    switch (byte() % 8) {
      case 0:
        return 0.0f;
      case 1:
        return -5.0f;
      case 2:
        return 1.0f / 0.0f;
      case 3:
        return 0.0f / 0.0f;
      default:
        return static_cast<float>(static_cast<int8_t>(byte())) / 16.0f;
    }
  }
  // `usual` with, at times, one thing changed.
  TensorView change(TensorView t) {
    switch (byte() % 24) {
      case 0:
        t.rank = static_cast<int>(number());
        break;
      case 1:
        t.dtype = static_cast<DType>(byte() % 9);
        break;
      case 2:
        t.shape[byte() % TensorView::kMaxRank] = number();
        break;
      case 3:
        t.stride[byte() % TensorView::kMaxRank] = number();
        break;
      case 4:
        t.data = nullptr;
        break;
      case 5:
        t.data = static_cast<char*>(t.data) + byte();
        break;
      case 6:
        t.device = {static_cast<DeviceKind>(byte() % 2), static_cast<int>(number())};
        break;
      case 7:
        t.rank = 0;
        break;
      default:
        break;
    }
    return t;
  }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

// Ends the run when a promise is broken, and says which.
inline void require(bool condition, int line = __builtin_LINE()) {
  if (condition) return;
  std::fprintf(stderr, "the requirement in line %d does not hold\n", line);
  std::abort();
}

// What an accepted tensor must be.
inline void require_sound(const TensorView& t, Device device, int line = __builtin_LINE()) {
  const Status status = check_view("accepted", t);
  if (status.ok() && (!t.defined() || t.device == device)) return;
  std::fprintf(stderr, "%s: %s\n", describe(t).c_str(), status.message().c_str());
  require(false, line);
}

// An address that is never read or written: argument checks look at pointers only.
inline void* place(size_t tensor) { return reinterpret_cast<void*>((tensor + 1) << 44); }

}  // namespace hyla::fuzz
