/* The C interface from C: both operations on the CPU against plain loops, errors, struct versions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hyla/hyla_c.h"

static int failures = 0;
#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                    \
    }                                                                \
  } while (0)

static double noise(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return (double)(*state >> 8) / 8388608.0 - 1.0;
}
static void fill(float* x, int n, unsigned seed, double size) {
  for (int i = 0; i < n; ++i) x[i] = (float)(size * noise(&seed));
}
static hyla_tensor fp32(float* data, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t shape[4] = {a, b, c, d};
  const int rank = d > 0 ? 4 : c > 0 ? 3 : b > 0 ? 2 : 1;
  return hyla_contiguous(data, HYLA_FP32, shape, rank, HYLA_CPU, 0);
}
static void* workspace_of(size_t bytes) { return aligned_alloc(256, (bytes + 511) / 256 * 256); }

/* ---- KDA: T tokens, one head, given decay, no norm; against the recurrence in double. ---- */
enum { kT = 70, kD = 64 };
static float q[kT * kD], k[kT * kD], v[kT * kD], g[kT * kD], beta[kT], out[kT * kD], state[kD * kD];

static void kda_arguments(hyla_kda_args* a) {
  fill(q, kT * kD, 1, 0.3), fill(k, kT * kD, 2, 0.15), fill(v, kT * kD, 3, 1), fill(g, kT * kD, 4, 0.5), fill(beta, kT, 5, 0.5);
  for (int i = 0; i < kT * kD; ++i) g[i] -= 0.5f;
  for (int t = 0; t < kT; ++t) beta[t] += 0.5f;
  hyla_kda_args_init(a);
  a->q = fp32(q, 1, kT, 1, kD), a->k = fp32(k, 1, kT, 1, kD), a->v = fp32(v, 1, kT, 1, kD), a->g = fp32(g, 1, kT, 1, kD);
  a->beta = fp32(beta, 1, kT, 1, 0), a->out = fp32(out, 1, kT, 1, kD), a->final_state = fp32(state, 1, 1, kD, kD);
  a->gate = HYLA_KDA_GIVEN, a->qk_l2norm = 0;
}

static void test_kda(void) {
  hyla_kda_args a;
  hyla_caps* caps = NULL;
  hyla_kda_plan* plan = NULL;
  hyla_error error = {{0}, {0}, {0}, {0}};
  kda_arguments(&a);
  CHECK(hyla_caps_query(HYLA_CPU, 0, &caps, &error) == HYLA_OK);
  CHECK(hyla_kda_can_run(&a, caps, NULL, &error) == HYLA_OK);
  if (hyla_kda_plan_create(&a, caps, NULL, &plan, &error) != HYLA_OK) {
    printf("%s\n", error.message);
    ++failures;
    return;
  }
  printf("%s\n", hyla_kda_plan_describe(plan));
  CHECK(strlen(hyla_kda_plan_variant(plan)) > 0);
  const size_t bytes = hyla_kda_plan_workspace_bytes(plan);
  void* workspace = workspace_of(bytes);
  CHECK(hyla_kda_run(plan, &a, workspace, bytes, NULL, &error) == HYLA_OK);

  static double S[kD][kD];
  double worst = 0;
  for (int t = 0; t < kT; ++t) {
    const float *qt = q + t * kD, *kt = k + t * kD, *vt = v + t * kD;
    for (int j = 0; j < kD; ++j) {
      double read = 0, o = 0;
      for (int i = 0; i < kD; ++i) S[i][j] *= exp((double)g[t * kD + i]), read += kt[i] * S[i][j];
      for (int i = 0; i < kD; ++i) S[i][j] += beta[t] * kt[i] * (vt[j] - read), o += qt[i] * S[i][j];
      worst = fmax(worst, fabs(o / sqrt(kD) - out[t * kD + j]));
    }
  }
  for (int i = 0; i < kD * kD; ++i) worst = fmax(worst, fabs(S[i / kD][i % kD] - state[i]));
  printf("largest error %g\n", worst);
  CHECK(worst < 1e-4);
  free(workspace);
  hyla_kda_plan_free(plan);
  hyla_caps_free(caps);
}

/* ---- Extend attention: 5 new tokens on 7 prefix keys, causal; against softmax in double. ---- */
enum { kNew = 5, kPrefix = 7, kSlots = 20, kHead = 64 };

