// Stand-alone check and timing of the kernels against a float64 recurrence: `driver check`, `driver perf`.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "ops/kda/sm90_chunk/config.h"
#include "ops/kda/sm90_chunk/launch.h"

using namespace hyla;
using namespace hyla::kda;
using namespace hyla::kda::sm90_chunk;

#define CK(x)                                                                \
  do {                                                                       \
    cudaError_t e_ = (x);                                                    \
    if (e_ != cudaSuccess) {                                                 \
      printf("CUDA %s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e_)); \
      exit(2);                                                               \
    }                                                                        \
  } while (0)
#define ST(x)                                      \
  do {                                             \
    Status s_ = (x);                               \
    if (!s_.ok()) {                                \
      printf("STATUS %s\n", s_.message().c_str()); \
      exit(2);                                     \
    }                                              \
  } while (0)

static uint64_t rng = 1;
static uint32_t r32() {
  rng ^= rng << 13;
  rng ^= rng >> 7;
  rng ^= rng << 17;
  return uint32_t(rng >> 24);
}
static float uni() { return (r32() & 0xffffff) / 16777216.f; }
static float nrm() { return std::sqrt(-2 * std::log(uni() + 1e-9f)) * std::cos(6.2831853f * uni()); }
static uint16_t bf(float f) {
  __nv_bfloat16 b = __float2bfloat16_rn(f);
  uint16_t r;
  memcpy(&r, &b, 2);
  return r;
}
static float fb(uint16_t x) {
  uint32_t u = uint32_t(x) << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

enum GP { kStd, kWeak, kMix, kZeroG, kSpike, kStrong };
enum KP { kRand, kSame, kZeroK, kHard };
struct Case {
  std::string name;
  int B = 1, T = 64, H = 1, HV = 1;
  std::vector<int> lens;  // varlen when not empty (T counts the rows)
  Gate gate = Gate::kBounded;
  GP gp = kMix;
  KP kp = kRand;
  bool g32 = false, b32 = false, logits = true, doubled = false, norm = true, alog = true, bias = true;
  float vscale = 1;
  int init = 1;  // 0 none 1 fp32 2 bf16
  bool fin_bf16 = false, v_first = false, pool = false, flags = false;
  int ckpt = 0;  // 1 every 64, 2 listed, 3 listed + indices
  int seg_chunks = 0, v_split = 2, overlap = 0;
  double to = 6e-3, ts = 5e-3;
};

struct Host {
  std::vector<float> q, k, v, g, beta, alog, bias, s0;  // values as the kernel reads them
  std::vector<int64_t> cu;
  std::vector<int32_t> index;
  std::vector<uint8_t> flag;
  std::vector<int64_t> offs;
  std::vector<int32_t> ckidx;
};
template <class T>
static T* up(const std::vector<T>& h) {
  T* d;
  CK(cudaMalloc(&d, std::max<size_t>(h.size() * sizeof(T), 16)));
  CK(cudaMemcpy(d, h.data(), h.size() * sizeof(T), cudaMemcpyHostToDevice));
  return d;
}
struct Pool {
  std::vector<void*> p;
  ~Pool() {
    for (void* x : p) cudaFree(x);
  }
  template <class T>
  T* operator()(T* x) {
    p.push_back(x);
    return x;
  }
};

struct Sizes {
  size_t ws;
  int slots;
  int segs;
};
static Sizes layout(const KernelParams& k0, KernelParams& k, uint8_t* base, bool varlen, int B, int T, int N, int seg_chunks, int maxlen, int overlap = 0) {
  k = k0;
  k.slots = varlen ? T / 64 + N + 1 : B * ((T + 63) / 64);
  const int64_t mc = (maxlen + 63) / 64;
  k.segment_chunks = seg_chunks;
  k.segments = seg_chunks ? int((mc + seg_chunks - 1) / seg_chunks) : 1;
  if (k.segments < 1) k.segments = 1;
  size_t o = 0;
  auto take = [&](size_t b) {
    uint8_t* p = base + o;
    o += (b + 255) / 256 * 256;
    return p;
  };
  k.records = take(size_t(k.slots) * k.heads * Record::kBytes);
  const size_t ns = size_t(N) * k.heads * (k.segments - 1);
  k.summary_state = take(ns * Summary::kStateBytes);
  k.summary_transition = take(ns * Summary::kTransitionBytes);
  k.summary_decay = (float*)take(ns * 512);
  if (overlap) {
    k.ready = (uint32_t*)take(size_t(k.slots) * k.heads * 4);
    k.prepare_blocks = overlap;
  }
  k.saved_initial = take(k.segments > 1 ? size_t(N) * k.heads * Summary::kStateBytes : 0);
  return {o, k.slots, k.segments};
}
static int g_sms = 132;
static void launch_all(const KernelParams& k, int v_split, cudaStream_t st) {
  ST(launch_prepare(k, g_sms, Stream{st}));
  if (k.segments > 1) ST(launch_summary(k, Stream{st}));
  ST(launch_scan(k, v_split, Stream{st}));
}

struct Result_ {
  std::vector<float> o, s, ck;
};
static int g_bad = 0;

static void reference(const Case& c, const Host& h, int n, int head, std::vector<double>& o, std::vector<double>& S, std::vector<std::vector<double>>& cks) {
  const int64_t t0 = h.cu[n], L = h.cu[n + 1] - h.cu[n];
  const int hq = head / (c.HV / c.H);
  S.assign(16384, 0.0);  // [K][V]
  if (c.init && (!c.flags || h.flag[n])) {
    const int64_t slot = c.pool ? h.index[n] : n;
    for (int i = 0; i < 16384; ++i) {
      const int k = i / 128, v = i % 128;
      S[i] = h.s0[(slot * c.HV + head) * 16384 + (c.v_first ? v * 128 + k : i)];
    }
  }
  o.assign(L * 128, 0.0);
  std::vector<double> kk(128), qq(128), u(128);
  for (int64_t t = 0; t < L; ++t) {
    const int64_t r = t0 + t;
    const float* K = &h.k[(r * c.H + hq) * 128];
    const float* Q = &h.q[(r * c.H + hq) * 128];
    const float* V = &h.v[(r * c.HV + head) * 128];
    double a = 0, b = 0;
    for (int i = 0; i < 128; ++i) a += double(K[i]) * K[i], b += double(Q[i]) * Q[i];
    a = c.norm ? 1 / std::sqrt(a + 1e-6) : 1;
    b = (c.norm ? 1 / std::sqrt(b + 1e-6) : 1) / std::sqrt(128.0);
    double be = h.beta[r * c.HV + head];
    if (c.logits) be = 1 / (1 + std::exp(-be));
    if (c.doubled) be *= 2;
    for (int v = 0; v < 128; ++v) u[v] = 0;
    for (int i = 0; i < 128; ++i) {
      kk[i] = K[i] * a;
      qq[i] = Q[i] * b;
      double g = h.g[(r * c.HV + head) * 128 + i];
      const double A = c.alog ? std::exp(double(h.alog[head])) : 1, bi = c.bias ? h.bias[head * 128 + i] : 0;
      if (c.gate == Gate::kBounded) g = -5.0 / (1 + std::exp(-A * (g + bi)));
      else if (c.gate == Gate::kUnbounded) {
        const double x = g + bi;
        g = -A * (x > 30 ? x : std::log1p(std::exp(x)));
      }
      const double d = std::exp(g);
      double* s = &S[i * 128];
      for (int v = 0; v < 128; ++v) {
        s[v] *= d;
        u[v] += kk[i] * s[v];
      }
    }
    for (int v = 0; v < 128; ++v) u[v] = be * (V[v] - u[v]);
    double* oo = &o[t * 128];
    for (int i = 0; i < 128; ++i) {
      double* s = &S[i * 128];
      for (int v = 0; v < 128; ++v) {
        s[v] += kk[i] * u[v];
        oo[v] += qq[i] * s[v];
      }
    }
    if ((t + 1) % 64 == 0 && c.ckpt) cks.push_back(S);
  }
}

static void run_case(Case c, bool quiet = false) {
  const bool varlen = !c.lens.empty();
  const int N = varlen ? int(c.lens.size()) : c.B;
  const int rows = varlen ? c.T : c.B * c.T;
  rng = 88172645463325252ull + c.name.size() * 7919 + c.T;
  Host h;
  h.cu.assign(N + 1, 0);
  for (int n = 0; n < N; ++n) h.cu[n + 1] = h.cu[n] + (varlen ? c.lens[n] : c.T);
  int maxlen = 0;
  for (int n = 0; n < N; ++n) maxlen = std::max<int>(maxlen, h.cu[n + 1] - h.cu[n]);
  auto rb = [](float x) { return fb(bf(x)); };
  h.q.resize(size_t(rows) * c.H * 128);
  h.k = h.q;
  h.v.resize(size_t(rows) * c.HV * 128);
  h.g = h.v;
  h.beta.resize(size_t(rows) * c.HV);
  std::vector<float> common(c.H * 128);
  for (auto& x : common) x = nrm();
  for (size_t i = 0; i < h.q.size(); ++i) {
    h.q[i] = rb(nrm());
    const float com = common[i % (c.H * 128)];
    h.k[i] = c.kp == kZeroK ? 0.f : c.kp == kSame ? rb(com) : c.kp == kHard ? rb(0.33f * nrm() + com) : rb(nrm() + 0.5f * com);
  }
  for (auto& x : h.v) x = rb(nrm() * c.vscale);
  h.alog.resize(c.HV);
  h.bias.resize(c.HV * 128);
  for (auto& x : h.alog) x = c.gate == Gate::kUnbounded ? std::log(c.gp == kSpike ? 201.f : 1.f + 7 * uni()) : -0.7f + 1.5f * uni();
  for (auto& x : h.bias) x = c.gp == kMix ? -8.f + 9.f * uni() : c.gp == kWeak ? -9.f : c.gp == kSpike ? -16.f : c.gp == kStrong ? 6.f : 0.f;
  for (size_t i = 0; i < h.g.size(); ++i) {
    float x = nrm();
    if (c.gate == Gate::kGiven) {
      x = c.gp == kZeroG    ? 0.f
          : c.gp == kWeak   ? -1e-3f * uni()
          : c.gp == kStrong ? -5.f
          : c.gp == kSpike  ? (uni() < 0.02f ? -2661.f : -1e-3f * uni())
                            : -std::exp(-8 + 9 * uni());
    } else if (c.gp == kSpike && uni() < 0.02f) x = 29.f;
    h.g[i] = c.g32 ? x : rb(x);
  }
  for (auto& x : h.beta) {
    x = c.logits ? (c.kp == kSame ? 8.f : 2 * nrm()) : (c.kp == kSame || c.kp == kHard ? 0.99f : uni());
    if (!c.b32) x = rb(x);
  }
  const int slots = c.pool ? 2 * N + 3 : N;
  for (int n = 0; n < N; ++n) h.index.push_back(c.pool ? (n % 3 == 2 && N > 1 ? 0 : 2 * n + 1 + 1) : n);
  for (int n = 0; n < N; ++n) h.flag.push_back(n % 2 == 0);
  h.s0.resize(size_t(slots) * c.HV * 16384);
  for (auto& x : h.s0) {
    x = 0.3f * nrm() * c.vscale;
    if (c.init == 2) x = rb(x);
  }
  std::vector<float> s0d = h.s0;
  if (c.flags)
    for (int n = 0; n < N; ++n)
      if (!h.flag[n])
        for (size_t i = 0; i < size_t(c.HV) * 16384; ++i) s0d[size_t(h.index[n]) * c.HV * 16384 + i] = NAN;

  // device: q, k, v are slices of one projection
  Pool keep;
  const int w = (2 * c.H + c.HV) * 128;
  const int extra = 3;  // NaN rows past the end
  std::vector<uint16_t> proj(size_t(rows + extra) * w, 0x7fff), gb(size_t(rows + extra) * c.HV * 128, 0x7fff);
  for (int r = 0; r < rows; ++r) {
    const bool used = !varlen || r < h.cu[N];
    for (int i = 0; i < c.H * 128; ++i)
      if (used) proj[size_t(r) * w + i] = bf(h.q[size_t(r) * c.H * 128 + i]), proj[size_t(r) * w + c.H * 128 + i] = bf(h.k[size_t(r) * c.H * 128 + i]);
    for (int i = 0; i < c.HV * 128; ++i)
      if (used)
        proj[size_t(r) * w + 2 * c.H * 128 + i] = bf(h.v[size_t(r) * c.HV * 128 + i]), gb[size_t(r) * c.HV * 128 + i] = bf(h.g[size_t(r) * c.HV * 128 + i]);
  }
  uint16_t* dp = keep(up(proj));
  KernelParams k0;
  const int64_t Tt = c.T;
  k0.q = {dp, Tt * w, w, 128};
  k0.k = {dp + c.H * 128, Tt * w, w, 128};
  k0.v = {dp + 2 * c.H * 128, Tt * w, w, 128};
  k0.g = {c.g32 ? (void*)keep(up(h.g)) : (void*)keep(up(gb)), Tt * c.HV * 128, c.HV * 128, 128};
  std::vector<uint16_t> bb;
  for (float x : h.beta) bb.push_back(bf(x));
  k0.beta = {c.b32 ? (void*)keep(up(h.beta)) : (void*)keep(up(bb)), Tt * c.HV, c.HV, 1};
  std::vector<uint16_t> oo(size_t(rows + extra) * c.HV * 128, 0x7fc0);
  uint16_t* dout = keep(up(oo));
  k0.out = {dout, Tt * c.HV * 128, c.HV * 128, 128};
  if (c.alog && c.gate != Gate::kGiven) k0.a_log = keep(up(h.alog));
  if (c.bias && c.gate != Gate::kGiven) k0.dt_bias = keep(up(h.bias));
  if (varlen) k0.cu_seqlens = {keep(up(h.cu)), true};
  k0.tokens = c.T;
  k0.sequences = N;
  k0.heads = c.HV;
  k0.group = c.HV / c.H;
  k0.gate = int(c.gate);
  k0.g_fp32 = c.g32;
  k0.beta_fp32 = c.b32;
  k0.l2norm = c.norm;
  k0.beta_logits = c.logits;
  k0.beta_doubled = c.doubled;
  k0.lower_bound = -5;
  k0.scale = 0.08838834764831845f;
  k0.v_first = c.v_first;
  k0.pool_slots = slots;
  k0.lowest_slot = c.pool ? 1 : 0;
  if (c.pool) k0.state_indices = {keep(up(h.index)), false};
  if (c.flags) k0.has_initial = keep(up(h.flag));
  const int64_t hs = 16384, rs = int64_t(c.HV) * hs;
  void* dinit = nullptr;
  if (c.init == 1) {
    dinit = keep(up(s0d));
    k0.initial = {dinit, rs, hs, 128, false};
  }
  if (c.init == 2) {
    std::vector<uint16_t> x;
    for (float f : s0d) x.push_back(bf(f));
    dinit = keep(up(x));
    k0.initial = {dinit, rs, hs, 128, true};
  }
  std::vector<uint8_t> fz(size_t(slots) * rs * 4, 0xff);
  const bool inplace = c.pool && c.init == 1 && !c.fin_bf16;
  void* dfin = inplace ? dinit : keep(up(fz));
  k0.final_ = {dfin, rs, hs, 128, c.fin_bf16};
  std::vector<int64_t> ckbase(N + 1, 0);
  for (int n = 0; n < N; ++n) ckbase[n + 1] = ckbase[n] + (h.cu[n + 1] - h.cu[n]) / 64;
  int64_t ckrows = 0;
  const int P = 3;
  if (c.ckpt) {
    ckrows = c.ckpt == 1 ? ckbase[N] : int64_t(N) * P;
    if (c.ckpt >= 2)
      for (int n = 0; n < N; ++n) {
        const int64_t m = (h.cu[n + 1] - h.cu[n]) / 64;
        h.offs.push_back(m ? m * 64 : -1);
        h.offs.push_back(-1);
        h.offs.push_back(m > 1 ? 64 * (1 + r32() % (m - 1)) : -1);
      }
    int64_t places = ckrows;
    if (c.ckpt == 3) {
      places = 2 * ckrows + 1;
      for (int64_t r = 0; r < ckrows; ++r) h.ckidx.push_back(int(2 * (ckrows - 1 - r) + 1));
    }
    std::vector<uint8_t> z(std::max<size_t>(16, size_t(places) * rs * 4), 0xff);
    k0.checkpoints = {keep(up(z)), rs, hs, 128, false};
    k0.checkpoint_rows = places;
    k0.checkpoint_slots = c.ckpt >= 2 ? P : 0;
    if (c.ckpt >= 2) k0.checkpoint_offsets = {keep(up(h.offs)), true, 1, P};
    if (c.ckpt == 3) k0.checkpoint_indices = {keep(up(h.ckidx)), false}, k0.checkpoint_index_count = ckrows;
  }
  KernelParams k;
  const Sizes z = layout(k0, k, nullptr, varlen, c.B, c.T, N, c.seg_chunks, maxlen, c.overlap);
  uint8_t* ws;
  CK(cudaMalloc(&ws, z.ws + 256));
  keep(ws);
  CK(cudaMemset(ws, 0xff, z.ws + 256));
  layout(k0, k, ws, varlen, c.B, c.T, N, c.seg_chunks, maxlen, c.overlap);
  auto pull = [&](Result_& r) {
    std::vector<uint16_t> ob(oo.size());
    CK(cudaMemcpy(ob.data(), dout, ob.size() * 2, cudaMemcpyDeviceToHost));
    r.o.clear();
    for (uint16_t x : ob) r.o.push_back(fb(x));
    r.s.resize(size_t(slots) * rs);
    if (c.fin_bf16) {
      std::vector<uint16_t> x(r.s.size());
      CK(cudaMemcpy(x.data(), dfin, x.size() * 2, cudaMemcpyDeviceToHost));
      for (size_t i = 0; i < x.size(); ++i) r.s[i] = fb(x[i]);
    } else CK(cudaMemcpy(r.s.data(), dfin, r.s.size() * 4, cudaMemcpyDeviceToHost));
    r.ck.resize(size_t(k.checkpoint_rows) * rs);
    if (c.ckpt) CK(cudaMemcpy(r.ck.data(), k.checkpoints.data, r.ck.size() * 4, cudaMemcpyDeviceToHost));
  };
  launch_all(k, c.v_split, 0);
  CK(cudaDeviceSynchronize());
  Result_ r, r2;
  pull(r);
  if (inplace) {
    CK(cudaMemcpy(dinit, s0d.data(), s0d.size() * 4, cudaMemcpyHostToDevice));
  }
  launch_all(k, c.v_split, 0);
  CK(cudaDeviceSynchronize());
  pull(r2);
  const bool same = !memcmp(r.o.data(), r2.o.data(), r.o.size() * 4) && !memcmp(r.s.data(), r2.s.data(), r.s.size() * 4) &&
                    !memcmp(r.ck.data(), r2.ck.data(), r.ck.size() * 4);
  // compare
  struct Err {
    double n = 0, d = 0, mx = 0;
    void add(double g, double w) {
      if (!(g == g) || std::isinf(g)) {
        n = 1e300;
        return;
      }
      n += (g - w) * (g - w);
      d += w * w;
      mx = std::max(mx, std::fabs(g - w));
    }
    double l2() { return n == 0 ? 0 : std::sqrt(n / (d + 1e-300)); }
  };
  std::vector<std::pair<int, int>> jobs;
  for (int n = 0; n < N; ++n)
    for (int hd = 0; hd < c.HV; ++hd)
      if (c.HV <= 8 || hd % 7 == 0) jobs.push_back({n, hd});
  std::vector<Err> eo(jobs.size()), es(jobs.size()), ec(jobs.size());
  std::vector<int> bad(jobs.size(), 0);
  auto work = [&](size_t i0, size_t step) {
    for (size_t i = i0; i < jobs.size(); i += step) {
      const auto [n, hd] = jobs[i];
      const int64_t L = h.cu[n + 1] - h.cu[n];
      const bool skip = c.pool && h.index[n] < 1;
      std::vector<double> o, S;
      std::vector<std::vector<double>> cks;
      if (skip) {
        for (int64_t t = 0; t < L; ++t)
          for (int v = 0; v < 128; ++v)
            if (r.o[((h.cu[n] + t) * c.HV + hd) * 128 + v] != 0.f) bad[i] |= 1;
        continue;
      }
      reference(c, h, n, hd, o, S, cks);
      for (int64_t t = 0; t < L; ++t)
        for (int v = 0; v < 128; ++v) eo[i].add(r.o[((h.cu[n] + t) * c.HV + hd) * 128 + v], o[t * 128 + v]);
      auto cmp = [&](Err& e, const float* got, const std::vector<double>& want) {
        for (int x = 0; x < 16384; ++x) {
          const int kx = x / 128, v = x % 128;
          e.add(got[c.v_first ? v * 128 + kx : x], want[x]);
        }
      };
      cmp(es[i], &r.s[(int64_t(h.index[n]) * c.HV + hd) * 16384], S);
      auto place = [&](int64_t row) { return c.ckpt == 3 ? h.ckidx[row] : row; };
      if (c.ckpt == 1)
        for (int64_t m = 0; m < L / 64; ++m) cmp(ec[i], &r.ck[((ckbase[n] + m) * c.HV + hd) * 16384], cks[m]);
      if (c.ckpt >= 2)
        for (int q = 0; q < P; ++q) {
          const int64_t off = h.offs[n * P + q];
          if (off > 0) cmp(ec[i], &r.ck[(place(n * P + q) * c.HV + hd) * 16384], cks[off / 64 - 1]);
        }
      if (c.ckpt && L % 64 == 0 && L && !c.fin_bf16) {  // the last checkpoint is the final state, bit for bit
        const int64_t row = c.ckpt == 1 ? ckbase[n] + L / 64 - 1 : place(n * P);
        if (memcmp(&r.ck[(row * c.HV + hd) * 16384], &r.s[(int64_t(h.index[n]) * c.HV + hd) * 16384], 65536)) bad[i] |= 2;
      }
    }
  };
  std::vector<std::thread> th;
  const int nt = std::max(1u, std::min(16u, std::thread::hardware_concurrency()));
  for (int i = 0; i < nt; ++i) th.emplace_back(work, i, nt);
  for (auto& t : th) t.join();
  Err O, C;
  double worst_o = 0, worst_s = 0;
  int b = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    worst_o = std::max(worst_o, eo[i].l2());
    worst_s = std::max(worst_s, es[i].l2());
    O.mx = std::max(O.mx, eo[i].mx);
    b |= bad[i];
    C.n = std::max(C.n, ec[i].l2());
  }
  // rows that belong to nobody keep their contents
  for (int64_t rr = varlen ? h.cu[N] : rows; rr < rows + extra; ++rr)
    for (int x = 0; x < c.HV * 128; ++x)
      if (r.o[rr * c.HV * 128 + x] == r.o[rr * c.HV * 128 + x]) b |= 4;
  if (c.ckpt == 3)
    for (int64_t x = 0; x < k.checkpoint_rows; x += 2)
      if (r.ck[x * rs] == r.ck[x * rs]) b |= 8;
  if (c.pool && c.init) {
    for (int64_t x = 0; x < rs; ++x)
      if (inplace && memcmp(&r.s[x], &s0d[x], 4)) {
        b |= 16;
        break;
      }
  }
  const bool ok = worst_o <= c.to && worst_s <= (c.fin_bf16 ? std::max(c.ts, 5e-3) : c.ts) && C.n <= c.ts && same && !b;
  if (!ok) ++g_bad;
  if (!ok || !quiet)
    printf("%-34s o %.2e S %.2e ck %.2e max %.2e segs %d %s%s%s\n", c.name.c_str(), worst_o, worst_s, C.n, O.mx, k.segments, ok ? "ok" : "FAIL",
           same ? "" : " BITS DIFFER", b ? (" flags " + std::to_string(b)).c_str() : "");
}

static void check(bool small) {
  std::vector<Case> all;
  auto add = [&](const char* name, auto f) {
    Case c;
    c.name = name;
    f(c);
    all.push_back(c);
  };
  for (int T : {1, 2, 15, 16, 17, 63, 64, 65, 100, 130})
    add(("T" + std::to_string(T)).c_str(), [&](Case& c) {
      c.T = T;
      c.H = c.HV = 2;
      c.v_split = 1 + T % 2;
    });
  add("varlen", [](Case& c) {
    c.lens = {130, 0, 64, 1, 65, 63, 0, 17};
    c.T = 350;
    c.H = 1;
    c.HV = 2;
    c.ckpt = 1;
  });
  add("varlen cut", [](Case& c) {
    c.lens = {130, 0, 400, 1, 65, 63, 0, 17};
    c.T = 680;
    c.ckpt = 2;
    c.seg_chunks = 2;
    c.pool = true;
    c.flags = true;
  });
  add("pool", [](Case& c) {
    c.B = 4;
    c.T = 100;
    c.HV = 2;
    c.pool = true;
    c.v_first = true;
    c.flags = true;
    c.v_split = 1;
  });
  add("given fp32 g", [](Case& c) {
    c.gate = Gate::kGiven;
    c.g32 = true;
    c.T = 100;
    c.logits = false;
    c.b32 = true;
  });
  add("unbounded spike", [](Case& c) {
    c.gate = Gate::kUnbounded;
    c.gp = kSpike;
    c.T = 200;
  });
  add("cut 4", [](Case& c) {
    c.T = 300;
    c.seg_chunks = 1;
  });
  add("beside", [](Case& c) {
    c.T = 700;
    c.H = c.HV = 2;
    c.B = 2;
    c.overlap = 60;
    c.ckpt = 1;
  });
  add("beside whole", [](Case& c) {
    c.T = 300;
    c.H = c.HV = 4;
    c.v_split = 1;
    c.overlap = 3;
  });
  add("beside varlen", [](Case& c) {
    c.lens = {130, 0, 64, 1, 65, 63, 0, 17};
    c.T = 350;
    c.H = 1;
    c.HV = 2;
    c.ckpt = 1;
    c.overlap = 20;
  });
  if (!small) {
    add("T1000", [](Case& c) {
      c.T = 1000;
      c.H = c.HV = 4;
      c.B = 2;
    });
    add("T1500 whole V", [](Case& c) {
      c.T = 1500;
      c.H = 2;
      c.HV = 4;
      c.v_split = 1;
      c.init = 2;
      c.fin_bf16 = true;
    });
    add("T1024 ck", [](Case& c) {
      c.T = 1024;
      c.H = 2;
      c.HV = 2;
      c.ckpt = 1;
      c.v_first = true;
    });
    add("T1024 ck cut", [](Case& c) {
      c.T = 1024;
      c.H = 2;
      c.HV = 2;
      c.ckpt = 1;
      c.seg_chunks = 4;
    });
    add("T1024 ck3 whole", [](Case& c) {
      c.T = 1024;
      c.H = 2;
      c.HV = 2;
      c.ckpt = 3;
      c.v_split = 1;
    });
    add("varlen big", [](Case& c) {
      c.lens = {1300, 547, 0, 963, 271, 300};
      c.T = 3400;
      c.H = 2;
      c.HV = 4;
      c.ckpt = 1;
      c.pool = true;
    });
    for (int g = 0; g < 6; ++g) {
      add(("given gp" + std::to_string(g)).c_str(), [&](Case& c) {
        c.gate = Gate::kGiven;
        c.gp = GP(g);
        c.T = 1024;
        c.H = c.HV = 2;
        c.logits = false;
        if (g == kZeroG) c.to = 8e-3, c.ts = 7e-3;
      });
      add(("given cut gp" + std::to_string(g)).c_str(), [&](Case& c) {
        c.gate = Gate::kGiven;
        c.gp = GP(g);
        c.T = 1024;
        c.H = c.HV = 2;
        c.logits = false;
        c.seg_chunks = 4;
        if (g == kZeroG) c.to = 8e-3, c.ts = 7e-3;
      });
      add(("bounded gp" + std::to_string(g)).c_str(), [&](Case& c) {
        c.gp = GP(g);
        c.T = 1024;
        c.H = c.HV = 2;
      });
      add(("unbounded gp" + std::to_string(g)).c_str(), [&](Case& c) {
        c.gate = Gate::kUnbounded;
        c.gp = GP(g);
        c.T = 1024;
        c.H = c.HV = 2;
        c.g32 = g & 1;
      });
    }
    add("no alog no bias no norm0", [](Case& c) {
      c.alog = c.bias = false;
      c.T = 300;
      c.init = 0;
    });
    add("beta given doubled", [](Case& c) {
      c.logits = false;
      c.doubled = true;
      c.T = 300;
    });
    add("same keys g0 beta.99", [](Case& c) {
      c.gate = Gate::kGiven;
      c.gp = kZeroG;
      c.kp = kSame;
      c.logits = false;
      c.T = 1024;
      c.to = 1e-1;
      c.ts = 2e-1;
      c.init = 0;
    });
    add("same keys bounded weak", [](Case& c) {
      c.gp = kWeak;
      c.kp = kSame;
      c.T = 1024;
      c.to = 1e-1;
      c.ts = 2e-1;
      c.init = 0;
    });
    add("hard keys", [](Case& c) {
      c.gate = Gate::kGiven;
      c.gp = kWeak;
      c.kp = kHard;
      c.logits = false;
      c.T = 2048;
      c.to = 1.2e-2;
      c.ts = 1.2e-2;
    });
    add("zero keys", [](Case& c) {
      c.kp = kZeroK;
      c.T = 300;
    });
    add("v 1e4", [](Case& c) {
      c.vscale = 1e4;
      c.T = 300;
    });
    add("v 1e30", [](Case& c) {
      c.vscale = 1e30;
      c.T = 300;
    });
    add("v 1e-6", [](Case& c) {
      c.vscale = 1e-6;
      c.T = 300;
    });
    add("GVA 4", [](Case& c) {
      c.H = 2;
      c.HV = 8;
      c.T = 200;
      c.B = 2;
    });
    add("H16 T700", [](Case& c) {
      c.H = c.HV = 16;
      c.T = 700;
      c.B = 2;
    });
    add("T4096 cut weak", [](Case& c) {
      c.gate = Gate::kGiven;
      c.gp = kWeak;
      c.logits = false;
      c.T = 4096;
      c.seg_chunks = 8;
    });
  }
  for (auto& c : all) run_case(c, true);
  printf("%zu cases, %d FAILED\n", all.size(), g_bad);
}

#ifdef HYLA_KDA_PROFILE
namespace hyla::kda::sm90_chunk {
void read_profile(unsigned long long* h);
void read_profile_prepare(unsigned long long* h);
}  // namespace hyla::kda::sm90_chunk
static void profile(const char* name, int T, int H, int v_split, int overlap, bool graph);
#endif
// ---- timing
__global__ void fill(uint16_t* p, size_t n, uint32_t seed, float scale) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
    uint32_t x = uint32_t(i) * 2654435761u + seed;
    x ^= x >> 15;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    const float f = (float(x & 0xffff) + float(x >> 16) - 65536.f) * (scale / 26755.f);
    __nv_bfloat16 b = __float2bfloat16_rn(f);
    p[i] = *reinterpret_cast<uint16_t*>(&b);
  }
}
static void perf_one(const char* name, int B, int T, int H, std::vector<int> lens, int seg_chunks, int v_split, double must, bool overlap = false) {
  const int ov = overlap ? 132 - (lens.empty() ? B : int(lens.size())) * H * v_split : 0;
  const bool varlen = !lens.empty();
  const int N = varlen ? int(lens.size()) : B;
  int maxlen = T;
  if (varlen) {
    maxlen = 0;
    for (int l : lens) maxlen = std::max(maxlen, l);
  }
  Pool keep;
  const size_t n = size_t(B) * T * H * 128;
  auto buf = [&](size_t m, uint32_t seed, float sc) {
    uint16_t* d;
    CK(cudaMalloc(&d, m * 2));
    fill<<<1024, 256>>>(d, m, seed, sc);
    return keep(d);
  };
  KernelParams k0, k;
  const int64_t t = int64_t(H) * 128;
  k0.q = {buf(n, 1, 1), T * t, t, 128};
  k0.k = {buf(n, 2, 1), T * t, t, 128};
  k0.v = {buf(n, 3, 1), T * t, t, 128};
  k0.g = {buf(n, 4, 1), T * t, t, 128};
  k0.beta = {buf(n / 128, 5, 2), int64_t(T) * H, H, 1};
  k0.out = {buf(n, 6, 1), T * t, t, 128};
  std::vector<float> al(H, 0.2f), bi(H * 128, -2.f);
  k0.a_log = keep(up(al));
  k0.dt_bias = keep(up(bi));
  std::vector<int64_t> cu(1, 0);
  for (int l : lens) cu.push_back(cu.back() + l);
  if (varlen) k0.cu_seqlens = {keep(up(cu)), true};
  k0.tokens = T;
  k0.sequences = N;
  k0.heads = H;
  k0.beta_logits = true;
  k0.scale = 0.0883883f;
  std::vector<float> s0(size_t(N) * H * 16384, 0.1f);
  k0.initial = {keep(up(s0)), int64_t(H) * 16384, 16384, 128, false};
  k0.final_ = {keep(up(s0)), int64_t(H) * 16384, 16384, 128, false};
  const Sizes z = layout(k0, k, nullptr, varlen, B, T, N, seg_chunks, maxlen, ov);
  uint8_t* ws;
  CK(cudaMalloc(&ws, z.ws));
  keep(ws);
  layout(k0, k, ws, varlen, B, T, N, seg_chunks, maxlen, ov);
  cudaStream_t st;
  CK(cudaStreamCreateWithFlags(&st, cudaStreamNonBlocking));
  CK(cudaDeviceSynchronize());
  auto time = [&](auto f) {
    f();
    CK(cudaStreamSynchronize(st));
    cudaGraph_t g;
    cudaGraphExec_t ge;
    CK(cudaStreamBeginCapture(st, cudaStreamCaptureModeThreadLocal));
    f();
    CK(cudaStreamEndCapture(st, &g));
    CK(cudaGraphInstantiate(&ge, g, 0));
    cudaEvent_t a, b;
    CK(cudaEventCreate(&a));
    CK(cudaEventCreate(&b));
    std::vector<float> ts;
    for (int i = 0; i < 3; ++i) CK(cudaGraphLaunch(ge, st));
    for (int i = 0; i < 7; ++i) {
      CK(cudaEventRecord(a, st));
      for (int j = 0; j < 4; ++j) CK(cudaGraphLaunch(ge, st));
      CK(cudaEventRecord(b, st));
      CK(cudaEventSynchronize(b));
      float ms;
      CK(cudaEventElapsedTime(&ms, a, b));
      ts.push_back(ms / 4);
    }
    std::sort(ts.begin(), ts.end());
    CK(cudaGraphExecDestroy(ge));
    CK(cudaGraphDestroy(g));
    return ts[3];
  };
#ifdef HYLA_KDA_PROFILE
  {
    unsigned long long a[64] = {}, b[64] = {};
    for (int rep = 0; rep < 3; ++rep) {
      launch_all(k, v_split, st);
      CK(cudaStreamSynchronize(st));
    }
    read_profile(a);
    read_profile_prepare(b);
    const double n = maxlen / 64.0;
    printf("  per chunk: total %.0f full_a %.0f full_b %.0f empty_o %.0f | producer empty_a %.0f empty_b %.0f ready %.0f | store wait %.0f work %.0f\n",
           a[0] / n, a[1] / n, a[2] / n, a[3] / n, a[4] / n, a[5] / n, a[6] / n, a[7] / n, a[8] / n);
    printf("  start-up clk %.0f, final %.0f; scan block 0 start %.1f end %.1f us after prepare start; prepare end %.1f (block 0)\n", double(a[9]),
           double(a[10]), (double(a[11]) - double(b[0])) / 1e3, (double(a[12]) - double(b[0])) / 1e3, (double(b[1]) - double(b[0])) / 1e3);
    printf("  prepare item 0 of block 0, clk: load %.0f", double(b[3] - b[2]));
    for (int i = 4; i < 10; ++i) printf(" %.0f", double(b[i] - b[i - 1]));
    printf("\n");
  }
#endif
  const float all = time([&] { launch_all(k, v_split, st); });
  const float prep = time([&] { ST(launch_prepare(k, g_sms, Stream{st})); });
  const float sum = k.segments > 1 ? time([&] { ST(launch_summary(k, Stream{st})); }) : 0;
  const float scan = overlap ? 0 : time([&] { ST(launch_scan(k, v_split, Stream{st})); });
  printf("%-18s seg %3d x %3d split %d%s: %.4f ms (must %.3f %s)  prepare %.4f summary %.4f scan %.4f\n", name, k.segments, seg_chunks, v_split,
         overlap ? " beside" : "", all, must, all <= must ? "ok" : "--", prep, sum, scan);
  CK(cudaStreamDestroy(st));
}
static void perf() {
  perf_one("B1 H4 T64", 1, 64, 4, {}, 0, 2, 0.015);
  perf_one("B1 H4 T1024", 1, 1024, 4, {}, 0, 2, 0.035);
  perf_one("B1 H4 T1024", 1, 1024, 4, {}, 4, 2, 0.035);
  perf_one("B1 H4 T8192", 1, 8192, 4, {}, 8, 2, 0.08);
  perf_one("B1 H4 T8192", 1, 8192, 4, {}, 16, 2, 0.08);
  for (int s : {8, 16, 32}) perf_one("B1 H4 T16384", 1, 16384, 4, {}, s, 2, 0.13);
  for (int s : {0, 24, 43}) perf_one("B1 H12 T8192", 1, 8192, 12, {}, s, 2, 0.15);
  for (int s : {0, 32}) perf_one("B1 H16 T8192", 1, 8192, 16, {}, s, 2, 0.18);
  perf_one("B1 H12 T8192", 1, 8192, 12, {}, 0, 2, 0.15, true);
  perf_one("B1 H16 T8192", 1, 8192, 16, {}, 0, 2, 0.18, true);
  perf_one("B1 H16 T8192", 1, 8192, 16, {}, 0, 1, 0.18, true);
  perf_one("B2 H16 T16384", 2, 16384, 16, {}, 0, 1, 0.75, true);
  perf_one("B1 H4 T1024", 1, 1024, 4, {}, 0, 2, 0.035, true);
  perf_one("B1 H32 T8192", 1, 8192, 32, {}, 0, 2, 0.18, true);
  perf_one("B1 H32 T8192", 1, 8192, 32, {}, 0, 1, 0.18, true);
  perf_one("B2 H16 T16384", 2, 16384, 16, {}, 0, 2, 0.75);
  perf_one("B2 H16 T16384", 2, 16384, 16, {}, 128, 2, 0.75);
  perf_one("B1 H64 T8192", 1, 8192, 64, {}, 0, 2, 0.60);
  perf_one("8x1024", 1, 8192, 64, std::vector<int>(8, 1024), 0, 1, 0.55);
  perf_one("8x1024", 1, 8192, 64, std::vector<int>(8, 1024), 0, 2, 0.55);
  perf_one("mixed", 1, 8192, 64, {1300, 547, 2048, 963, 271, 3063}, 0, 1, 0.58);
  perf_one("mixed", 1, 8192, 64, {1300, 547, 2048, 963, 271, 3063}, 0, 2, 0.58);
  perf_one("B1 H96 T8192", 1, 8192, 96, {}, 0, 1, 0.85);
  perf_one("B8 H16 T1024", 8, 1024, 16, {}, 0, 1, 0.14);
  perf_one("B8 H16 T8192", 8, 8192, 16, {}, 0, 1, 1.0);
}
int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  cudaDeviceProp pr;
  CK(cudaGetDeviceProperties(&pr, 0));
  g_sms = pr.multiProcessorCount;
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "check") check(false);
  if (what == "small") check(true);
  if (what == "perf") perf();
  if (what == "one")
    perf_one("one", 1, atoi(argv[3]), atoi(argv[2]), {}, argc > 4 ? atoi(argv[4]) : 0, argc > 5 ? atoi(argv[5]) : 2, 0, argc > 6 && atoi(argv[6]));
  return g_bad != 0;
}
