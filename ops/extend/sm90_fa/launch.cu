#include "launch.h"

#include "config.h"
#include "cuda/host/launch.h"
#include "kernels.h"

namespace hyla::extend::sm90_fa {
namespace {

cudaError_t launch_shape(const Params& p, int shape, bool bf16, cudaStream_t stream) {
  static_assert(kShapeCount == 5);
  switch (shape) {
    case 0: return launch_extend<0>(p, bf16, stream);
    case 1: return launch_extend<1>(p, bf16, stream);
    case 2: return launch_extend<2>(p, bf16, stream);
    case 3: return launch_extend<3>(p, bf16, stream);
    case 4: return launch_extend<4>(p, bf16, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

Status launch(const Params& p, int shape, bool bf16, int combine_blocks, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream.handle);
  HYLA_RETURN_IF_ERROR(cuda::check(launch_plan(p, kShapes[shape].tile_n, s), "extend::sm90_fa plan"));
  HYLA_RETURN_IF_ERROR(cuda::check(launch_shape(p, shape, bf16, s), "extend::sm90_fa"));
  if (p.max_splits == 1 || p.slot_capacity == 0) return {};
  return cuda::check(launch_combine(p, kShapes[shape].lv, bf16, combine_blocks, s), "extend::sm90_fa combine");
}

}  // namespace hyla::extend::sm90_fa
