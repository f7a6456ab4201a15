#include "launch.h"

#include "config.h"
#include "cuda/host/launch.h"
#include "kernels.h"

namespace hyla::extend::sm90_fa {
namespace {

template <int kShapeIndex>
cudaError_t launch_pool(const Params& p, Pool pool, bool bf16, cudaStream_t stream) {
  switch (pool) {
    case Pool::kSame:
      return launch_extend<kShapeIndex, Pool::kSame>(p, bf16, stream);
    case Pool::kE4m3:
      return launch_extend<kShapeIndex, Pool::kE4m3>(p, bf16, stream);
    case Pool::kE5m2:
      return launch_extend<kShapeIndex, Pool::kE5m2>(p, bf16, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t launch_shape(const Params& p, int shape, Pool pool, bool bf16, cudaStream_t stream) {
  static_assert(kShapeCount == 5);
  switch (shape) {
    case 0:
      return launch_pool<0>(p, pool, bf16, stream);
    case 1:
      return launch_pool<1>(p, pool, bf16, stream);
    case 2:
      return launch_pool<2>(p, pool, bf16, stream);
    case 3:
      return launch_pool<3>(p, pool, bf16, stream);
    case 4:
      return launch_pool<4>(p, pool, bf16, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

Status launch(const Params& p, int shape, Pool pool, bool bf16, int combine_blocks, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream.handle);
  HYLA_RETURN_IF_ERROR(cuda::check(launch_plan(p, shape_for(shape, pool).tile_n, s), "extend::sm90_fa plan"));
  HYLA_RETURN_IF_ERROR(cuda::check(launch_shape(p, shape, pool, bf16, s), "extend::sm90_fa"));
  if (p.max_splits == 1 || p.slot_capacity == 0) return {};
  return cuda::check(launch_combine(p, kShapes[shape].lv, bf16, combine_blocks, s), "extend::sm90_fa combine");
}

}  // namespace hyla::extend::sm90_fa
