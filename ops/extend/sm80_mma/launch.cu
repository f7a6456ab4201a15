#include "launch.h"

#include "cuda/host/launch.h"
#include "merge.cuh"

namespace hyla::extend::sm80_mma {
namespace {

template <class T, int kTile>
Status start(const Params& p, int64_t blocks, int64_t smem_bytes, int64_t merge_rows, Stream stream) {
  cuda::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(blocks));
  config.block = dim3(kThreads);
  config.smem_bytes = smem_bytes;
  HYLA_RETURN_IF_ERROR(cuda::launch(attend<T, kTile>, "extend::sm80_mma", config, stream, p));
  if (p.splits == 1) return {};
  config.grid = dim3(static_cast<unsigned>(merge_rows));
  config.block = dim3(kMergeThreads);
  config.smem_bytes = 0;
  return cuda::launch(merge<T>, "extend::sm80_mma merge", config, stream, p, kTiles[kTile].m(), kTiles[kTile].n);
}

template <class T>
Status start(const Params& p, int tile, int64_t blocks, int64_t smem_bytes, int64_t merge_rows, Stream stream) {
  switch (tile) {
    case 0:
      return start<T, 0>(p, blocks, smem_bytes, merge_rows, stream);
    case 1:
      return start<T, 1>(p, blocks, smem_bytes, merge_rows, stream);
    case 2:
      return start<T, 2>(p, blocks, smem_bytes, merge_rows, stream);
    default:
      return start<T, 3>(p, blocks, smem_bytes, merge_rows, stream);
  }
}

}  // namespace

Status launch(const Params& p, int tile, bool fp16, int64_t blocks, int64_t smem_bytes, int64_t merge_rows, Stream stream) {
  return fp16 ? start<__half>(p, tile, blocks, smem_bytes, merge_rows, stream) : start<__nv_bfloat16>(p, tile, blocks, smem_bytes, merge_rows, stream);
}

}  // namespace hyla::extend::sm80_mma
