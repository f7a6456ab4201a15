// Memory of a backend with canaries on both sides.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "testing/backend.h"

namespace hyla::testing {

class Guarded {
 public:
  static constexpr size_t kGuard = 4096;
  static constexpr uint8_t kCanary = 0xC5;

  // `shift` moves the data off its 256-byte alignment.
  Guarded(Backend& backend, size_t bytes, size_t shift = 0) : backend_(&backend), bytes_(bytes), shift_(shift) {
    base_ = static_cast<uint8_t*>(backend.allocate(total()));
    if (base_ == nullptr) return;
    const std::vector<uint8_t> canary(total(), kCanary);
    status_ = backend.upload(base_, canary.data(), canary.size());
  }
  ~Guarded() {
    if (base_ != nullptr) backend_->release(base_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  bool ok() const { return base_ != nullptr && status_.ok(); }
  void* data() const { return base_ + kGuard + shift_; }
  size_t bytes() const { return bytes_; }
  Status upload(const void* from) { return backend_->upload(data(), from, bytes_); }
  Status fill(uint8_t value) {
    const std::vector<uint8_t> bytes(bytes_, value);
    return upload(bytes.data());
  }
  Status download(void* to) const { return backend_->download(to, data(), bytes_); }
  // True when no byte outside the data changed.
  bool intact() const {
    std::vector<uint8_t> all(total());
    if (!backend_->download(all.data(), base_, all.size()).ok()) return false;
    for (size_t i = 0; i < all.size(); ++i)
      if ((i < kGuard + shift_ || i >= kGuard + shift_ + bytes_) && all[i] != kCanary) return false;
    return true;
  }

 private:
  size_t total() const { return bytes_ + shift_ + 2 * kGuard; }
  Backend* backend_;
  size_t bytes_, shift_;
  uint8_t* base_ = nullptr;
  Status status_;
};

}  // namespace hyla::testing