static void test_extend(void) {
  static float eq[kNew * kHead], ek[kNew * kHead], ev[kNew * kHead], pool_k[kSlots * kHead], pool_v[kSlots * kHead], eo[kNew * kHead], lse[kNew];
  int32_t qo[2] = {0, kNew}, kv[2] = {0, kPrefix}, indices[kPrefix] = {3, 1, 19, 0, 7, 8, 12};
  const int64_t two = 2, prefix = kPrefix;
  fill(eq, kNew * kHead, 1, 1), fill(ek, kNew * kHead, 2, 1), fill(ev, kNew * kHead, 3, 1);
  fill(pool_k, kSlots * kHead, 4, 1), fill(pool_v, kSlots * kHead, 5, 1);
  hyla_extend_args a;
  hyla_extend_args_init(&a);
  a.q = fp32(eq, kNew, 1, kHead, 0), a.k = fp32(ek, kNew, 1, kHead, 0), a.v = fp32(ev, kNew, 1, kHead, 0);
  a.k_buffer = fp32(pool_k, kSlots, 1, kHead, 0), a.v_buffer = fp32(pool_v, kSlots, 1, kHead, 0), a.out = fp32(eo, kNew, 1, kHead, 0);
  a.lse = fp32(lse, kNew, 1, 0, 0);
  a.qo_indptr = hyla_contiguous(qo, HYLA_I32, &two, 1, HYLA_CPU, 0);
  a.kv_indptr = hyla_contiguous(kv, HYLA_I32, &two, 1, HYLA_CPU, 0);
  a.kv_indices = hyla_contiguous(indices, HYLA_I32, &prefix, 1, HYLA_CPU, 0);

  hyla_caps* caps = NULL;
  hyla_extend_plan* plan = NULL;
  hyla_error error = {{0}, {0}, {0}, {0}};
  CHECK(hyla_caps_query(HYLA_CPU, 0, &caps, &error) == HYLA_OK);
  CHECK(hyla_extend_can_run(&a, caps, NULL, &error) == HYLA_OK);
  CHECK(hyla_extend_check_contents(&a, &error) == HYLA_OK);
  if (hyla_extend_plan_create(&a, caps, NULL, &plan, &error) != HYLA_OK) {
    printf("%s\n", error.message);
    ++failures;
    return;
  }
  printf("%s\n", hyla_extend_plan_describe(plan));
  const size_t bytes = hyla_extend_plan_workspace_bytes(plan);
  void* workspace = workspace_of(bytes);
  CHECK(hyla_extend_run(plan, &a, workspace, bytes, NULL, &error) == HYLA_OK);
  double worst = 0;
  for (int t = 0; t < kNew; ++t) {
    double sum = 0, o[kHead] = {0};
    for (int key = 0; key < kPrefix + t + 1; ++key) {
      const float* kr = key < kPrefix ? pool_k + indices[key] * kHead : ek + (key - kPrefix) * kHead;
      const float* vr = key < kPrefix ? pool_v + indices[key] * kHead : ev + (key - kPrefix) * kHead;
      double s = 0;
      for (int i = 0; i < kHead; ++i) s += (double)eq[t * kHead + i] * kr[i];
      const double p = exp(s / sqrt(kHead));
      sum += p;
      for (int i = 0; i < kHead; ++i) o[i] += p * vr[i];
    }
    for (int i = 0; i < kHead; ++i) worst = fmax(worst, fabs(o[i] / sum - eo[t * kHead + i]));
    worst = fmax(worst, fabs(log(sum) - lse[t]));
  }
  printf("largest error %g\n", worst);
  CHECK(worst < 1e-5);
  indices[2] = kSlots;
  CHECK(hyla_extend_check_contents(&a, &error) == HYLA_INVALID_ARGUMENT);
  CHECK(strstr(error.argument, "kv_indices") != NULL);
  free(workspace);
  hyla_extend_plan_free(plan);
  hyla_caps_free(caps);
}

