// Every subcommand as people call it: output, JSON, exit codes.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hyla/safetensors.h"

namespace hyla {
namespace {

using nlohmann::json;

struct Answer {
  int code = -1;
  std::string text;  // standard output and error
};
Answer hyla_command(const std::string& arguments) {
  Answer answer;
  FILE* pipe = popen((std::string(HYLA_CLI) + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return answer;
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) answer.text.append(buffer, count);
  const int status = pclose(pipe);
  answer.code = WIFEXITED(status) ? WEXITSTATUS(status) : -status;
  return answer;
}
bool contains(const Answer& answer, const std::string& part) { return answer.text.find(part) != std::string::npos; }
std::string data(const char* name) { return std::string(HYLA_TEST_DATA) + "/" + name; }

class CommandLine : public ::testing::Test {
 protected:
  CommandLine() {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("hyla_cli_" + std::to_string(getpid()) + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  ~CommandLine() override { std::filesystem::remove_all(folder_); }
  std::string file(const char* name) const { return (folder_ / name).string(); }

  // The cases of a file with one change.
  template <class Change>
  std::string changed(const char* source, Change&& change) {
    auto whole = SafetensorsFile::read(data(source)).value();
    std::map<std::string, TensorView> tensors = whole.tensors();
    std::map<std::string, std::string> metadata = whole.metadata();
    change(tensors, metadata);
    const std::string path = file("changed.safetensors");
    EXPECT_TRUE(write_safetensors(path, tensors, metadata).ok());
    return path;
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(CommandLine, HelpDocumentsCommandsAndExitCodes) {
  const Answer help = hyla_command("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* part : {"info", "demo", "run", "check", "plan", "sweep", "Exit codes", "1 a result failed its check"})
    EXPECT_TRUE(contains(help, part)) << part;
}

TEST_F(CommandLine, WrongUseIsExitCode2) {
  for (const char* arguments : {"", "nothing", "check", "plan kda", "run kda --in x", "check --backend tpu x", "plan kda --shape T=x",
                                "plan kda --shape T=8 --device h300", "sweep kda --preset nothing"})
    EXPECT_EQ(hyla_command(arguments).code, 2) << arguments;
}

TEST_F(CommandLine, InfoNamesBackendsAndVariants) {
  const Answer text = hyla_command("info");
  EXPECT_EQ(text.code, 0);
  EXPECT_TRUE(contains(text, "KDA variants:"));
  const Answer answer = hyla_command("info --json");
  const json info = json::parse(answer.text);
  EXPECT_FALSE(info["kda_variants"].empty());
  EXPECT_FALSE(info["extend_variants"].empty());
  EXPECT_EQ(info["devices"][0]["device"], "cpu");
  EXPECT_FALSE(info["data"].get<std::string>().empty());
}

TEST_F(CommandLine, PlansForEveryDevice) {
  for (const char* device : {"h200", "h100", "a100", "rtx4090", "rtx-pro-6000", "b200", "cpu"})
    for (const char* op : {"kda --shape B=1,T=8192,H=4", "extend --shape n=1024,prefix=4096,D=128"}) {
      const Answer answer = hyla_command(std::string("plan ") + op + " --json --device " + device);
      const json plan = json::parse(answer.text, nullptr, false);
      ASSERT_TRUE(plan.is_object()) << device << ": " << answer.text;
      EXPECT_EQ(plan["device"], device);
      EXPECT_GT(plan["floor_us"].get<double>(), 0);
      if (answer.code == 0) {
        EXPECT_FALSE(plan["candidates"].empty());
        for (const json& candidate : plan["candidates"]) EXPECT_FALSE(candidate["reason"].get<std::string>().empty()) << candidate;
      } else {
        EXPECT_EQ(answer.code, 4) << answer.text;  // a chip that no kernel serves: the reason is given
        EXPECT_FALSE(plan["error"].get<std::string>().empty());
      }
    }
  const Answer cpu = hyla_command("plan kda --shape B=1,T=100,H=4 --device cpu");
  EXPECT_EQ(cpu.code, 0) << cpu.text;
  EXPECT_TRUE(contains(cpu, "candidates") || contains(cpu, "modelled")) << cpu.text;
  const Answer forced = hyla_command("plan kda --shape T=100 --device cpu --variant nothing");
  EXPECT_NE(forced.code, 0);
  EXPECT_TRUE(contains(forced, "nothing")) << forced.text;
}

TEST_F(CommandLine, ChecksTheReferenceFiles) {
  const Answer answer = hyla_command("check --backend cpu --json " + data("kda_vectors.safetensors") + " " + data("extend_vectors.safetensors") + " " +
                                     data("kda_layer_text.safetensors"));
  EXPECT_EQ(answer.code, 0) << answer.text;
  const json results = json::parse(answer.text);
  ASSERT_EQ(results.size(), 12u);
  for (const json& c : results) {
    EXPECT_EQ(c["pass"], true) << c;
    EXPECT_EQ(c["backend"], "cpu");
    EXPECT_EQ(c["variant"], "cpu");
    size_t float64 = 0, stored = 0;
    for (const json& line : c["results"]) float64 += line["against"] == "float64", stored += line["against"] == "stored";
    EXPECT_GE(float64, 2u);
    EXPECT_EQ(float64, stored);
  }
  const Answer table = hyla_command("check --backend cpu --case mla " + data("extend_vectors.safetensors"));
  EXPECT_EQ(table.code, 0);
  EXPECT_TRUE(contains(table, "1 of 1 cases pass")) << table.text;
}

TEST_F(CommandLine, ATamperedResultFailsWithExitCode1) {
  for (const auto& [source, tensor] :
       {std::pair("extend_vectors.safetensors", "tree/output"), std::pair("extend_vectors.safetensors", "d512/lse"),
        std::pair("kda_vectors.safetensors", "gate_given/final_state"), std::pair("kda_vectors.safetensors", "unbounded/checkpoints")}) {
    std::vector<char> bytes;
    const std::string path = changed(source, [&, name = tensor](auto& tensors, auto&) {
      TensorView& t = tensors.at(name);
      bytes.assign(t.template as<char>(), t.template as<char>() + t.numel() * size_of(t.dtype));
      t.data = bytes.data();
      t.template as<float>()[t.numel() / 2] += 100.0f;
    });
    const std::string name(tensor);
    const Answer answer = hyla_command("check --backend cpu --case " + name.substr(0, name.find('/')) + " " + path);
    EXPECT_EQ(answer.code, 1) << answer.text;
    EXPECT_TRUE(contains(answer, "FAIL")) << answer.text;
  }
}

TEST_F(CommandLine, MissingTensorsAndUnknownCasesAreNamed) {
  for (const char* tensor : {"k_extend", "kv_indices", "v_buffer"}) {
    const std::string path = changed("extend_vectors.safetensors", [&](auto& tensors, auto&) { tensors.erase(std::string("gqa128/") + tensor); });
    const Answer answer = hyla_command("check " + path);
    EXPECT_EQ(answer.code, 3);
    EXPECT_TRUE(contains(answer, std::string("gqa128/") + tensor)) << answer.text;
  }
  const std::string no_arguments = changed("kda_vectors.safetensors", [](auto&, auto& metadata) { metadata.erase("unbounded"); });
  EXPECT_EQ(hyla_command("check " + no_arguments).code, 3);
  EXPECT_TRUE(contains(hyla_command("check " + no_arguments), "unbounded"));
  const std::string no_tensors = changed("kda_vectors.safetensors", [](auto&, auto& metadata) { metadata["ghost"] = "{}"; });
  EXPECT_TRUE(contains(hyla_command("check " + no_tensors), "ghost"));
  const Answer unknown = hyla_command("check --case nothing " + data("kda_vectors.safetensors"));
  EXPECT_EQ(unknown.code, 3);
  EXPECT_TRUE(contains(unknown, "nothing") && contains(unknown, "gate_given")) << unknown.text;
  const std::string wrong_kind = changed("kda_vectors.safetensors", [](auto&, auto& metadata) { metadata["unbounded"] = R"({"scale": "big"})"; });
  EXPECT_EQ(hyla_command("check " + wrong_kind).code, 3);
  EXPECT_TRUE(contains(hyla_command("check " + wrong_kind), "scale"));
}

TEST_F(CommandLine, BadFilesAndContentsAreErrors) {
  EXPECT_EQ(hyla_command("check /no/such/file").code, 3);
  const std::string truncated = file("truncated.safetensors");
  std::filesystem::copy_file(data("extend_vectors.safetensors"), truncated);
  std::filesystem::resize_file(truncated, 100000);
  EXPECT_EQ(hyla_command("check " + truncated).code, 3);
  static int64_t bad_slots[51];
  for (int64_t& slot : bad_slots) slot = 1 << 20;
  const std::string outside = changed("extend_vectors.safetensors", [](auto& tensors, auto&) { tensors.at("tree/kv_indices").data = bad_slots; });
  const Answer answer = hyla_command("check --case tree " + outside);
  EXPECT_NE(answer.code, 0);
  EXPECT_TRUE(contains(answer, "tree: kv_indices")) << answer.text;
}

TEST_F(CommandLine, RunWritesTheResults) {
  const std::string out = file("out.safetensors");
  const Answer answer = hyla_command("run extend --backend cpu --case d256 --in " + data("extend_vectors.safetensors") + " --out " + out);
  ASSERT_EQ(answer.code, 0) << answer.text;
  const auto results = SafetensorsFile::read(out);
  ASSERT_TRUE(results.ok());
  EXPECT_EQ(describe(results->tensor("d256/output").value()), "bf16 [65, 2, 256] on cpu");
  EXPECT_EQ(describe(results->tensor("d256/lse").value()), "fp32 [65, 2] on cpu");
  EXPECT_EQ(json::parse(results->metadata().at("d256"))["variant"], "cpu");

  EXPECT_EQ(hyla_command("run kda --backend cpu --in " + data("kda_vectors.safetensors") + " --out " + out).code, 0);
  const auto kda = SafetensorsFile::read(out);
  ASSERT_TRUE(kda.ok());
  EXPECT_EQ(kda->tensors().size(), 15u);
  EXPECT_EQ(describe(kda->tensor("varlen_tails/checkpoints").value()), "fp32 [4, 1, 128, 128] on cpu");
  EXPECT_EQ(hyla_command("run kda --in " + data("extend_vectors.safetensors") + " --out " + out).code, 3);
  EXPECT_EQ(hyla_command("run extend --in " + data("extend_vectors.safetensors") + " --out /no/such/folder/x").code, 3);
}

TEST_F(CommandLine, SweepWritesAResultFileAndGoesOn) {
  const std::string path = file("sweep.json");
  const Answer first = hyla_command("sweep kda --backend cpu --shape B=1,T=64,H=2 --shape B=1,T=128,H=2 --json " + path);
  ASSERT_EQ(first.code, 0) << first.text;
  json record = json::parse(std::ifstream(path));
  for (const char* key : {"device", "driver", "commit", "dirty", "date", "versions", "ceilings", "rows"}) EXPECT_TRUE(record.contains(key)) << key;
  ASSERT_EQ(record["rows"].size(), 2u);
  for (const json& row : record["rows"]) {
    EXPECT_EQ(row["op"], "kda");
    EXPECT_EQ(row["pass"], true);
    EXPECT_LE(row["rel_l2"].get<double>(), row["tolerance"].get<double>());
    for (const char* key : {"graph_ms", "call_ms", "spread", "gbps", "plan", "variant", "state_rel_l2", "peers"}) EXPECT_TRUE(row.contains(key)) << key;
    EXPECT_TRUE(row["peers"].empty()) << "recorded peers belong to another device";
  }
  const Answer more = hyla_command("sweep kda --backend cpu --shape B=1,T=64,H=2 --shape B=1,T=100,H=1 --resume --json " + path);
  EXPECT_EQ(more.code, 0) << more.text;
  EXPECT_EQ(json::parse(std::ifstream(path))["rows"].size(), 3u);

  const Answer extend = hyla_command("sweep extend --backend cpu --shape n=64,prefix=64,D=64,Hq=4,Hkv=2 --json -");
  ASSERT_EQ(extend.code, 0) << extend.text;
  record = json::parse(extend.text);
  EXPECT_GT(record["rows"][0]["useful_tflops"].get<double>(), 0);
  const Answer grid = hyla_command("sweep kda --backend cpu --max-tokens 64 --max-time 20");
  EXPECT_EQ(grid.code, 0) << grid.text;
  EXPECT_TRUE(contains(grid, "B=1 H=4 B*H=4") && contains(grid, "·") && contains(grid, "cells not run")) << grid.text;
}

TEST_F(CommandLine, ProfileNamesABottleneckWithEvidence) {
  for (const char* op : {"kda --shape B=1,T=256,H=2", "extend --shape n=64,prefix=64,D=64,Hq=4,Hkv=2"}) {
    const Answer answer = hyla_command(std::string("profile ") + op + " --backend cpu --json");
    ASSERT_EQ(answer.code, 0) << answer.text;
    const json profile = json::parse(answer.text);
    EXPECT_FALSE(profile["bottleneck"].get<std::string>().empty());
    EXPECT_GE(profile["evidence"].size(), 4u);
    for (const json& e : profile["evidence"]) EXPECT_TRUE(e["share"].get<double>() >= 0 && !e["evidence"].get<std::string>().empty()) << e;
    EXPECT_TRUE(contains(hyla_command(std::string("profile ") + op + " --backend cpu"), "bottleneck"));
  }
}

// Results as a GPU's sweep leaves them, with a slower cell, a failed one, and text that would end a script early.
json sample_record() {
  json rows = json::array();
  for (const int B : {1, 8})
    for (int T = 64; T <= 16384; T *= 2) {
      const double ms = 0.01 + T * B * 4e-6;
      rows.push_back({{"op", "kda"},
                      {"shape", {{"B", B}, {"T", T}, {"H", 16}, {"HV", 16}, {"K", 128}, {"V", 128}, {"seqlens", nullptr}, {"gate", "bounded"}}},
                      {"variant", "sm90_chunk"},
                      {"plan", "sm90_chunk </script><!-- segments=3"},
                      {"graph_ms", ms},
                      {"call_ms", ms * 1.1},
                      {"spread", 0.01},
                      {"rel_l2", 0.003},
                      {"tolerance", 0.006},
                      {"pass", true},
                      {"peers", {{"fla", {{"graph_ms", T == 64 ? ms / 2 : ms * 3}}}}}});
    }
  rows.push_back({{"op", "extend"},
                  {"shape",
                   {{"batch", 1},
                    {"n", 1024},
                    {"prefix", 0},
                    {"Hq", 16},
                    {"Hkv", 8},
                    {"Lq", 128},
                    {"Lv", 128},
                    {"page_size", 1},
                    {"window", -1},
                    {"dtype", "bf16"},
                    {"features", json::array()}}},
                  {"variant", "sm90_fa"},
                  {"plan", "sm90_fa"},
                  {"rel_l2", 0.1},
                  {"tolerance", 0.004},
                  {"pass", false},
                  {"peers", json::object()}});
  return {{"device", "NVIDIA H200"},
          {"driver", "580"},
          {"commit", "0123456789abcdef"},
          {"dirty", false},
          {"date", "2026-12-01"},
          {"versions", {{"hyla", "0.1.0"}}},
          {"sm_count", 132},
          {"ceilings", {{"copy_tbs", 4.26}, {"gemm_tflops", 682.0}}},
          {"rows", rows}};
}

TEST_F(CommandLine, ReportIsOnePageThatLoadsNothing) {
  std::ofstream(file("results.json")) << sample_record().dump();
  const Answer answer = hyla_command("report " + file("results.json") + " -o " + file("report.html"));
  ASSERT_EQ(answer.code, 0) << answer.text;
  std::ifstream in(file("report.html"));
  const std::string page((std::istreambuf_iterator<char>(in)), {});
  EXPECT_NE(page.find("NVIDIA H200"), std::string::npos);
  EXPECT_EQ(page.find("</script><!--"), std::string::npos) << "data must not end its script";
  for (const char* outside : {"src=", "href=", "@import", "url(", "fetch("}) EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  EXPECT_EQ(hyla_command("report /no/such/file -o " + file("x.html")).code, 3);
  std::ofstream(file("broken.json")) << "{\"rows\": 3}";
  EXPECT_EQ(hyla_command("report " + file("broken.json") + " -o " + file("x.html")).code, 3);
}

TEST_F(CommandLine, ReportIsDrawnInABrowser) {
  std::string browser;
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    if (browser.empty() && std::system((std::string("command -v ") + name + " >/dev/null 2>&1").c_str()) == 0) browser = name;
  if (browser.empty()) GTEST_SKIP() << "no Chromium";
  std::ofstream(file("results.json")) << sample_record().dump();
  ASSERT_EQ(hyla_command("report " + file("results.json") + " -o " + file("report.html")).code, 0);
  const std::string command = "timeout 120 " + browser + " --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir=" + file("profile") +
                              " --window-size=390,800 --dump-dom file://" + file("report.html") + " 2>/dev/null";
  std::string dom;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) dom.append(buffer, count);
  ASSERT_EQ(pclose(pipe), 0);
  EXPECT_NE(dom.find("data-drawn=\"yes\""), std::string::npos) << "a script error stopped the page";
  for (const char* part : {"Kimi Delta Attention", "class=\"slower\"", "0.50 !", "3.00", "class=\"failed\"", "memory floor", "tensor floor", "Roofline",
                           "relative L2", "slower in 2"})
    EXPECT_NE(dom.find(part), std::string::npos) << part;
  EXPECT_EQ(dom.find("\"NaN"), std::string::npos);
}

TEST_F(CommandLine, BackendsThatAreAbsentAreSaidSo) {
  const json info = json::parse(hyla_command("info --json").text);
  if (info["devices"].size() > 1) GTEST_SKIP() << "this machine has a GPU";
  const Answer answer = hyla_command("check --backend cuda " + data("extend_vectors.safetensors"));
  EXPECT_EQ(answer.code, 4);
  EXPECT_TRUE(contains(answer, "cuda")) << answer.text;
  EXPECT_EQ(hyla_command("check --backend cpu --variant nothing " + data("extend_vectors.safetensors")).code == 0, false);
}

TEST_F(CommandLine, DemoRunsTheCapturedLayer) {
  const Answer answer = hyla_command("demo --backend cpu");
  EXPECT_EQ(answer.code, 0) << answer.text;
  for (const char* part : {"KDA prefill", "Extend attention", "A KDA layer that read English text", "Kimi", "Gemma"})
    EXPECT_TRUE(contains(answer, part)) << part;
  EXPECT_FALSE(contains(answer, "FAILED")) << answer.text;
}

}  // namespace
}  // namespace hyla
