#include "extend.cuh"

namespace hyla::extend::sm90_fa {
template cudaError_t launch_extend<0, Pool::kE4m3>(const Params&, bool, cudaStream_t);
template cudaError_t launch_extend<0, Pool::kE5m2>(const Params&, bool, cudaStream_t);
}  // namespace hyla::extend::sm90_fa
