#include "capi/convert.h"

static_assert(HYLA_MAX_RANK == hyla::TensorView::kMaxRank);
static_assert(HYLA_BF16 == static_cast<int>(hyla::DType::kBf16) && HYLA_BOOL == static_cast<int>(hyla::DType::kBool));
static_assert(HYLA_CUDA == static_cast<int>(hyla::DeviceKind::kCuda));

namespace {

hyla_code give(hyla::Result<hyla::DeviceCaps> found, hyla_caps** caps, hyla_error* error) {
  return hyla::capi::guarded(error, [&]() -> hyla::Status {
    if (caps == nullptr) return hyla::Status::invalid("caps", "a pointer", "null");
    *caps = nullptr;
    if (!found.ok()) return found.status();
    *caps = new hyla_caps{std::move(found).value()};
    return {};
  });
}

}  // namespace

extern "C" {

hyla_tensor hyla_contiguous(void* data, hyla_dtype dtype, const int64_t* shape, int rank, hyla_device_kind device_kind, int device_index) {
  hyla_tensor t = {};
  t.data = data, t.dtype = dtype, t.rank = rank, t.device_kind = device_kind, t.device_index = device_index;
  int64_t stride = 1;
  for (int d = (rank <= HYLA_MAX_RANK ? rank : 0) - 1; d >= 0; --d) {
    t.shape[d] = shape[d], t.stride[d] = stride;
    if (__builtin_mul_overflow(stride, shape[d], &stride)) stride = INT64_MAX;  // refused where the tensor is used
  }
  return t;
}

void hyla_plan_options_init(hyla_plan_options* options) {
  *options = {};
  options->struct_size = sizeof(*options);
}

const char* hyla_version(void) { return HYLA_VERSION; }
int hyla_built_with_cuda(void) { return hyla::built_with_cuda(); }
int hyla_cuda_device_count(void) { return hyla::cuda_device_count(); }

hyla_code hyla_caps_query(hyla_device_kind kind, int index, hyla_caps** caps, hyla_error* error) {
  return give(hyla::query_device({static_cast<hyla::DeviceKind>(kind), index}), caps, error);
}
hyla_code hyla_caps_find(const char* name, hyla_caps** caps, hyla_error* error) { return give(hyla::find_device(name ? name : ""), caps, error); }
void hyla_caps_free(hyla_caps* caps) { delete caps; }

}  // extern "C"
