#include "attend.cuh"

namespace hyla::extend::sm90_latent {

Status launch_attend_d512(const KernelParams& p, bool fp16, int blocks, Stream stream) { return launch_attend<Shape::kD512>(p, fp16, blocks, stream); }

}  // namespace hyla::extend::sm90_latent
