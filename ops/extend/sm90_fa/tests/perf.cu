// Times the shapes of the target table on a device and checks sampled rows against float64. Usage: perf [filter]
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "hyla/extend.h"

using namespace hyla;

namespace {

#define CHECK(x)                                                                    \
  do {                                                                              \
    if (cudaError_t e = (x); e != cudaSuccess) {                                    \
      std::printf("CUDA %s at line %d: %s\n", #x, __LINE__, cudaGetErrorString(e)); \
      std::exit(2);                                                                 \
    }                                                                               \
  } while (0)

__device__ uint32_t hash(uint32_t x) {
  x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
  return x ^ (x >> 16);
}
__global__ void fill(uint16_t* d, size_t n, uint32_t seed) {  // bf16, roughly normal
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
    const uint32_t a = hash(uint32_t(i) + seed), b = hash(a ^ 0x9e3779b9u);
    const float f = 1.7320508f * (float((a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16)) / 65536.f - 2.f);
    d[i] = uint16_t(__float_as_uint(f) >> 16);
  }
}
float bf(uint16_t h) {
  const uint32_t u = uint32_t(h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

struct Case {
  const char* name;
  int batch, n, prefix, hq, hkv, lq, lv, window;
  double must;  // TFLOP/s, or TB/s when negative
};

const Case kCases[] = {
    {"d64 16k 16/8", 1, 16384, 0, 16, 8, 64, 64, -1, 400},       {"d64 16k 32/4", 1, 16384, 0, 32, 4, 64, 64, -1, 400},
    {"d96 16k 16/8", 1, 16384, 0, 16, 8, 96, 96, -1, 0},         {"d128 16k 16/8", 1, 16384, 0, 16, 8, 128, 128, -1, 550},
    {"d128 16k 32/4", 1, 16384, 0, 32, 4, 128, 128, -1, 550},    {"d192 16k 16/16", 1, 16384, 0, 16, 16, 192, 128, -1, 520},
    {"d256 16k 16/8", 1, 16384, 0, 16, 8, 256, 256, -1, 540},    {"d256 16k 32/4", 1, 16384, 0, 32, 4, 256, 256, -1, 540},
    {"d128 1k+15k", 1, 1024, 15360, 32, 8, 128, 128, -1, 490},   {"d256 1k+15k", 1, 1024, 15360, 32, 8, 256, 256, -1, 460},
    {"d128 16x128+4k", 16, 128, 4096, 32, 8, 128, 128, -1, 360}, {"d256 16x128+4k", 16, 128, 4096, 32, 8, 256, 256, -1, 380},
    {"d128 w1024 16k", 1, 16384, 0, 16, 8, 128, 128, 1024, 330}, {"d256 w1024 16k", 1, 16384, 0, 16, 8, 256, 256, 1024, 380},
    {"d128 1+32k", 1, 1, 32768, 32, 8, 128, 128, -1, -2.77},     {"d128 4+32k", 1, 4, 32768, 32, 8, 128, 128, -1, -2.77},
    {"d128 16+32k", 1, 16, 32768, 32, 8, 128, 128, -1, -2.77},
};

template <class T>
T* device(size_t n) {
  T* p;
  CHECK(cudaMalloc(&p, std::max<size_t>(n, 1) * sizeof(T)));
  return p;
}

double run_case(const Case& c, const DeviceCaps& caps, const std::string& variant, int splits, bool check) {
  const int64_t n = int64_t(c.batch) * c.n, slots = int64_t(c.batch) * c.prefix, pool = slots + slots / 8 + 1;
  const int copies = c.must < 0 ? 3 : 1;  // rotated, so that keys come from memory
  const Device dev{DeviceKind::kCuda, 0};
  auto *q = device<uint16_t>(n * c.hq * c.lq), *k = device<uint16_t>(n * c.hkv * c.lq), *v = device<uint16_t>(n * c.hkv * c.lv),
       *o = device<uint16_t>(n * c.hq * c.lv);
  auto *kp = device<uint16_t>(copies * pool * c.hkv * c.lq), *vp = device<uint16_t>(copies * pool * c.hkv * c.lv);
  auto* lse = device<float>(n * c.hq);
  fill<<<1056, 256>>>(q, n * c.hq * c.lq, 1);
  fill<<<1056, 256>>>(k, n * c.hkv * c.lq, 2);
  fill<<<1056, 256>>>(v, n * c.hkv * c.lv, 3);
  fill<<<1056, 256>>>(kp, copies * pool * c.hkv * c.lq, 4);
  fill<<<1056, 256>>>(vp, copies * pool * c.hkv * c.lv, 5);
  CHECK(cudaMemset(o, 0xff, n * c.hq * c.lv * 2));
  std::vector<int> qo(c.batch + 1), kv(c.batch + 1), idx(pool);
  for (int i = 0; i <= c.batch; ++i) qo[i] = i * c.n, kv[i] = i * c.prefix;
  std::iota(idx.begin(), idx.end(), 0);
  uint64_t s = 88172645463325252ull;
  for (int64_t i = pool - 1; i > 0; --i) s ^= s << 13, s ^= s >> 7, s ^= s << 17, std::swap(idx[i], idx[(s >> 20) % (i + 1)]);
  int *dqo = device<int>(qo.size()), *dkv = device<int>(kv.size()), *didx = device<int>(pool);
  CHECK(cudaMemcpy(dqo, qo.data(), qo.size() * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(dkv, kv.data(), kv.size() * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(didx, idx.data(), pool * 4, cudaMemcpyHostToDevice));
  extend::Args a;
  a.q = contiguous(q, DType::kBf16, {n, c.hq, c.lq}, dev), a.k = contiguous(k, DType::kBf16, {n, c.hkv, c.lq}, dev);
  a.v = contiguous(v, DType::kBf16, {n, c.hkv, c.lv}, dev), a.out = contiguous(o, DType::kBf16, {n, c.hq, c.lv}, dev);
  a.k_buffer = contiguous(kp, DType::kBf16, {pool, c.hkv, c.lq}, dev), a.v_buffer = contiguous(vp, DType::kBf16, {pool, c.hkv, c.lv}, dev);
  a.lse = contiguous(lse, DType::kFp32, {n, c.hq}, dev);
  a.qo_indptr = contiguous(dqo, DType::kI32, {c.batch + 1}, dev), a.kv_indptr = contiguous(dkv, DType::kI32, {c.batch + 1}, dev);
  a.kv_indices = contiguous(didx, DType::kI32, {slots}, dev);
  a.sliding_window = c.window, a.max_extend = c.n, a.max_prefix = c.prefix;
  PlanOptions options;
  options.variant = variant, options.splits = splits;
  auto plan = extend::plan(a, caps, options);
  if (!plan.ok()) return std::printf("%s: %s\n", c.name, plan.status().message().c_str()), 0;
  void* ws = device<uint8_t>(plan->workspace_bytes);
  CHECK(cudaMemset(ws, 0xff, plan->workspace_bytes));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  auto go = [&](int i) {
    extend::Args b = a;
    b.k_buffer.data = kp + (i % copies) * pool * c.hkv * c.lq, b.v_buffer.data = vp + (i % copies) * pool * c.hkv * c.lv;
    if (Status st = extend::run(plan.value(), b, {ws, plan->workspace_bytes}, {stream}); !st.ok())
      std::printf("%s: %s\n", c.name, st.message().c_str()), std::exit(3);
  };
  go(0);
  CHECK(cudaStreamSynchronize(stream));
  double worst = 0, worst_lse = 0;
  if (check) {
    std::vector<uint16_t> hq(c.lq), hk(c.lq), hv(c.lv), ho(c.lv), K(pool * c.hkv * c.lq), V(pool * c.hkv * c.lv), NK(n * c.hkv * c.lq), NV(n * c.hkv * c.lv);
    CHECK(cudaMemcpy(K.data(), kp, K.size() * 2, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(V.data(), vp, V.size() * 2, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(NK.data(), k, NK.size() * 2, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(NV.data(), v, NV.size() * 2, cudaMemcpyDeviceToHost));
    for (int sample = 0; sample < 6; ++sample) {
      const int64_t row = sample == 0 ? 0 : sample == 1 ? n - 1 : (n * sample * 37 / 211) % n;
      const int h = sample * 5 % c.hq, g = h / (c.hq / c.hkv), r = int(row / c.n), tok = int(row % c.n), pos = c.prefix + tok;
      CHECK(cudaMemcpy(hq.data(), q + (row * c.hq + h) * c.lq, c.lq * 2, cudaMemcpyDeviceToHost));
      CHECK(cudaMemcpy(ho.data(), o + (row * c.hq + h) * c.lv, c.lv * 2, cudaMemcpyDeviceToHost));
      float got_lse;
      CHECK(cudaMemcpy(&got_lse, lse + row * c.hq + h, 4, cudaMemcpyDeviceToHost));
      std::vector<double> acc(c.lv, 0.0), sc;
      double top = -1e300, sum = 0;
      const int lo = c.window >= 0 ? std::max(0, pos - c.window) : 0;
      auto row_of = [&](int j, const uint16_t* p, const uint16_t* nw, int d) {
        return j < c.prefix ? p + (int64_t(idx[r * c.prefix + j]) * c.hkv + g) * d : nw + ((int64_t(r) * c.n + j - c.prefix) * c.hkv + g) * d;
      };
      for (int j = lo; j <= pos; ++j) {
        const uint16_t* kr = row_of(j, K.data(), NK.data(), c.lq);
        double d = 0;
        for (int e = 0; e < c.lq; ++e) d += double(bf(hq[e])) * bf(kr[e]);
        sc.push_back(d / std::sqrt(double(c.lq)));
        top = std::max(top, sc.back());
      }
      for (int j = lo; j <= pos; ++j) {
        const double w = std::exp(sc[j - lo] - top);
        const uint16_t* vr = row_of(j, V.data(), NV.data(), c.lv);
        sum += w;
        for (int e = 0; e < c.lv; ++e) acc[e] += w * bf(vr[e]);
      }
      double dd = 0, ss = 0;
      for (int e = 0; e < c.lv; ++e) dd += std::pow(acc[e] / sum - bf(ho[e]), 2), ss += std::pow(acc[e] / sum, 2);
      const double err = std::sqrt(dd / ss), le = std::fabs(got_lse - (top + std::log(sum)));
      worst = err <= worst ? worst : err, worst_lse = le <= worst_lse ? worst_lse : le;
    }
  }
  const bool pass = worst < 6e-3 && worst_lse < 2e-5;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  const int calls = copies == 1 ? 4 : 30;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; ++i) go(i);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t e0, e1;
  CHECK(cudaEventCreate(&e0));
  CHECK(cudaEventCreate(&e1));
  std::vector<float> t;
  for (int i = 0; i < 7; ++i) {
    CHECK(cudaEventRecord(e0, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(e1, stream));
    CHECK(cudaEventSynchronize(e1));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, e0, e1));
    if (i > 1) t.push_back(ms / calls);
  }
  std::sort(t.begin(), t.end());
  const double ms = t[t.size() / 2];
  double pairs = 0;
  for (int i = 0; i < c.n; ++i) pairs += std::min(c.prefix + i + 1, c.window >= 0 ? c.window + 1 : 1 << 30);
  const double tf = 2.0 * pairs * c.batch * c.hq * (c.lq + c.lv) / ms / 1e9, tb = double(slots + n) * c.hkv * (c.lq + c.lv) * 2 / ms / 1e9;
  std::printf("%-15s %-8s %8.4f ms %7.1f TFLOP/s %5.2f TB/s  must %6.1f %s  err %.1e lse %.1e %s\n", c.name, plan->variant.c_str(), ms, tf, tb, c.must,
              c.must < 0 ? (tb >= -c.must ? "ok" : "LOW") : (tf >= c.must ? "ok" : "LOW"), worst, worst_lse, check ? (pass ? "PASS" : "FAIL") : "");
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
  for (void* p : {(void*)q, (void*)k, (void*)v, (void*)o, (void*)kp, (void*)vp, (void*)lse, (void*)dqo, (void*)dkv, (void*)didx, ws}) cudaFree(p);
  return ms;
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string filter = argc > 1 ? argv[1] : "", variant = argc > 2 ? argv[2] : "sm90_fa";
  const int splits = argc > 3 ? std::atoi(argv[3]) : 0;
  auto caps = query_device({DeviceKind::kCuda, 0});
  if (!caps.ok()) return std::printf("%s\n", caps.status().message().c_str()), 1;
  for (const Case& c : kCases)
    if (std::string(c.name).find(filter) != std::string::npos) run_case(c, caps.value(), variant, splits, true);
  CHECK(cudaDeviceSynchronize());
}
