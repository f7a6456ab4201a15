#include "extend.cuh"

namespace hyla::extend::sm90_fa {
template cudaError_t launch_extend<2, Pool::kSame>(const Params&, bool, cudaStream_t);
}
