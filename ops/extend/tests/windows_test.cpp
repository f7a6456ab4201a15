// Which keys a query sees, read off one-hot values.
#include <gtest/gtest.h>

#include "ops/extend/tests/test_targets.h"

namespace hyla::extend {
namespace {

class ExtendWindows : public OnTargets {};

// Keys and values of random size; value c of key j is 1 when j == c: the output's non-zero columns are the keys seen.
CaseData one_hot(int64_t rows, int64_t prefix, int64_t window, bool causal) {
  Case c;
  c.extend = {rows}, c.prefix = {prefix}, c.Hq = 2, c.Hkv = 1, c.Lq = c.Lv = 64, c.window = window, c.causal = causal;
  CaseData data = make_data(c);
  const std::vector<int64_t> slots = integers_of(data.args.kv_indices);
  const auto set = [](const TensorView& v, int64_t row, int64_t key) {
    for (int64_t d = 0; d < 64; ++d) v.as<uint16_t>()[row * 64 + d] = d == key ? 0x3f80 : 0;
  };
  // Keys that nobody sees were poisoned; here they are sound, so that only masking can keep them out.
  for (int64_t j = 0; j < prefix; ++j) {
    set(data.args.v_buffer, slots[static_cast<size_t>(j)], j);
    for (int64_t d = 0; d < 64; ++d) data.args.k_buffer.as<uint16_t>()[slots[static_cast<size_t>(j)] * 64 + d] = 0x3c00;
  }
  for (int64_t t = 0; t < rows; ++t) set(data.args.v, t, prefix + t);
  return data;
}

TEST_P(ExtendWindows, EveryKeySetOfSmallShapes) {
  for (int64_t window = -1; window <= 9; ++window)
    for (const int64_t prefix : {0, 1, 6})
      for (const int64_t rows : {1, 3, 8})
        for (const bool causal : {true, false}) {
          const CaseData data = one_hot(rows, prefix, window, causal);
          HYLA_COMPUTE(o, data);
          for (int64_t q = 0; q < rows; ++q)
            for (int64_t key = 0; key < prefix + rows; ++key) {
              const int64_t distance = prefix + q - key;
              const bool want = (!causal || distance >= 0) && (window < 0 || (distance <= window && -distance <= window));
              ASSERT_EQ(o.out[static_cast<size_t>(q * 2 * 64 + key)] > 0, want)
                  << "W=" << window << " prefix=" << prefix << " rows=" << rows << " causal=" << causal << " q=" << q << " key=" << key;
              ASSERT_EQ(key_allowed(data.args, 0, q, key), want) << "the oracle's rule";
            }
        }
}

// W = 4 (radius), prefix 6, new tokens 3: keys 2..6, 3..7, 4..8.
TEST_P(ExtendWindows, WindowOfFourCountsTheQueryItself) {
  const CaseData data = one_hot(3, 6, 4, true);
  HYLA_COMPUTE(o, data);
  for (int64_t q = 0; q < 3; ++q)
    for (int64_t key = 0; key < 9; ++key) EXPECT_EQ(o.out[static_cast<size_t>(q * 128 + key)] > 0, key >= 2 + q && key <= 6 + q) << q << " " << key;
}

// 5000 tokens with W = 4095, some of them in the prefix: columns mark keys around both edges.
TEST_P(ExtendWindows, WideWindowsAtFullLength) {
  for (const int64_t prefix : {0, 4500}) {
    const int64_t rows = 5000 - prefix, window = 4095;
    Case c;
    c.extend = {rows}, c.prefix = {prefix}, c.Hq = c.Hkv = 1, c.Lq = c.Lv = 64, c.window = window, c.gain = 0.1f;
    CaseData data = make_data(c);
    std::vector<int64_t> marked;
    for (int64_t key = 0; key < 8; ++key)
      marked.push_back(key), marked.push_back(880 + key), marked.push_back(4090 + key), marked.push_back(4496 + key), marked.push_back(4992 + key);
    const std::vector<int64_t> slots = integers_of(data.args.kv_indices);
    const auto values_of = [&](int64_t key) {
      return key < prefix ? data.args.v_buffer.as<uint16_t>() + slots[static_cast<size_t>(key)] * 64 : data.args.v.as<uint16_t>() + (key - prefix) * 64;
    };
    for (int64_t key = 0; key < 5000; ++key) std::memset(values_of(key), 0, 128);
    for (size_t m = 0; m < marked.size(); ++m) values_of(marked[m])[m] = float_to_bf16(1000);
    HYLA_COMPUTE(o, data);
    for (int64_t q = 0; q < rows; ++q)
      for (size_t m = 0; m < marked.size(); ++m) {
        const int64_t distance = prefix + q - marked[m];
        ASSERT_EQ(o.out[static_cast<size_t>(q * 64) + m] > 0, distance >= 0 && distance <= window) << "position " << prefix + q << " key " << marked[m];
      }
  }
}

HYLA_INSTANTIATE(ExtendWindows);

}  // namespace
}  // namespace hyla::extend
