#include "ops/extend/tests/cases.h"

namespace hyla::extend {
namespace {

using Lengths = std::vector<int64_t>;

Case make(std::string name, Lengths extend, Lengths prefix, int64_t Hq, int64_t Hkv, int64_t Lq, int64_t Lv) {
  Case c;
  c.name = std::move(name), c.extend = std::move(extend), c.prefix = std::move(prefix), c.Hq = Hq, c.Hkv = Hkv, c.Lq = Lq, c.Lv = Lv;
  return c;
}
Case ragged(std::string name, int64_t Hq, int64_t Hkv, int64_t Lq, int64_t Lv) {
  return make(std::move(name), {70, 1, 133, 0, 64}, {65, 130, 0, 20, 128}, Hq, Hkv, Lq, Lv);
}
Case latent(std::string name, Lengths extend, Lengths prefix, int64_t Hq, int64_t Lq) {
  Case c = make(std::move(name), std::move(extend), std::move(prefix), Hq, 1, Lq, 512);
  c.latent = true;
  return c;
}
template <class Change>
Case with(Case c, Change change) {
  change(c);
  return c;
}
void set_dtype(Case& c, DType t) { c.dtype = c.pool_dtype = c.out = t; }

void add_head_dims(std::vector<Case>& t) {
  for (const int64_t d : {64, 80, 96, 128, 256}) t.push_back(ragged("d" + std::to_string(d), 4, 2, d, d));
  t.push_back(ragged("d192_128", 4, 4, 192, 128));
  t.push_back(make("d512", {70, 1, 65}, {65, 130, 0}, 4, 2, 512, 512));
  t.push_back(latent("latent576", {70, 1, 65}, {65, 130, 0}, 16, 576));
  t.push_back(latent("latent512", {70, 1, 65}, {65, 130, 0}, 16, 512));
  t.push_back(make("mla_apart", {40, 3}, {65, 130}, 8, 1, 576, 512));
  t.push_back(make("d576", {20, 3}, {65, 13}, 2, 1, 576, 576));
  t.push_back(ragged("d8", 2, 1, 8, 8));
  t.push_back(ragged("d24_40", 2, 1, 24, 40));
  t.push_back(ragged("d72_136", 2, 2, 72, 136));
  t.push_back(ragged("d128_64", 4, 2, 128, 64));
}

void add_groups(std::vector<Case>& t) {
  for (const int64_t g : {1, 3, 5, 8, 16}) t.push_back(ragged("group" + std::to_string(g), 2 * g, 2, 64, 64));
  t.push_back(make("group3_d128", {130, 70}, {200, 3}, 12, 4, 128, 128));
  for (const int64_t heads : {4, 6, 8, 12, 22, 64, 96, 128})
    t.push_back(latent("latent_heads" + std::to_string(heads), {heads > 32 ? 5 : 33, 1, 4}, {63, 700, 0}, heads, 576));
}

void add_lengths(std::vector<Case>& t) {
  t.push_back(make("one_token", {1}, {0}, 4, 2, 128, 128));
  t.push_back(make("no_prefix", {300}, {0}, 8, 2, 128, 128));
  t.push_back(make("tiles_exact", {128, 256}, {128, 64}, 2, 2, 128, 128));
  t.push_back(make("tiles_plus_one", {129, 65}, {129, 193}, 2, 2, 128, 128));
  t.push_back(make("empty_requests", {0, 17, 0, 0, 40, 0}, {10, 0, 0, 33, 5, 7}, 4, 2, 64, 64));
  t.push_back(make("all_empty", {0, 0}, {10, 0}, 4, 2, 64, 64));
  t.push_back(make("decode_rows", {1, 1, 1, 1}, {2000, 1, 517, 64}, 8, 1, 128, 128));
  t.push_back(make("mixed_rows", {200, 1, 1, 3, 1}, {0, 1500, 700, 64, 9}, 8, 2, 128, 128));
  t.push_back(make("short_on_long", {5}, {8192}, 8, 2, 128, 128));
  t.push_back(make("long_d64", {900}, {300}, 2, 1, 64, 64));
  t.push_back(make("long_d256", {300}, {700}, 4, 2, 256, 256));
  t.push_back(make("long_d512", {130}, {500}, 4, 1, 512, 512));
  t.push_back(latent("latent_long", {100}, {1500}, 16, 576));
  t.push_back(latent("latent_decode", {1, 2}, {4000, 63}, 16, 576));
  t.push_back(with(ragged("trailing_rows", 4, 2, 128, 128), [](Case& c) { c.trailing = 37; }));
  // 19 requests of very uneven lengths, as sglang's own test draws them.
  const Lengths uneven_extend = {143, 7, 61, 96, 1, 188, 33, 12, 75, 150, 2, 54, 119, 20, 87, 5, 64, 41, 130},
                uneven_prefix = {12, 191, 64, 3, 144, 0, 77, 160, 31, 9, 128, 45, 100, 1, 182, 66, 23, 150, 58};
  for (const int64_t d : {80, 96, 128, 256}) t.push_back(make("batch19_d" + std::to_string(d), uneven_extend, uneven_prefix, 12, 4, d, d));
  t.push_back(with(make("batch19_window127_sinks", uneven_extend, uneven_prefix, 64, 8, 64, 64), [](Case& c) { c.window = 127, c.sinks = Sinks::kFp32; }));
  Lengths extend, prefix;
  for (int64_t i = 0; i < 300; ++i) extend.push_back(i % 7), prefix.push_back(i * 5 % 23);
  t.push_back(make("many_requests", extend, prefix, 4, 2, 64, 64));
}

void add_windows(std::vector<Case>& t) {
  for (const int64_t w : {0, 4, 16, 127})
    t.push_back(with(make("window" + std::to_string(w), {200, 70, 1}, {100, 0, 300}, 4, 2, 64, 64), [w](Case& c) { c.window = w; }));
  t.push_back(with(make("window16_long_prefix", {200}, {1000}, 4, 2, 128, 128), [](Case& c) { c.window = 16; }));
  t.push_back(with(make("window1023", {500}, {3000}, 2, 1, 128, 128), [](Case& c) { c.window = 1023; }));
  t.push_back(with(make("window1023_d256", {300, 1}, {1500, 2000}, 2, 1, 256, 256), [](Case& c) { c.window = 1023; }));
  t.push_back(with(make("window127_d512", {150}, {200}, 2, 1, 512, 512), [](Case& c) { c.window = 127; }));
  t.push_back(with(latent("window127_latent", {150}, {200}, 4, 576), [](Case& c) { c.window = 127; }));
  t.push_back(with(make("window_wider_than_all", {60}, {50}, 4, 2, 128, 128), [](Case& c) { c.window = int64_t{1} << 40; }));
  t.push_back(with(make("window127_full", {300, 33}, {100, 0}, 4, 2, 64, 64), [](Case& c) { c.window = 127, c.causal = false; }));
  t.push_back(with(make("window4_full", {90}, {50}, 4, 2, 128, 128), [](Case& c) { c.window = 4, c.causal = false; }));
  t.push_back(with(make("window127_sinks", {130}, {300}, 8, 1, 64, 64), [](Case& c) { c.window = 127, c.sinks = Sinks::kBf16; }));
  t.push_back(with(make("window_cap_sinks", {130, 20}, {300, 77}, 4, 4, 64, 64), [](Case& c) { c.window = 32, c.cap = 30, c.sinks = Sinks::kFp32; }));
}

void add_scores(std::vector<Case>& t) {
  t.push_back(ragged("full", 4, 2, 128, 128)), t.back().causal = false;
  t.push_back(with(ragged("full_d512", 2, 1, 512, 512), [](Case& c) { c.causal = false, c.extend = {50, 33}, c.prefix = {0, 70}; }));
  t.push_back(with(ragged("cap50", 4, 2, 128, 128), [](Case& c) { c.cap = 50, c.gain = 20; }));
  // Raw scores reach +-1e5.
  t.push_back(with(ragged("cap30_hot", 4, 2, 128, 128), [](Case& c) { c.cap = 30, c.gain = 3e4f; }));
  t.push_back(with(ragged("cap50_hot_d256", 2, 1, 256, 256), [](Case& c) { c.cap = 50, c.gain = 3e4f; }));
  t.push_back(with(ragged("sharp", 4, 2, 128, 128), [](Case& c) { c.gain = 30; }));  // nearly one-hot weights
  t.push_back(with(ragged("sinks_fp32", 6, 2, 128, 128), [](Case& c) { c.sinks = Sinks::kFp32; }));
  t.push_back(with(ragged("sinks_bf16", 6, 2, 64, 64), [](Case& c) { c.sinks = Sinks::kBf16; }));
  t.push_back(with(ragged("sinks_huge", 4, 2, 128, 128), [](Case& c) { c.sinks = Sinks::kFp32, c.sink_size = 50; }));
  t.push_back(with(ragged("sinks_huge_sharp", 4, 2, 64, 64), [](Case& c) { c.sinks = Sinks::kFp32, c.sink_size = 50, c.gain = 40; }));
  t.push_back(with(latent("sinks_latent", {33, 1}, {100, 7}, 8, 576), [](Case& c) { c.sinks = Sinks::kFp32; }));
  t.push_back(with(ragged("sinks_cap_prefix_only", 4, 2, 128, 128), [](Case& c) { c.sinks = Sinks::kFp32, c.cap = 30, c.skip_extend = true; }));
  t.push_back(with(ragged("temperature", 4, 2, 128, 128), [](Case& c) { c.temperature = 32; }));
  t.push_back(with(ragged("temperature_cap", 4, 2, 64, 64), [](Case& c) { c.temperature = 100, c.cap = 30, c.gain = 10; }));
  t.push_back(with(ragged("temperature_d256", 4, 2, 256, 256), [](Case& c) { c.temperature = 2; }));
  t.push_back(with(ragged("skip_prefix", 4, 2, 128, 128), [](Case& c) { c.skip_prefix = true; }));
  t.push_back(with(ragged("skip_extend", 4, 2, 128, 128), [](Case& c) { c.skip_extend = true; }));
  t.push_back(with(ragged("skip_both", 4, 2, 128, 128), [](Case& c) { c.skip_prefix = c.skip_extend = true; }));
  t.push_back(with(ragged("skip_both_sinks", 4, 2, 128, 128), [](Case& c) { c.skip_prefix = c.skip_extend = true, c.sinks = Sinks::kFp32; }));
  t.push_back(with(latent("skip_extend_latent", {33, 1, 4}, {100, 7, 0}, 16, 576), [](Case& c) { c.skip_extend = true; }));
  t.push_back(with(ragged("skip_prefix_window", 4, 2, 64, 64), [](Case& c) { c.skip_prefix = true, c.window = 20; }));
  t.push_back(with(ragged("no_lse", 4, 2, 128, 128), [](Case& c) { c.lse = false; }));
}

void add_masks(std::vector<Case>& t) {
  const auto masked = [](std::string name, Mask mask, int64_t d, auto change) {
    Case c = make(std::move(name), {160, 23, 1}, {37, 130, 5}, 4, 2, d, d);
    c.mask = mask;
    change(c);
    return c;
  };
  const auto same = [](Case&) {};
  t.push_back(masked("mask_causal", Mask::kCausal, 128, same));
  t.push_back(masked("mask_tree", Mask::kTree, 128, same));
  t.push_back(masked("mask_tree_d64", Mask::kTree, 64, same));
  t.push_back(masked("mask_blocks", Mask::kBlockCausal, 128, same));
  t.push_back(masked("mask_blocks_not_causal", Mask::kBlockCausal, 64, [](Case& c) { c.causal = false; }));
  t.push_back(masked("mask_all", Mask::kAll, 64, same));
  t.push_back(masked("mask_prefix", Mask::kTree, 128, [](Case& c) { c.mask_prefix = true; }));
  t.push_back(masked("mask_rows_without_keys", Mask::kSparse, 64, [](Case& c) { c.mask_prefix = true; }));
  t.push_back(with(make("mask_rows_without_keys_d512", {80, 20}, {37, 0}, 2, 1, 512, 512), [](Case& c) { c.mask = Mask::kSparse, c.mask_prefix = true; }));
  t.push_back(masked("mask_rows_without_keys_sinks", Mask::kSparse, 128, [](Case& c) { c.mask_prefix = true, c.sinks = Sinks::kFp32; }));
  t.push_back(masked("mask_sparse_no_prefix", Mask::kSparse, 128, [](Case& c) { c.skip_prefix = true; }));
  t.push_back(masked("mask_window", Mask::kBlockCausal, 64, [](Case& c) { c.window = 48; }));
  t.push_back(masked("mask_window_offsets", Mask::kTree, 128, [](Case& c) { c.window = 150, c.mask_offset = 19, c.mask_prefix = true; }));
  t.push_back(masked("mask_offsets_new_only", Mask::kTree, 64, [](Case& c) { c.window = 150, c.mask_offset = 19; }));
  t.push_back(masked("mask_d256", Mask::kTree, 256, same));
}

void add_storage(std::vector<Case>& t) {
  t.push_back(ragged("fp16", 4, 2, 128, 128)), set_dtype(t.back(), DType::kFp16);
  t.push_back(ragged("fp16_d64", 4, 2, 64, 64)), set_dtype(t.back(), DType::kFp16);
  t.push_back(with(latent("fp16_latent", {33, 1}, {100, 7}, 16, 576), [](Case& c) { set_dtype(c, DType::kFp16); }));
  t.push_back(ragged("fp32", 4, 2, 128, 128)), set_dtype(t.back(), DType::kFp32);
  t.push_back(ragged("bf16_to_fp32", 4, 2, 128, 128)), t.back().out = DType::kFp32;
  const auto fp8 = [](Case c, DType pool) {
    c.pool_dtype = pool, c.k_scale = 0.02f, c.v_scale = 3;
    return c;
  };
  t.push_back(fp8(ragged("e4m3", 4, 2, 128, 128), DType::kE4m3));
  t.push_back(fp8(ragged("e5m2", 4, 2, 128, 128), DType::kE5m2));
  t.push_back(fp8(ragged("e4m3_d64", 4, 2, 64, 64), DType::kE4m3));
  t.push_back(fp8(ragged("e4m3_d256", 4, 2, 256, 256), DType::kE4m3));
  t.push_back(fp8(ragged("e4m3_d80", 4, 2, 80, 80), DType::kE4m3));
  t.push_back(fp8(latent("e4m3_latent", {33, 1}, {100, 70}, 16, 576), DType::kE4m3));
  for (const int64_t heads : {6, 22, 128})
    t.push_back(fp8(latent("e4m3_latent_heads" + std::to_string(heads), {heads > 32 ? 3 : 20, 1}, {63, 300}, heads, 576), DType::kE4m3));
  t.push_back(fp8(latent("e5m2_latent512", {33, 1}, {100, 70}, 16, 512), DType::kE5m2));
  t.push_back(fp8(make("e4m3_d512", {40, 1}, {130, 70}, 4, 2, 512, 512), DType::kE4m3));
  t.push_back(fp8(with(ragged("e4m3_window", 4, 2, 128, 128), [](Case& c) { c.window = 50; }), DType::kE4m3));
  t.push_back(fp8(with(ragged("e4m3_fp16", 4, 2, 128, 128), [](Case& c) { set_dtype(c, DType::kFp16); }), DType::kE4m3));
  t.push_back(fp8(with(ragged("e4m3_cap_sinks", 4, 2, 128, 128), [](Case& c) { c.cap = 30, c.sinks = Sinks::kFp32; }), DType::kE4m3));
  t.push_back(fp8(with(ragged("e4m3_prefix_only", 4, 2, 128, 128), [](Case& c) { c.skip_extend = true; }), DType::kE4m3));
  t.push_back(fp8(with(ragged("e4m3_new_only", 4, 2, 128, 128), [](Case& c) { c.skip_prefix = true; }), DType::kE4m3));
  t.push_back(with(ragged("scaled_bf16_pool", 4, 2, 128, 128), [](Case& c) { c.k_scale = 0.5f, c.v_scale = 3; }));
}

void add_layouts(std::vector<Case>& t) {
  const struct {
    const char* name;
    Pool pool;
  } layouts[] = {{"pages", Pool::kPages}, {"heads_first", Pool::kHeadsFirst}, {"blocks_first", Pool::kBlocksFirst}};
  for (const auto& layout : layouts)
    for (const int64_t page : {16, 64}) {
      Case c = ragged(std::string(layout.name) + std::to_string(page), 4, 2, 128, 128);
      c.pool = layout.pool, c.page_size = page;
      t.push_back(std::move(c));
    }
  t.push_back(with(ragged("pages1", 4, 2, 128, 128), [](Case& c) { c.pool = Pool::kPages; }));
  t.push_back(with(ragged("pages128", 4, 2, 64, 64), [](Case& c) { c.pool = Pool::kPages, c.page_size = 128; }));
  t.push_back(with(ragged("pages16_d256", 4, 2, 256, 256), [](Case& c) { c.pool = Pool::kPages, c.page_size = 16; }));
  t.push_back(with(ragged("pages64_window", 4, 2, 128, 128), [](Case& c) { c.pool = Pool::kPages, c.page_size = 64, c.window = 50; }));
  t.push_back(with(latent("pages16_latent", {33, 1, 64}, {100, 7, 333}, 16, 576), [](Case& c) { c.pool = Pool::kPages, c.page_size = 16; }));
  t.push_back(with(latent("pages64_latent", {33, 1, 64}, {100, 7, 333}, 16, 576), [](Case& c) { c.pool = Pool::kPages, c.page_size = 64; }));
  t.push_back(with(ragged("pages16_e4m3", 4, 2, 128, 128),
                   [](Case& c) { c.pool = Pool::kPages, c.page_size = 16, c.pool_dtype = DType::kE4m3, c.k_scale = 0.02f, c.v_scale = 3; }));
  t.push_back(with(ragged("stacked", 4, 2, 128, 128), [](Case& c) { c.pool = Pool::kStacked; }));
  t.push_back(with(ragged("int64_indices", 4, 2, 128, 128), [](Case& c) { c.index = DType::kI64; }));
  t.push_back(with(ragged("fused_projection", 4, 2, 128, 128), [](Case& c) { c.fused = true; }));
  t.push_back(with(ragged("shifted_8_bytes", 4, 2, 128, 128), [](Case& c) { c.shift = 8; }));
  t.push_back(with(ragged("shifted_2_bytes", 4, 2, 64, 64), [](Case& c) { c.shift = 2; }));
  t.push_back(with(ragged("shifted_16_bytes", 4, 2, 128, 128), [](Case& c) { c.shift = 16; }));
  t.push_back(with(ragged("slots_outside_pool", 4, 2, 128, 128), [](Case& c) { c.bad_slots = 9; }));
  t.push_back(with(ragged("slots_outside_pool_pages", 4, 2, 64, 64), [](Case& c) { c.bad_slots = 9, c.pool = Pool::kPages, c.page_size = 16; }));
  t.push_back(with(latent("slots_outside_pool_latent", {33, 1}, {100, 70}, 16, 576), [](Case& c) { c.bad_slots = 9; }));
}

}  // namespace

const std::vector<Case>& all_cases() {
  static const std::vector<Case> table = [] {
    std::vector<Case> t;
    add_head_dims(t), add_groups(t), add_lengths(t), add_windows(t), add_scores(t), add_masks(t), add_storage(t), add_layouts(t);
    for (size_t i = 0; i < t.size(); ++i) t[i].seed = i + 1;
    return t;
  }();
  return table;
}

const Case* find_case(const std::string& name) {
  for (const Case& c : all_cases())
    if (c.name == name) return &c;
  return nullptr;
}

}  // namespace hyla::extend
