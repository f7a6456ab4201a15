// One routine lays out a workspace; run with a null base it counts bytes, with a real one it places buffers, so the two cannot disagree.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hyla {

class WorkspaceLayout {
 public:
  static constexpr size_t kAlignment = 256;

  explicit WorkspaceLayout(void* base = nullptr) : base_(static_cast<std::byte*>(base)) {}

  template <class T>
  T* take(int64_t count) {
    T* p = base_ ? reinterpret_cast<T*>(base_ + bytes_) : nullptr;
    const size_t size = static_cast<size_t>(count) * sizeof(T);
    bytes_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    return p;
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  size_t bytes_ = 0;
};

}  // namespace hyla
