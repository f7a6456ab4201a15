#include "cuda/host/tensor_map.h"

#include <cuda_runtime.h>

#include <string>

#include "cuda/host/launch.h"

namespace hyla::cuda {
namespace {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

Result<EncodeTiled> find_encoder() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  constexpr unsigned kSince = 12000;  // the CUDA version whose signature is meant
  HYLA_RETURN_IF_ERROR(
      check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, kSince, cudaEnableDefault, &found), "cudaGetDriverEntryPointByVersion"));
  if (found != cudaDriverEntryPointSuccess || entry == nullptr)
    return Status(Code::kDevice, "cuTensorMapEncodeTiled", "a driver of CUDA 12 or newer", "no such entry point");
  return reinterpret_cast<EncodeTiled>(entry);
}

}  // namespace

Status make_tensor_map(const TensorMapSpec& spec, CUtensorMap& map) {
  static const Result<EncodeTiled> encoder = find_encoder();
  if (!encoder.ok()) return encoder.status();
  std::array<cuuint64_t, 5> extent{}, stride{};
  std::array<cuuint32_t, 5> box{}, step{};
  for (int i = 0; i < spec.rank; ++i) {
    extent[i] = spec.extent[i], box[i] = spec.box[i], step[i] = 1;
    if (i > 0) stride[i - 1] = spec.stride_bytes[i];
  }
  const CUresult result = encoder.value()(&map, spec.type, static_cast<cuuint32_t>(spec.rank), spec.data, extent.data(), stride.data(), box.data(), step.data(),
                                          CU_TENSOR_MAP_INTERLEAVE_NONE, spec.swizzle, spec.l2, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return Status(Code::kDevice, spec.argument, "a tensor that cuTensorMapEncodeTiled accepts", "CUresult " + std::to_string(result));
  return {};
}

}  // namespace hyla::cuda
