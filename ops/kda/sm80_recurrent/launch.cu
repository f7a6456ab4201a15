#include "launch.h"

#include "cuda/host/launch.h"
#include "kernel.cuh"
#include "step.cuh"

namespace hyla::kda::sm80_recurrent {
namespace {

template <Kind kKind, int kDim, class Io>
Status start(const Params& params, int64_t blocks, Stream stream) {
  constexpr Config kC = config_of(kKind, kDim);
  cuda::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(blocks));
  config.block = dim3(kC.threads());
  config.smem_bytes = kC.smem_bytes();
  return cuda::launch(recurrent<Traits<kC, Io>>, "kda::sm80_recurrent", config, stream, params);
}

template <Kind kKind, int kDim>
Status start(bool packed, const Params& params, int64_t blocks, Stream stream) {
  if (!packed) return start<kKind, kDim, Any>(params, blocks, stream);
  if (params.gate_type == Element::kBf16) return start<kKind, kDim, Packed<__nv_bfloat16>>(params, blocks, stream);
  return start<kKind, kDim, Packed<float>>(params, blocks, stream);
}

template <int kDim, class Io>
Status start_step(const Params& params, int64_t blocks, Stream stream) {
  cuda::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(blocks));
  config.block = dim3(StepConfig{kDim}.threads());
  if (params.v_first) return cuda::launch(step<StepTraits<kDim, Io, true>>, "kda::sm80_recurrent step", config, stream, params);
  return cuda::launch(step<StepTraits<kDim, Io, false>>, "kda::sm80_recurrent step", config, stream, params);
}

template <int kDim>
Status start_step(bool packed, const Params& params, int64_t blocks, Stream stream) {
  if (!packed) return start_step<kDim, Any>(params, blocks, stream);
  if (params.gate_type == Element::kBf16) return start_step<kDim, Packed<__nv_bfloat16>>(params, blocks, stream);
  return start_step<kDim, Packed<float>>(params, blocks, stream);
}

template <int kDim>
Status start(Kind kind, bool packed, const Params& params, int64_t blocks, Stream stream) {
  switch (kind) {
    case Kind::kLatency:
      return start<Kind::kLatency, kDim>(packed, params, blocks, stream);
    case Kind::kThroughput:
      return start<Kind::kThroughput, kDim>(packed, params, blocks, stream);
    default:
      return start_step<kDim>(packed, params, blocks, stream);
  }
}

}  // namespace

Status launch_recurrent(Kind kind, int dim, bool packed, const Params& params, int64_t blocks, Stream stream) {
  return dim == 128 ? start<128>(kind, packed, params, blocks, stream) : start<64>(kind, packed, params, blocks, stream);
}

}  // namespace hyla::kda::sm80_recurrent
