// Tensor maps for TMA loads, made on the host.
#pragma once
#include <cuda.h>

#include <array>
#include <cstdint>

#include "hyla/status.h"

namespace hyla::cuda {

// A tiled tensor in global memory, innermost dimension first (as the driver counts). Innermost elements are contiguous.
struct TensorMapSpec {
  const char* argument = "";  // named in errors
  void* data = nullptr;
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  int rank = 0;  // 1 to 5
  std::array<uint64_t, 5> extent{};
  std::array<uint64_t, 5> stride_bytes{};  // of dimension i; [0] is not read
  std::array<uint32_t, 5> box{};           // elements of a tile
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapL2promotion l2 = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
};

// Elements outside the tensor read as zero.
Status make_tensor_map(const TensorMapSpec& spec, CUtensorMap& map);

}  // namespace hyla::cuda
