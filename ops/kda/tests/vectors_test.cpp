// The stored reference vectors: inputs with float64 results, and a layer's tensors captured from English text.
#include <gtest/gtest.h>

#include <cstdlib>

#include <cmath>
#include <nlohmann/json.hpp>

#include "hyla/safetensors.h"
#include "ops/kda/tests/case_runner.h"
#include "testing/backends.h"

namespace hyla::kda {
namespace {

double rel_l2(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return INFINITY;
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) error += (got[i] - want[i]) * (got[i] - want[i]), norm += want[i] * want[i];
  return std::sqrt(error / norm);
}

// A case of a file as CaseData: its inputs copied, outputs filled with NaN.
struct Loader {
  const SafetensorsFile& file;
  std::string name;
  CaseData data;

  TensorView copy(const std::string& tensor) {
    if (!file.contains(name + "/" + tensor)) return {};
    TensorView t = file.tensor(name + "/" + tensor).value();
    const size_t bytes = static_cast<size_t>(t.numel() * size_of(t.dtype));
    const auto* from = t.as<uint8_t>();
    data.buffers.emplace_back(from, from + bytes);
    t.data = data.buffers.back().data();
    return t;
  }
  TensorView empty_like(const std::string& tensor, DType dtype) {
    const TensorView like = file.tensor(name + "/" + tensor).value();
    data.buffers.emplace_back(static_cast<size_t>(like.numel() * size_of(dtype)), uint8_t{0xFF});
    return contiguous(data.buffers.back().data(), dtype, like.shape.data(), like.rank);
  }
};

CaseData load(const SafetensorsFile& file, const std::string& name) {
  Loader l{file, name, {}};
  l.data.buffers.reserve(32);
  const auto json = nlohmann::json::parse(file.metadata().at(name));
  Args& a = l.data.args;
  a.q = l.copy("q"), a.k = l.copy("k"), a.v = l.copy("v"), a.g = l.copy("g"), a.beta = l.copy("beta");
  a.A_log = l.copy("A_log"), a.dt_bias = l.copy("dt_bias"), a.cu_seqlens = l.copy("cu_seqlens"), a.initial_state = l.copy("initial_state");
  a.out = l.empty_like("output", DType::kBf16), a.final_state = l.empty_like("final_state", DType::kFp32);
  a.checkpoints = l.empty_like("checkpoints", DType::kFp32);
  a.scale = json.at("scale").get<float>();
  a.qk_l2norm = json.at("use_qk_l2norm_in_kernel").get<bool>();
  a.beta_is_logits = json.at("use_beta_sigmoid_in_kernel").get<bool>();
  a.beta_doubled = json.at("allow_neg_eigval").get<bool>();
  if (!json.at("use_gate_in_kernel").get<bool>()) a.gate = Gate::kGiven;
  else if (json.at("lower_bound").is_null()) a.gate = Gate::kUnbounded;
  else a.gate = Gate::kBounded, a.lower_bound = json.at("lower_bound").get<float>();
  return std::move(l.data);
}

void check_file(const std::string& path) {
  const char* folder = std::getenv("HYLA_TEST_DATA");  // where the tests run away from their source
  const auto file = SafetensorsFile::read(std::string(folder ? folder : HYLA_TEST_DATA) + "/" + path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_FALSE(file->metadata().empty());
  for (const auto& [name, json] : file->metadata()) {
    const CaseData data = load(file.value(), name);
    const auto stored = [&](const char* tensor) { return values_of(file->tensor(name + "/" + tensor).value()); };
    // The stored results and the oracle agree: two float64 recurrences.
    const ReferenceResult oracle = reference(data.args);
    EXPECT_LT(rel_l2(oracle.out, stored("output")), 1e-6) << name;
    EXPECT_LT(rel_l2(oracle.final_state, stored("final_state")), 1e-6) << name;
    for (testing::Backend* backend : testing::present_backends()) {
      const Outputs got = compute(data, {}, *backend);
      ASSERT_TRUE(got.status.ok()) << name << " " << got.status.message();
      EXPECT_LT(rel_l2(values_of(got.host.args.out), stored("output")), 6e-3) << name << " " << got.plan;
      EXPECT_LT(rel_l2(values_of(got.host.args.final_state), stored("final_state")), 5e-3) << name << " " << got.plan;
      EXPECT_LT(rel_l2(values_of(got.host.args.checkpoints), stored("checkpoints")), 5e-3) << name << " " << got.plan;
    }
  }
}

TEST(KdaVectors, ReferenceFile) { check_file("kda_vectors.safetensors"); }
TEST(KdaVectors, LayerFedWithText) { check_file("kda_layer_text.safetensors"); }

}  // namespace
}  // namespace hyla::kda