static void test_errors(void) {
  hyla_kda_args a;
  hyla_caps* caps = NULL;
  hyla_kda_plan* plan = NULL;
  hyla_error error;
  kda_arguments(&a);
  CHECK(hyla_caps_find("h300", &caps, &error) != HYLA_OK && caps == NULL && strstr(error.message, "h300") != NULL);
  CHECK(hyla_caps_find("cpu", &caps, NULL) == HYLA_OK);
  CHECK(hyla_kda_plan_create(NULL, caps, NULL, &plan, &error) == HYLA_INVALID_ARGUMENT && strcmp(error.argument, "args") == 0);
  CHECK(hyla_kda_plan_create(&a, NULL, NULL, &plan, &error) == HYLA_INVALID_ARGUMENT && strcmp(error.argument, "caps") == 0);
  CHECK(hyla_kda_plan_create(&a, caps, NULL, NULL, &error) == HYLA_INVALID_ARGUMENT);
  CHECK(hyla_kda_run(NULL, &a, NULL, 0, NULL, &error) == HYLA_INVALID_ARGUMENT);

  a.k.shape[3] = 60;
  CHECK(hyla_kda_can_run(&a, caps, NULL, &error) != HYLA_OK);
  CHECK(strncmp(error.argument, "k", 1) == 0 && strlen(error.expected) > 0 && strlen(error.got) > 0 && strlen(error.message) > 0);
  kda_arguments(&a), a.v.dtype = 99;
  CHECK(hyla_kda_can_run(&a, caps, NULL, &error) == HYLA_INVALID_ARGUMENT && strcmp(error.argument, "v.dtype") == 0);
  kda_arguments(&a), a.gate = 7;
  CHECK(hyla_kda_can_run(&a, caps, NULL, &error) == HYLA_INVALID_ARGUMENT && strcmp(error.argument, "gate") == 0);
  kda_arguments(&a), a.q.rank = -3;
  CHECK(hyla_kda_can_run(&a, caps, NULL, &error) == HYLA_INVALID_ARGUMENT && strcmp(error.argument, "q.rank") == 0);

  kda_arguments(&a);
  hyla_plan_options options;
  hyla_plan_options_init(&options);
  options.variant = "no_such_variant";
  CHECK(hyla_kda_plan_create(&a, caps, &options, &plan, &error) != HYLA_OK && plan == NULL && strstr(error.message, "no_such_variant") != NULL);
  /* A plan refuses another problem. */
  CHECK(hyla_kda_plan_create(&a, caps, NULL, &plan, &error) == HYLA_OK);
  const size_t bytes = plan ? hyla_kda_plan_workspace_bytes(plan) : 0;
  void* workspace = workspace_of(bytes);
  a.scale = 2;
  CHECK(hyla_kda_run(plan, &a, workspace, bytes, NULL, &error) == HYLA_PLAN_MISMATCH && strstr(error.argument, "scale") != NULL);
  free(workspace);
  hyla_kda_plan_free(plan);
  hyla_kda_plan_free(NULL);
  hyla_caps_free(caps);
  hyla_caps_free(NULL);
}

static void test_versions(void) {
  hyla_kda_args a;
  hyla_caps* caps = NULL;
  hyla_error error;
  kda_arguments(&a);
  CHECK(hyla_caps_find("cpu", &caps, NULL) == HYLA_OK);
  CHECK(hyla_version()[0] != 0);
  CHECK(a.struct_size == sizeof(a) && a.qk_l2norm == 0 && a.lower_bound == -5.0f);
  a.struct_size = sizeof(a) + 8; /* built against a newer header than this library */
  CHECK(hyla_kda_can_run(&a, caps, NULL, &error) == HYLA_INVALID_ARGUMENT && strcmp(error.argument, "args.struct_size") == 0);
  a.struct_size = 0; /* never initialised */
  CHECK(hyla_kda_can_run(&a, caps, NULL, &error) == HYLA_INVALID_ARGUMENT);
  /* An older header without the last fields: whatever lies behind them is not read. */
  kda_arguments(&a);
  a.struct_size = offsetof(hyla_kda_args, qk_l2norm);
  memset((char*)&a + a.struct_size, 0x7F, sizeof(a) - a.struct_size);
  CHECK(hyla_kda_can_run(&a, caps, NULL, &error) == HYLA_OK);
  hyla_caps_free(caps);
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  if (strcmp(name, "kda") == 0) test_kda();
  else if (strcmp(name, "extend") == 0) test_extend();
  else if (strcmp(name, "errors") == 0) test_errors();
  else if (strcmp(name, "versions") == 0) test_versions();
  else return 2;
  return failures == 0 ? 0 : 1;
}
