#include "hyla/safetensors.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace hyla {
namespace {

std::vector<char> file_bytes(const std::string& header, size_t data_bytes) {
  std::vector<char> bytes(8 + header.size() + data_bytes, 'x');
  const uint64_t size = header.size();
  std::memcpy(bytes.data(), &size, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}
Status parse_error(const std::string& header, size_t data_bytes) { return SafetensorsFile::parse(file_bytes(header, data_bytes), "f").status(); }

std::string temporary(const char* name) { return (std::filesystem::path(::testing::TempDir()) / name).string(); }

TEST(Safetensors, WritesAndReadsBack) {
  std::vector<float> a = {1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> b = {7, 8, 9};
  std::vector<int64_t> c = {-1};
  const std::string path = temporary("hyla_round_trip.safetensors");
  const Status written = write_safetensors(path,
                                           {{"x/b", contiguous(b.data(), DType::kBool, {3})},
                                            {"x/a", contiguous(a.data(), DType::kFp32, {2, 3})},
                                            {"c", contiguous(c.data(), DType::kI64, {1})},
                                            {"empty", contiguous(nullptr, DType::kBf16, {0, 4})}},
                                           {{"x", R"({"scale": 1})"}});
  ASSERT_TRUE(written.ok()) << written.message();
  const auto file = SafetensorsFile::read(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->metadata().at("x"), R"({"scale": 1})");
  const TensorView t = file->tensor("x/a").value();
  EXPECT_EQ(describe(t), "fp32 [2, 3] on cpu");
  EXPECT_EQ(std::memcmp(t.data, a.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file->tensor("x/b")->data, b.data(), 3), 0);
  EXPECT_EQ(*file->tensor("c")->as<int64_t>(), -1);
  EXPECT_EQ(file->tensor("empty")->numel(), 0);
  for (const auto& [name, view] : file->tensors()) EXPECT_TRUE(check_view(name, view).ok()) << name;
  std::remove(path.c_str());
}

TEST(Safetensors, ViewsOutliveACopyOfTheFile) {
  TensorView t;
  SafetensorsFile kept = SafetensorsFile::parse(file_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2), "f").value();
  {
    const SafetensorsFile copy = kept;
    t = copy.tensor("a").value();
  }
  EXPECT_EQ(t.as<char>()[1], 'x');
}

TEST(Safetensors, MissingTensorIsNamedWithItsFile) {
  const auto file = SafetensorsFile::parse(file_bytes("{}", 0), "some.safetensors");
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->contains("case/q"));
  EXPECT_NE(file->tensor("case/q").status().message().find("some.safetensors: case/q"), std::string::npos);
}

struct Broken {
  const char* header;
  size_t data_bytes;
  const char* named;  // what the message must name
};
class BrokenHeader : public ::testing::TestWithParam<Broken> {};
TEST_P(BrokenHeader, IsRefusedByName) {
  const Status status = parse_error(GetParam().header, GetParam().data_bytes);
  ASSERT_FALSE(status.ok()) << GetParam().header;
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.message().find(GetParam().named), std::string::npos) << status.message();
}
INSTANTIATE_TEST_SUITE_P(
    Safetensors, BrokenHeader,
    ::testing::Values(
        Broken{"{", 0, "malformed JSON"}, Broken{"[]", 0, "JSON object"}, Broken{"", 0, "malformed JSON"}, Broken{"{}{}", 0, "malformed JSON"},
        Broken{"{}", 3, "0 bytes of data"}, Broken{R"({"a":3})", 0, "a: expected an object"},
        Broken{R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "a field dtype"}, Broken{R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "a field shape"},
        Broken{R"({"a":{"dtype":"U8","shape":[1]}})", 1, "a field data_offsets"},
        Broken{R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, "a.dtype"},
        Broken{R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1, "a.dtype"},
        Broken{R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "a.shape"},
        Broken{R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "a.shape"},
        Broken{R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, "a.shape"},
        Broken{R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1, "a.shape"},
        Broken{R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "a.shape"},
        Broken{R"({"a":{"dtype":"I64","shape":[281474976710656],"data_offsets":[0,0]}})", 0, "a.data_offsets"},
        Broken{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1, "a.data_offsets"},
        Broken{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "a.data_offsets"},
        Broken{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,-1]}})", 1, "a.data_offsets"},
        Broken{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "a.data_offsets"},
        Broken{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3, "a.data_offsets"},
        Broken{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, "b.data_offsets"},
        Broken{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5, "b.data_offsets"},
        Broken{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "'a' twice"},
        Broken{R"({"__metadata__":{"a":1}})", 0, "__metadata__.a"}, Broken{R"({"__metadata__":[]})", 0, "__metadata__"},
        Broken{"{\"\xff\":1}", 0, "malformed JSON"}));

TEST(Safetensors, HeaderLengthBeyondTheFile) {
  std::vector<char> bytes = file_bytes("{}", 0);
  for (const uint64_t size : {uint64_t{3}, uint64_t{1} << 62, ~uint64_t{0}}) {
    std::memcpy(bytes.data(), &size, 8);
    EXPECT_NE(SafetensorsFile::parse(bytes, "f").status().message().find("truncated"), std::string::npos) << size;
  }
  for (size_t size = 0; size < 8; ++size) EXPECT_FALSE(SafetensorsFile::parse(std::vector<char>(size), "f").ok());
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::vector<char> whole = file_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  ASSERT_TRUE(SafetensorsFile::parse(whole, "f").ok());
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(SafetensorsFile::parse(std::vector<char>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)), "f").ok()) << size;
}

TEST(Safetensors, DeepNestingDoesNotOverflowTheStack) {
  EXPECT_FALSE(parse_error("{\"a\":" + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}", 0).ok());
}

TEST(Safetensors, FilesThatCannotBeRead) {
  EXPECT_EQ(SafetensorsFile::read(temporary("hyla_no_such_file")).status().code(), Code::kIo);
  EXPECT_EQ(SafetensorsFile::read(::testing::TempDir()).status().code(), Code::kIo);
}

TEST(Safetensors, WriterRefusesWhatItCannotWrite) {
  std::vector<float> a(4);
  TensorView strided = contiguous(a.data(), DType::kFp32, {2, 1});
  strided.stride[0] = 2;
  const std::string path = temporary("hyla_refused.safetensors");
  EXPECT_EQ(write_safetensors(path, {{"s", strided}}).argument(), "s");
  EXPECT_EQ(write_safetensors(path, {{"none", TensorView{}}}).argument(), "none");
  EXPECT_EQ(write_safetensors(path, {{"gpu", contiguous(a.data(), DType::kFp32, {4}, {DeviceKind::kCuda, 0})}}).argument(), "gpu");
  EXPECT_EQ(write_safetensors("/no/such/folder/file", {{"a", contiguous(a.data(), DType::kFp32, {4})}}).code(), Code::kIo);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace hyla
