// Properties that hold whatever the numbers: merging parts, permuting requests, cutting a prompt into pieces, bits that depend on nothing else.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "ops/extend/tests/test_targets.h"

namespace hyla::extend {
namespace {

Case small(std::vector<int64_t> extend, std::vector<int64_t> prefix, int64_t Hq, int64_t Hkv, int64_t D) {
  Case c;
  c.extend = std::move(extend), c.prefix = std::move(prefix), c.Hq = Hq, c.Hkv = Hkv, c.Lq = c.Lv = D;
  return c;
}

class ExtendProperties : public OnTargets {};

// The parts' outputs weighted by exp(LSE) give the whole.
TEST_P(ExtendProperties, PrefixAndNewPartMergeToOneShot) {
  for (const char* name : {"d64",         "d128",       "d256", "d192_128",    "d512",    "latent576",      "window127", "window_cap_sinks",       "cap50",
                           "sinks_fp32",  "sinks_huge", "e4m3", "temperature", "pages16", "pages16_latent", "mask_tree", "mask_rows_without_keys", "mixed_rows",
                           "decode_rows", "full",       "fp16"}) {
    SCOPED_TRACE(name);
    CaseData data = make_data(*find_case(name));
    HYLA_COMPUTE(whole, data);
    data.args.skip_extend = true;
    HYLA_COMPUTE(first, data);
    data.args.skip_extend = false, data.args.skip_prefix = true, data.args.sinks = {};  // a sink counts once
    HYLA_COMPUTE(second, data);
    const size_t Lv = static_cast<size_t>(data.args.v.shape[2]);
    std::vector<double> merged(whole.out.size()), lse(whole.lse.size());
    for (size_t row = 0; row < lse.size(); ++row) {
      const double top = std::max(first.lse[row], second.lse[row]);
      const double a = top == -INFINITY ? 0 : std::exp(first.lse[row] - top), b = top == -INFINITY ? 0 : std::exp(second.lse[row] - top);
      lse[row] = top + std::log(a + b);
      if (top == -INFINITY) lse[row] = -INFINITY;
      for (size_t c = 0; c < Lv; ++c) merged[row * Lv + c] = a + b == 0 ? 0 : (a * first.out[row * Lv + c] + b * second.out[row * Lv + c]) / (a + b);
    }
    EXPECT_LE(rel_l2(merged, whole.out), tolerance_of(data.args.q.dtype, data.args.out.dtype).rel_l2);
    EXPECT_LE(max_lse_error(lse, whole.lse), 1e-5);
  }
}

TEST_P(ExtendProperties, PermutingTheBatchPermutesTheBits) {
  for (const char* name : {"d64", "d128", "latent576", "d512", "mixed_rows", "empty_requests", "window16", "e4m3", "sinks_bf16"}) {
    SCOPED_TRACE(name);
    const CaseData data = make_data(*find_case(name));
    const std::vector<int64_t> qo = integers_of(data.args.qo_indptr);
    std::vector<int64_t> order;
    for (size_t i = 0; i + 1 < qo.size(); ++i) order.insert(order.begin() + static_cast<int64_t>(i / 2), static_cast<int64_t>(i));
    HYLA_COMPUTE(straight, data);
    const CaseData shuffled_data = select_requests(data, order);
    HYLA_COMPUTE(shuffled, shuffled_data);
    const size_t row_bytes = straight.out_bytes.size() / std::max<size_t>(1, static_cast<size_t>(data.args.q.shape[0]));
    size_t row = 0;
    for (const int64_t i : order)
      for (int64_t q = qo[i]; q < qo[i + 1]; ++q, ++row)
        ASSERT_EQ(std::memcmp(shuffled.out_bytes.data() + row * row_bytes, straight.out_bytes.data() + static_cast<size_t>(q) * row_bytes, row_bytes), 0)
            << "request " << i << " query " << q - qo[i];
  }
}

TEST_P(ExtendProperties, TwentyRunsGiveTheSameBits) {
  const CaseData data = make_data(*find_case("mixed_rows"));
  HYLA_COMPUTE(first, data);
  for (int run = 1; run < 20; ++run) {
    HYLA_COMPUTE(again, data);
    ASSERT_EQ(again.out_bytes, first.out_bytes) << "run " << run;
    ASSERT_EQ(again.lse_bytes, first.lse_bytes) << "run " << run;
  }
}

// 300 tokens at once, and in random pieces that each find the earlier ones in the pool.
TEST_P(ExtendProperties, PiecesGiveWhatOneShotGives) {
  for (const int64_t window : {-1, 40}) {
    Case c = small({300}, {0}, 4, 2, 128);
    c.window = window;
    CaseData whole_data = make_data(c);
    HYLA_COMPUTE(whole, whole_data);
    std::mt19937 random(7);
    std::vector<double> out, lse;
    for (int64_t done = 0; done < 300;) {
      const int64_t count = std::min<int64_t>(300 - done, 1 + static_cast<int64_t>(random() % 64));
      CaseData piece = make_data(c);
      Args& a = piece.args;
      a.k_buffer = add_tensor(piece, DType::kBf16, {600, 2, 128}), a.v_buffer = add_tensor(piece, DType::kBf16, {600, 2, 128});
      std::vector<int64_t> slots;
      for (int64_t t = 0; t < done; ++t) {
        slots.push_back(t * 7 % 599);
        copy_row(a.k, t, a.k_buffer, slots.back()), copy_row(a.v, t, a.v_buffer, slots.back());
      }
      a.kv_indices = add_integers(piece, DType::kI32, slots), a.kv_indptr = add_integers(piece, DType::kI32, {0, done}),
      a.qo_indptr = add_integers(piece, DType::kI32, {0, count});
      for (TensorView* t : {&a.q, &a.k, &a.v}) t->data = t->as<uint8_t>() + done * t->stride[0] * 2, t->shape[0] = count;
      a.max_extend = count, a.max_prefix = done;
      renew_outputs(piece);
      HYLA_COMPUTE(part, piece);
      out.insert(out.end(), part.out.begin(), part.out.end()), lse.insert(lse.end(), part.lse.begin(), part.lse.end());
      done += count;
    }
    EXPECT_LE(rel_l2(out, whole.out), 0.004);
    EXPECT_LE(max_lse_error(lse, whole.lse), 1e-5);
    // No drift: the last quarter is as close as the first.
    const auto quarter = [&](const std::vector<double>& v, size_t k) {
      return std::vector<double>(v.begin() + static_cast<int64_t>(v.size() * k / 4), v.begin() + static_cast<int64_t>(v.size() * (k + 1) / 4));
    };
    EXPECT_LE(rel_l2(quarter(out, 3), quarter(whole.out, 3)), 0.004);
  }
}

// One set of keys and values in five layouts, one answer bit for bit.
TEST_P(ExtendProperties, PoolLayoutsDoNotChangeTheAnswer) {
  Case c = small({70, 3}, {65, 130}, 4, 2, 128);
  c.pool = Pool::kPages, c.page_size = 16;
  CaseData data = make_data(c);
  const TensorView k = data.args.k_buffer, v = data.args.v_buffer;
  const int64_t pages = k.shape[0], slots = pages * 16, row = 2 * 128;
  HYLA_COMPUTE(as_pages, data);

  CaseData flat = make_data(c);
  for (TensorView* t : {&flat.args.k_buffer, &flat.args.v_buffer}) t->rank = 3, t->shape = {slots, 2, 128}, t->stride = {row, 128, 1};
  HYLA_COMPUTE(as_slots, flat);
  EXPECT_EQ(as_slots.out_bytes, as_pages.out_bytes);
  EXPECT_EQ(as_slots.lse_bytes, as_pages.lse_bytes);

  const auto relaid = [&](int64_t page_stride, int64_t token, int64_t head, int64_t v_offset, int64_t elements) {
    CaseData other = make_data(c);
    TensorView memory = add_tensor(other, DType::kBf16, {elements});
    for (const bool values : {false, true}) {
      TensorView& t = values ? other.args.v_buffer : other.args.k_buffer;
      const TensorView& from = values ? v : k;
      uint16_t* to = memory.as<uint16_t>() + (values ? v_offset : 0);
      for (int64_t s = 0; s < slots; ++s)
        for (int64_t h = 0; h < 2; ++h) std::memcpy(to + s / 16 * page_stride + s % 16 * token + h * head, from.as<uint16_t>() + s * row + h * 128, 256);
      t.data = to, t.stride = {page_stride, token, head, 1};
    }
    return other;
  };
  const CaseData heads_first = relaid(16 * row, 128, 16 * 128, slots * row, 2 * slots * row);
  HYLA_COMPUTE(as_heads_first, heads_first);
  EXPECT_EQ(as_heads_first.out_bytes, as_pages.out_bytes);
  const CaseData blocks_first = relaid(2 * 16 * row, row, 128, 16 * row, 2 * slots * row);
  HYLA_COMPUTE(as_blocks_first, blocks_first);
  EXPECT_EQ(as_blocks_first.out_bytes, as_pages.out_bytes);
  const CaseData layers = relaid(16 * 3 * row, 3 * row, 128, row, 3 * slots * row);
  HYLA_COMPUTE(as_layer, layers);
  EXPECT_EQ(as_layer.out_bytes, as_pages.out_bytes);
}

// The mask that causality and a window would draw gives the same as asking for them.
TEST_P(ExtendProperties, MasksDrawnByHandEqualCausalityAndWindow) {
  for (const int64_t window : {-1, 0, 20, 100}) {
    SCOPED_TRACE(window);
    Case c = small({90, 1, 40}, {50, 70, 0}, 4, 2, 128);
    c.window = window;
    CaseData data = make_data(c);
    HYLA_COMPUTE(asked, data);
    const std::vector<int64_t> qo = integers_of(data.args.qo_indptr), kv = integers_of(data.args.kv_indptr);
    std::vector<int64_t> begin{0};
    std::vector<uint8_t> bits;
    for (size_t i = 0; i + 1 < qo.size(); ++i) {
      const int64_t rows = qo[i + 1] - qo[i], keys = rows + kv[i + 1] - kv[i];
      for (int64_t q = 0; q < rows; ++q)
        for (int64_t key = 0; key < keys; ++key) bits.push_back(key_allowed(data.args, static_cast<int64_t>(i), q, key));
      begin.push_back(static_cast<int64_t>(bits.size()));
    }
    data.args.custom_mask = add_tensor(data, DType::kBool, {static_cast<int64_t>(bits.size())});
    std::memcpy(data.args.custom_mask.data, bits.data(), bits.size());
    data.args.mask_indptr = add_integers(data, DType::kI64, begin);
    data.args.skip_prefix_custom_mask = false, data.args.sliding_window = -1, data.args.causal = false;
    HYLA_COMPUTE(drawn, data);
    EXPECT_LE(rel_l2(drawn.out, asked.out), 0.004);
    EXPECT_LE(max_lse_error(drawn.lse, asked.lse), 1e-5);
  }
}

// All keys from the pool in one part, against prefix and new tokens in two: the features must not get lost on either path.
TEST_P(ExtendProperties, OnePartEqualsTwoParts) {
  for (int features = 0; features < 16; ++features) {
    SCOPED_TRACE(features);
    const int64_t rows = 60, prefix = 77, keys = rows + prefix;
    Case c = small({rows}, {prefix}, 4, 2, 64);
    if (features & 1) c.window = 31;
    if (features & 2) c.sinks = Sinks::kFp32;
    if (features & 4) c.cap = 5, c.gain = 4;
    if (features & 8) c.mask = Mask::kTree, c.mask_prefix = true;
    CaseData data = make_data(c);
    HYLA_COMPUTE(two, data);
    CaseData one_data = make_data(c);
    Args& a = one_data.args;
    std::vector<int64_t> slots = integers_of(a.kv_indices);
    const TensorView k = add_tensor(one_data, DType::kBf16, {a.k_buffer.shape[0] + rows, 2, 64}),
                     v = add_tensor(one_data, DType::kBf16, {a.k_buffer.shape[0] + rows, 2, 64});
    for (int64_t s = 0; s < a.k_buffer.shape[0]; ++s) copy_row(a.k_buffer, s, k, s), copy_row(a.v_buffer, s, v, s);
    for (int64_t t = 0; t < rows; ++t) slots.push_back(a.k_buffer.shape[0] + t), copy_row(a.k, t, k, slots.back()), copy_row(a.v, t, v, slots.back());
    // Every rule of the two-part call as one mask over the whole list.
    a.custom_mask = add_tensor(one_data, DType::kU8, {rows * (keys + rows)}, 0);
    for (int64_t q = 0; q < rows; ++q)
      for (int64_t key = 0; key < keys; ++key) a.custom_mask.as<uint8_t>()[q * (keys + rows) + key] = key_allowed(data.args, 0, q, key);
    a.mask_indptr = add_integers(one_data, DType::kI64, {0, rows * (keys + rows)});
    a.k_buffer = k, a.v_buffer = v, a.kv_indices = add_integers(one_data, DType::kI32, slots), a.kv_indptr = add_integers(one_data, DType::kI32, {0, keys});
    a.max_prefix = keys, a.sliding_window = -1, a.skip_extend = true, a.skip_prefix_custom_mask = false;
    HYLA_COMPUTE(one, one_data);
    EXPECT_LE(rel_l2(one.out, two.out), 0.004);
    EXPECT_LE(max_lse_error(one.lse, two.lse), 1e-5);
  }
}

// sglang hands over the window's tail of the prefix only; positions within the window are the same.
TEST_P(ExtendProperties, ListingTheWindowOnlyEqualsListingThePrefix) {
  Case c = small({500}, {3000}, 2, 1, 128);
  c.window = 1023;
  CaseData data = make_data(c);
  HYLA_COMPUTE(whole, data);
  std::vector<int64_t> slots = integers_of(data.args.kv_indices);
  slots.erase(slots.begin(), slots.end() - 1023);
  data.args.kv_indices = add_integers(data, DType::kI32, slots), data.args.kv_indptr = add_integers(data, DType::kI32, {0, 1023});
  data.args.max_prefix = 1023;
  HYLA_COMPUTE(listed, data);
  EXPECT_LE(rel_l2(listed.out, whole.out), 0.004);
  EXPECT_LE(max_lse_error(listed.lse, whole.lse), 1e-5);
}

TEST_P(ExtendProperties, InputsOfOneHeadReachItsGroupOnly) {
  Case c = small({40}, {70}, 12, 4, 64);
  CaseData data = make_data(c);
  HYLA_COMPUTE(before, data);
  for (int64_t t = 0; t < 40; ++t)
    for (int64_t d = 0; d < 64; ++d) data.args.v.as<uint16_t>()[t * data.args.v.stride[0] + 2 * 64 + d] ^= 0x8000;
  HYLA_COMPUTE(after, data);
  for (int64_t t = 0; t < 40; ++t)
    for (int64_t h = 0; h < 12; ++h) {
      bool changed = false;
      for (int64_t d = 0; d < 64; ++d) changed = changed || before.out[(t * 12 + h) * 64 + d] != after.out[(t * 12 + h) * 64 + d];
      EXPECT_EQ(changed, h / 3 == 2) << "row " << t << " head " << h;
    }
}

HYLA_INSTANTIATE(ExtendProperties);

// The rest is promised by the CPU backend alone.

TEST(ExtendCpu, BatchMatesDoNotChangeBits) {
  for (const char* name : {"d64", "d128", "latent576", "mixed_rows", "cap50", "fp16"}) {
    const CaseData data = make_data(*find_case(name));
    const Outputs together = compute(data, {"cpu", 0}, *testing::backend_named("cpu"));
    const std::vector<int64_t> qo = integers_of(data.args.qo_indptr);
    const size_t row_bytes = together.out_bytes.size() / static_cast<size_t>(data.args.q.shape[0]);
    for (size_t i = 0; i + 1 < qo.size(); ++i) {
      const Outputs alone = compute(select_requests(data, {static_cast<int64_t>(i)}), {"cpu", 0}, *testing::backend_named("cpu"));
      ASSERT_TRUE(alone.status.ok()) << alone.status.message();
      const size_t bytes = static_cast<size_t>(qo[i + 1] - qo[i]) * row_bytes;
      EXPECT_EQ(std::memcmp(alone.out_bytes.data(), together.out_bytes.data() + static_cast<size_t>(qo[i]) * row_bytes, bytes), 0) << name << " request " << i;
    }
  }
}

std::string fingerprint() {
  uint64_t hash = 1469598103934665603ull;
  for (const char* name : {"mixed_rows", "latent576", "window127", "e4m3"}) {
    const Outputs o = compute(make_data(*find_case(name)), {"cpu", 0}, *testing::backend_named("cpu"));
    for (const auto* bytes : {&o.out_bytes, &o.lse_bytes})
      for (const uint8_t b : *bytes) hash = (hash ^ b) * 1099511628211ull;
  }
  return std::to_string(hash);
}

TEST(ExtendCpuDeathTest, ThreadsDoNotChangeBits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child is a fresh process and reads the variable anew
  const char* before = std::getenv("HYLA_NUM_THREADS");
  const std::string saved = before ? before : "";
  const std::string expected = fingerprint();
  for (const char* threads : {"1", "2", "5"}) {
    ::setenv("HYLA_NUM_THREADS", threads, 1);
    EXPECT_EXIT(
        {
          if (std::to_string(cpu_threads()) != std::getenv("HYLA_NUM_THREADS")) std::exit(2);
          std::fprintf(stderr, "fingerprint %s.", fingerprint().c_str());
          std::exit(0);
        },
        ::testing::ExitedWithCode(0), "fingerprint " + expected + "\\.");
  }
  if (before) ::setenv("HYLA_NUM_THREADS", saved.c_str(), 1);
  else ::unsetenv("HYLA_NUM_THREADS");
}

// A NaN in a key's value or key reaches the rows that see it and no bit of the others.
TEST(ExtendCpu, NanReachesOnlyTheRowsThatSeeIt) {
  for (const bool in_key : {false, true})
    for (const int64_t at : {0, 5, 99, 149}) {
      Case c = small({150}, {40}, 4, 2, 64);
      const CaseData clean = make_data(c);
      CaseData dirty = make_data(c);
      const TensorView& t = in_key ? dirty.args.k : dirty.args.v;
      t.as<uint16_t>()[at * t.stride[0] + 3] = 0x7fc0;  // KV head 0
      const Outputs a = compute(clean, {"cpu", 0}, *testing::backend_named("cpu")), b = compute(dirty, {"cpu", 0}, *testing::backend_named("cpu"));
      for (int64_t row = 0; row < 150; ++row)
        for (int64_t h = 0; h < 4; ++h) {
          const size_t first = static_cast<size_t>((row * 4 + h) * 64);
          const bool sees = h < 2 && row >= at;
          if (sees) {
            EXPECT_TRUE(std::isnan(b.out[first + 3])) << row << " " << h;
          } else {
            for (size_t d = 0; d < 64; ++d) ASSERT_TRUE(std::isfinite(b.out[first + d])) << row << " " << h;
            EXPECT_LE(rel_l2({b.out.begin() + static_cast<int64_t>(first), b.out.begin() + static_cast<int64_t>(first + 64)},
                             {a.out.begin() + static_cast<int64_t>(first), a.out.begin() + static_cast<int64_t>(first + 64)}),
                      0.01);
          }
        }
    }
}

}  // namespace
}  // namespace hyla::extend
