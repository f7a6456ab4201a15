#include "attend.cuh"

namespace hyla::extend::sm90_latent {

Status launch_attend_mla576(const KernelParams& p, bool fp16, int blocks, Stream stream) { return launch_attend<Shape::kMla576>(p, fp16, blocks, stream); }

}  // namespace hyla::extend::sm90_latent
