#include "benchlib/values.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "core/numeric.h"
#include "core/threads.h"

namespace hyla::bench {
namespace {

constexpr int64_t kTable = 1 << 20, kRow = 64;

const std::vector<float>& normals() {
  static const std::vector<float> table = [] {
    std::vector<float> values(kTable);
    for (int64_t i = 0; i < kTable; i += 2) {  // Box-Muller
      const uint64_t bits = mixed(static_cast<uint64_t>(i));
      const double u = (static_cast<double>(bits >> 40) + 0.5) * 0x1p-24, angle = 2 * std::numbers::pi * static_cast<double>(bits & 0xffffff) * 0x1p-24;
      const double radius = std::sqrt(-2 * std::log(u));
      values[static_cast<size_t>(i)] = static_cast<float>(radius * std::cos(angle));
      values[static_cast<size_t>(i + 1)] = static_cast<float>(radius * std::sin(angle));
    }
    return values;
  }();
  return table;
}

}  // namespace

uint64_t mixed(uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

void fill_normal(void* data, DType dtype, int64_t count, uint64_t seed, float scale) {
  const std::vector<float>& source = normals();
  const int64_t size = size_of(dtype);
  std::vector<char> table(static_cast<size_t>(std::min<int64_t>(kTable, (count + kRow - 1) / kRow * kRow * 64) * size));
  const int64_t entries = static_cast<int64_t>(table.size()) / size;
  parallel_for(entries, 4096, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) store_float(table.data(), dtype, i, scale * source[static_cast<size_t>(i)]);
  });
  if (entries == 0) return;
  const int64_t rows = (count + kRow - 1) / kRow;
  parallel_for(rows, 1024, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t from = static_cast<int64_t>(mixed(seed * 0x10000001b3ull + static_cast<uint64_t>(r)) % static_cast<uint64_t>(entries - kRow + 1));
      std::memcpy(static_cast<char*>(data) + r * kRow * size, table.data() + from * size, static_cast<size_t>(std::min(kRow, count - r * kRow) * size));
    }
  });
}

}  // namespace hyla::bench
