#include "benchlib/presets.h"

#include <fmt/format.h>

#include <functional>
#include <map>

#include "benchlib/values.h"

namespace hyla::bench {
namespace {

using KdaList = std::vector<Named<KdaShape>>;
using ExtendList = std::vector<Named<ExtendShape>>;

void add_lengths(KdaList& list, const std::string& group, KdaShape shape) {
  for (int64_t T = 64; T <= 16384; T *= 2) {
    shape.T = T;
    if (shape.HV == 0) shape.HV = shape.H;
    list.push_back({group, shape});
  }
}

KdaList grid() {
  constexpr std::pair<int64_t, int64_t> kRows[] = {{1, 4},  {1, 8}, {1, 16}, {2, 4},  {2, 8},  {2, 16},  {4, 4},  {4, 8}, {8, 4},
                                                   {4, 16}, {8, 8}, {8, 16}, {4, 32}, {8, 32}, {16, 32}, {4, 64}, {8, 64}};
  KdaList list;
  for (const auto& [B, H] : kRows) add_lengths(list, fmt::format("B={} H={} B*H={}", B, H, B * H), {.B = B, .H = H});
  return list;
}

KdaList model(const std::string& name, int64_t heads, std::initializer_list<int64_t> parts, kda::Gate gate) {
  KdaList list;
  for (const int64_t tp : parts) add_lengths(list, fmt::format("{} TP{} H={}", name, tp, heads / tp), {.H = heads / tp, .gate = gate});
  return list;
}

KdaList varlen() {
  KdaList list;
  const auto add = [&](const std::string& group, int64_t H, std::vector<int64_t> lengths) {
    KdaShape shape{.H = H, .HV = H, .seqlens = std::move(lengths)};
    shape.T = 0;
    for (const int64_t length : shape.seqlens) shape.T += length;
    list.push_back({fmt::format("{} H={}", group, H), shape});
  };
  for (const int64_t H : {12, 64, 96}) {
    for (const int64_t count : {10, 20}) {
      std::vector<int64_t> uniform(static_cast<size_t>(count), 8192 / count), skewed(static_cast<size_t>(count), 64), random;
      skewed[0] = 8192 - 64 * (count - 1);
      for (int64_t i = 0; i < count; ++i)
        random.push_back(16 + static_cast<int64_t>(mixed(static_cast<uint64_t>(i)) % static_cast<uint64_t>(2 * 8192 / count)));
      add(fmt::format("{} even", count), H, uniform);
      add(fmt::format("{} skewed", count), H, skewed);
      add(fmt::format("{} random", count), H, random);
    }
    add("8 x 1024", H, std::vector<int64_t>(8, 1024));
    add("6 mixed", H, {1300, 547, 2048, 963, 271, 3063});
  }
  return list;
}

ExtendShape attention(int64_t Hq, int64_t Hkv, int64_t Lq, int64_t Lv, int64_t window = -1, bool sinks = false, bool latent = false) {
  return {.Hq = Hq, .Hkv = Hkv, .Lq = Lq, .Lv = Lv, .window = window, .sinks = sinks, .latent = latent};
}
// The sizes serving meets: whole prompts, a chunk on a long prefix, many short chunks.
ExtendList with_lengths(const std::string& group, ExtendShape shape) {
  ExtendList list;
  constexpr int64_t kSizes[][3] = {{1, 1024, 0}, {1, 4096, 0}, {1, 16384, 0}, {1, 1024, 15360}, {16, 128, 4096}, {1, 16, 4096}};  // batch, n, prefix
  for (const auto& size : kSizes) {
    shape.batch = size[0], shape.n = size[1], shape.prefix = size[2];
    list.push_back({group, shape});
  }
  return list;
}
ExtendList joined(std::initializer_list<ExtendList> lists) {
  ExtendList all;
  for (const ExtendList& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

const std::map<std::string, std::function<KdaList()>>& kda_table() {
  static const std::map<std::string, std::function<KdaList()>> table = {{"grid", grid},
                                                                        {"varlen", varlen},
                                                                        {"kimi-k3",
                                                                         [] {
                                                                           return model("Kimi K3", 96, {1, 8, 16}, kda::Gate::kBounded);
                                                                         }},
                                                                        {"glm-5.3-flash",
                                                                         [] {
                                                                           return model("GLM-5.3-Flash", 64, {1, 8}, kda::Gate::kBounded);
                                                                         }},
                                                                        {"kimi-linear", [] {
                                                                           return model("Kimi-Linear", 32, {1, 8}, kda::Gate::kUnbounded);
                                                                         }}};
  return table;
}
const std::map<std::string, std::function<ExtendList()>>& extend_table() {
  static const std::map<std::string, std::function<ExtendList()>> table = {
      {"grid",
       [] {
         ExtendList list =
             joined({with_lengths("D=64 16/8", attention(16, 8, 64, 64)), with_lengths("D=128 16/8", attention(16, 8, 128, 128)),
                     with_lengths("D=128 32/8", attention(32, 8, 128, 128)), with_lengths("D=128 32/4", attention(32, 4, 128, 128)),
                     with_lengths("D=256 16/8", attention(16, 8, 256, 256)), with_lengths("D=256 32/8", attention(32, 8, 256, 256)),
                     with_lengths("D=512 16/8", attention(16, 8, 512, 512)), with_lengths("D=192/128", attention(16, 16, 192, 128)),
                     with_lengths("MLA 576/512", attention(16, 1, 576, 512, -1, false, true)),
                     with_lengths("D=128 window 1024", attention(16, 8, 128, 128, 1024)), with_lengths("D=256 window 1024", attention(16, 8, 256, 256, 1024))});
         list.push_back({"MLA 576/512", attention(16, 1, 576, 512, -1, false, true)});
         list.back().shape.n = 8192;
         return list;
       }},
      {"kimi-k3", [] { return with_lengths("Kimi K3 MLA TP8", attention(12, 1, 576, 512, -1, false, true)); }},
      {"gemma-4",
       [] {
         return joined({with_lengths("Gemma 4 global", attention(16, 8, 512, 512)), with_lengths("Gemma 4 window", attention(16, 8, 256, 256, 1024))});
       }},
      {"llama", [] { return with_lengths("Llama-like 32/8", attention(32, 8, 128, 128)); }},
      {"gpt-oss",
       [] {
         return joined({with_lengths("gpt-oss full", attention(64, 8, 64, 64, -1, true)), with_lengths("gpt-oss window", attention(64, 8, 64, 64, 127, true))});
       }},
      {"deepseek", [] {
         return joined(
             {with_lengths("DeepSeek MLA", attention(128, 1, 576, 512, -1, false, true)), with_lengths("DeepSeek 192/128", attention(128, 128, 192, 128))});
       }}};
  return table;
}

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& [name, unused] : table) names.push_back(name);
  return names;
}

}  // namespace

std::vector<std::string> kda_presets() { return names_of(kda_table()); }
std::vector<std::string> extend_presets() { return names_of(extend_table()); }
std::optional<KdaList> kda_preset(const std::string& name) {
  const auto found = kda_table().find(name);
  if (found == kda_table().end()) return std::nullopt;
  return found->second();
}
std::optional<ExtendList> extend_preset(const std::string& name) {
  const auto found = extend_table().find(name);
  if (found == extend_table().end()) return std::nullopt;
  return found->second();
}

KdaList kda_demo(bool cpu) {
  KdaList list;
  const auto add = [&](const char* model, KdaShape shape) {
    shape.HV = shape.H;
    list.push_back({model, shape});
  };
  const auto unbounded = kda::Gate::kUnbounded;
  add("Kimi-Linear TP8", {.T = 64, .H = 4, .gate = unbounded});
  add("Kimi-Linear TP8", {.T = 1024, .H = 4, .gate = unbounded});
  add("Kimi-Linear TP1", {.T = 512, .H = 32, .gate = unbounded});
  add("GLM-5.3-Flash TP8", {.T = 2048, .H = 8});
  add("Kimi K3 TP8", {.B = 2, .T = 512, .H = 12});
  if (!cpu) {
    add("Kimi-Linear TP8", {.T = 16384, .H = 4, .gate = unbounded});
    add("Kimi-Linear TP1", {.T = 8192, .H = 32, .gate = unbounded});
    add("GLM-5.3-Flash TP1", {.T = 8192, .H = 64});
    add("Kimi K3 TP8", {.T = 8192, .H = 12});
    add("Kimi K3 TP1", {.T = 8192, .H = 96});
  }
  return list;
}

ExtendList extend_demo(bool cpu) {
  ExtendList list;
  const auto add = [&](const char* model, ExtendShape shape, int64_t batch, int64_t n, int64_t prefix) {
    shape.batch = batch, shape.n = n, shape.prefix = prefix;
    list.push_back({model, shape});
  };
  const ExtendShape llama = attention(32, 8, 128, 128), gemma = attention(16, 8, 512, 512), gemma_window = attention(16, 8, 256, 256, 1024);
  const ExtendShape mla = attention(12, 1, 576, 512, -1, false, true), oss = attention(64, 8, 64, 64, 127, true);
  add("Llama-like", llama, 1, 512, 0);
  add("Llama-like", llama, 1, 128, 2048);
  add("Gemma 4 global", gemma, 1, 256, 256);
  add("Gemma 4 window", gemma_window, 1, 512, 1536);
  add("Kimi K3 MLA TP8", mla, 1, 256, 256);
  add("gpt-oss window", oss, 2, 256, 512);
  if (!cpu) {
    add("Llama-like", llama, 1, 16384, 0);
    add("Llama-like", llama, 1, 1024, 15360);
    add("Llama-like", llama, 16, 128, 4096);
    add("Gemma 4 global", gemma, 1, 8192, 0);
    add("Gemma 4 window", gemma_window, 1, 16384, 0);
    add("Kimi K3 MLA TP8", mla, 1, 8192, 0);
  }
  return list;
}

}  // namespace hyla::bench
