// The reference file: outputs and LSE made in float64 by other code.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "hyla/safetensors.h"
#include "ops/extend/tests/test_targets.h"

namespace hyla::extend {
namespace {

std::string data_file() {
  const char* folder = std::getenv("HYLA_TEST_DATA");
  return std::string(folder ? folder : HYLA_TEST_DATA) + "/extend_vectors.safetensors";
}

// The number after "key": in a flat JSON object.
double number(const std::string& json, const std::string& key) {
  const size_t at = json.find("\"" + key + "\":");
  EXPECT_NE(at, std::string::npos) << key;
  return at == std::string::npos ? 0 : std::strtod(json.c_str() + at + key.size() + 3, nullptr);
}

struct Vector {
  CaseData data;
  std::vector<double> out, lse;
};

Vector load(const SafetensorsFile& file, const std::string& name) {
  Vector v;
  const auto take = [&](const char* tensor) {
    const Result<TensorView> found = file.tensor(name + "/" + tensor);
    EXPECT_TRUE(found.ok()) << found.status().message();
    const TensorView& from = found.value();
    TensorView t = contiguous(nullptr, from.dtype, from.shape.data(), from.rank);
    v.data.buffers.emplace_back(from.as<uint8_t>(), from.as<uint8_t>() + from.numel() * size_of(from.dtype));
    t.data = v.data.buffers.back().data();
    return t;
  };
  Args& a = v.data.args;
  a.q = take("q_extend"), a.k = take("k_extend"), a.v = take("v_extend"), a.k_buffer = take("k_buffer"), a.v_buffer = take("v_buffer");
  a.qo_indptr = take("qo_indptr"), a.kv_indptr = take("kv_indptr"), a.kv_indices = take("kv_indices");
  if (file.contains(name + "/sinks")) a.sinks = take("sinks");
  if (file.contains(name + "/custom_mask")) a.custom_mask = take("custom_mask"), a.mask_indptr = take("mask_indptr");
  const std::string& json = file.metadata().at(name);
  a.sm_scale = static_cast<float>(number(json, "sm_scale")), a.logit_cap = static_cast<float>(number(json, "logit_cap"));
  a.sliding_window = static_cast<int64_t>(number(json, "sliding_window_size")), a.causal = json.find("\"is_causal\": true") != std::string::npos;
  a.lse = {};
  TensorView out = take("output"), lse = take("lse");
  for (int64_t i = 0; i < out.numel(); ++i) v.out.push_back(static_cast<double>(out.as<float>()[i]));
  for (int64_t i = 0; i < lse.numel(); ++i) v.lse.push_back(static_cast<double>(lse.as<float>()[i]));
  a.out = {}, a.out.dtype = a.q.dtype, a.lse.rank = 2;
  renew_outputs(v.data);
  return v;
}

const std::set<std::string> kNames = {"gqa128", "window_cap_sink", "mla", "d256", "d512", "tree"};

TEST(ExtendVectors, HoldTheCasesKnown) {
  const Result<SafetensorsFile> file = SafetensorsFile::read(data_file());
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::set<std::string> names;
  for (const auto& [name, json] : file->metadata()) names.insert(name);
  EXPECT_EQ(names, kNames);
}

TEST(ExtendVectors, TheOracleReproducesThem) {
  const Result<SafetensorsFile> file = SafetensorsFile::read(data_file());
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (const std::string& name : kNames) {
    const Vector v = load(file.value(), name);
    const ReferenceResult r = reference(v.data.args);
    EXPECT_LE(rel_l2(r.out, v.out), 1e-6) << name;  // the file holds fp32
    EXPECT_LE(max_lse_error(r.lse, v.lse), 1e-6) << name;
  }
}

class ExtendVectorsOn : public OnTargets {};

TEST_P(ExtendVectorsOn, Agree) {
  const Result<SafetensorsFile> file = SafetensorsFile::read(data_file());
  ASSERT_TRUE(file.ok()) << file.status().message();
  int taken = 0;
  for (const std::string& name : kNames) {
    const Vector v = load(file.value(), name);
    const Outputs o = compute(v.data, {GetParam().variant, 0}, *testing::backend_named(GetParam().backend));
    if (on_gpu() && o.status.code() == Code::kUnsupported) continue;
    ASSERT_TRUE(o.status.ok()) << o.status.message();
    ++taken;
    EXPECT_LE(rel_l2(o.out, v.out), tolerance_of(DType::kBf16, DType::kBf16).rel_l2) << name;
    EXPECT_LE(max_lse_error(o.lse, v.lse), 1e-5) << name;
  }
  EXPECT_GT(taken, 0);
}

// The file's page size is that of the pool it came from: read as pages, the same bits.
TEST_P(ExtendVectorsOn, PagedViewGivesTheSameBits) {
  const Result<SafetensorsFile> file = SafetensorsFile::read(data_file());
  ASSERT_TRUE(file.ok()) << file.status().message();
  Vector v = load(file.value(), "d256");
  HYLA_COMPUTE(slots, v.data);
  for (TensorView* t : {&v.data.args.k_buffer, &v.data.args.v_buffer}) {
    ASSERT_EQ(t->shape[0] % 16, 0);
    *t = contiguous(t->data, t->dtype, {t->shape[0] / 16, 16, t->shape[1], t->shape[2]});
  }
  HYLA_COMPUTE(pages, v.data);
  EXPECT_EQ(pages.out_bytes, slots.out_bytes);
}

HYLA_INSTANTIATE(ExtendVectorsOn);

}  // namespace
}  // namespace hyla::extend
