#include "ops/extend/sm90_latent/launch.h"

#include <algorithm>
#include <cmath>

#include "cuda/host/launch.h"
#include "ops/extend/problem.h"
#include "ops/extend/sm90_latent/kernels.h"

namespace hyla::extend::sm90_latent {
namespace {

constexpr double kLog2e = 1.4426950408889634;
constexpr int64_t kNoLimit = 1 << 29;  // positions stay below 2^30

TokenStrides token_strides(const TensorView& t) { return {t.stride[0] * size_of(t.dtype), t.stride[1] * size_of(t.dtype)}; }

PoolStrides pool_strides(const TensorView& pool) {
  const PoolLayout l = pool_layout(pool);
  const int64_t size = size_of(pool.dtype);
  return {l.page * size, (l.page_size == 1 ? l.page : l.token) * size, l.head * size};
}

KernelParams make_params(const Problem& problem, const Args& args, const Buffers& buffers) {
  KernelParams p{};
  p.q = args.q.as<const uint8_t>(), p.k = args.k.as<const uint8_t>(), p.v = args.v.as<const uint8_t>();
  p.k_pool = args.k_buffer.as<const uint8_t>(), p.v_pool = args.v_buffer.as<const uint8_t>();
  p.out = args.out.as<uint8_t>();
  p.lse = args.lse.defined() ? args.lse.as<float>() : nullptr;
  p.q_stride = token_strides(args.q), p.k_stride = token_strides(args.k), p.v_stride = token_strides(args.v), p.out_stride = token_strides(args.out);
  if (args.lse.defined()) p.lse_stride = token_strides(args.lse);
  p.k_pool_stride = pool_strides(args.k_buffer), p.v_pool_stride = pool_strides(args.v_buffer);
  p.qo_indptr = args.qo_indptr.data, p.kv_indptr = args.kv_indptr.data, p.kv_indices = args.kv_indices.data;
  p.qo_indptr64 = args.qo_indptr.dtype == DType::kI64, p.kv_indptr64 = args.kv_indptr.dtype == DType::kI64;
  p.kv_indices64 = args.kv_indices.dtype == DType::kI64;
  if (args.sinks.defined()) p.sinks = args.sinks.data, p.sinks_bf16 = args.sinks.dtype == DType::kBf16;
  p.rows = problem.n, p.slots = problem.slots, p.indices = problem.prefix_capacity;
  p.page_size = int(problem.page_size);
  p.group = int(problem.Hq / problem.Hkv);
  const int64_t window = problem.sliding_window;
  p.window = window < 0 || window >= kNoLimit ? -1 : int(window);
  p.ahead = problem.causal ? 0 : int(std::min(window < 0 ? kNoLimit : window, kNoLimit));
  p.skip_prefix = problem.skip_prefix, p.skip_extend = problem.skip_extend;
  const double scale = problem.sm_scale, cap = problem.logit_cap;
  const double unit = cap > 0 ? scale / cap : scale * kLog2e;
  p.scale_new = float(unit), p.scale_prefix = float(unit * double(problem.k_scale));
  p.cap_log2e = float(cap * kLog2e);
  p.v_scale = problem.v_scale, p.v_scale_inverse = float(1.0 / double(problem.v_scale));
  if (problem.xai_temperature_len > 1 && problem.xai_temperature_len < kNoLimit) {
    p.temperature_len = int(problem.xai_temperature_len);
    p.temperature_factor = float(1.0 / std::log2(double(problem.xai_temperature_len)));
  }
  p.items = buffers.list.items, p.item_count = buffers.list.counts, p.item_next = buffers.list.counts + 1;
  p.part_out = buffers.part_out, p.part_lse = buffers.part_lse;
  return p;
}

}  // namespace

Status launch(const Plan& plan, Shape shape, const Args& args, Workspace workspace, Stream stream) {
  const Problem& problem = plan.problem;
  WorkspaceLayout layout(workspace.data);
  const int forced_parts = int(plan.tuning.at(1));
  const Buffers buffers = place_buffers(layout, problem, plan.caps.sm_count, forced_parts);
  const KernelParams p = make_params(problem, args, buffers);
  const cuda::DeviceGuard guard(problem.device);
  HYLA_RETURN_IF_ERROR(guard.status());
  const bool fp16 = problem.dtype == DType::kFp16;
  const GridSizes grid{int(problem.batch), int(problem.Hkv), plan.caps.sm_count, forced_parts};
  HYLA_RETURN_IF_ERROR(launch_list(p, grid, buffers.list, stream));
  switch (shape) {
    case Shape::kD512:
      HYLA_RETURN_IF_ERROR(launch_attend_d512(p, fp16, grid.sm_count, stream));
      break;
    case Shape::kD576:
      HYLA_RETURN_IF_ERROR(launch_attend_d576(p, fp16, grid.sm_count, stream));
      break;
    case Shape::kMla576:
      HYLA_RETURN_IF_ERROR(launch_attend_mla576(p, fp16, grid.sm_count, stream));
      break;
    case Shape::kMla512:
      HYLA_RETURN_IF_ERROR(launch_attend_mla512(p, fp16, grid.sm_count, stream));
      break;
  }
  return launch_merge(p, fp16, grid, buffers.list, stream);
}

}  // namespace hyla::extend::sm90_latent
