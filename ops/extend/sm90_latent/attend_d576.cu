#include "attend.cuh"

namespace hyla::extend::sm90_latent {

Status launch_attend_d576(const KernelParams& p, bool fp16, int blocks, Stream stream) { return launch_attend<Shape::kD576>(p, fp16, blocks, stream); }

}  // namespace hyla::extend::sm90_latent
