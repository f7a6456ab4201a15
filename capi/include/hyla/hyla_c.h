/* The C interface of hyla, for engines in C, Rust, Go and other languages. It mirrors hyla/kda.h and hyla/extend.h field by field; what each
 * argument means is said there.
 *
 * - Every function that can fail returns a hyla_code and fills `error` when it is not null.
 * - Structs that may grow begin with struct_size: the *_init functions set it with every default. A program built against an older header keeps
 *   working with a newer library: fields that it does not know have their defaults.
 * - Nothing here keeps a pointer to an argument after it returns. Outputs and workspace belong to the caller.
 * - Plans may be run from several threads at once, each run with its own workspace. */
#ifndef HYLA_C_H
#define HYLA_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HYLA_MAX_RANK 5

typedef enum hyla_code {
  HYLA_OK = 0,
  HYLA_INVALID_ARGUMENT = 1,
  HYLA_UNSUPPORTED = 2,
  HYLA_WORKSPACE = 3,
  HYLA_PLAN_MISMATCH = 4,
  HYLA_DEVICE_ERROR = 5,
  HYLA_IO = 6,
  HYLA_INTERNAL = 7 /* out of host memory, or a defect in hyla */
} hyla_code;

/* What went wrong, as text that ends with 0; parts that do not fit are cut off. */
typedef struct hyla_error {
  char argument[128]; /* "k.shape[2]" */
  char expected[384];
  char got[384];
  char message[1024]; /* all of it in one line */
} hyla_error;

typedef enum hyla_dtype {
  HYLA_BF16 = 0,
  HYLA_FP16 = 1,
  HYLA_FP32 = 2,
  HYLA_E4M3 = 3,
  HYLA_E5M2 = 4,
  HYLA_I32 = 5,
  HYLA_I64 = 6,
  HYLA_U8 = 7,
  HYLA_BOOL = 8
} hyla_dtype;

typedef enum hyla_device_kind { HYLA_CPU = 0, HYLA_CUDA = 1 } hyla_device_kind;

/* All zero bytes: an absent tensor (rank 0). Strides count elements. */
typedef struct hyla_tensor {
  void* data;
  int32_t dtype; /* hyla_dtype */
  int32_t rank;
  int64_t shape[HYLA_MAX_RANK];
  int64_t stride[HYLA_MAX_RANK];
  int32_t device_kind; /* hyla_device_kind */
  int32_t device_index;
} hyla_tensor;

/* A tensor with row-major strides. */
hyla_tensor hyla_contiguous(void* data, hyla_dtype dtype, const int64_t* shape, int rank, hyla_device_kind device_kind, int device_index);

typedef struct hyla_plan_options {
  size_t struct_size;
  const char* variant; /* null or "": the fastest legal one */
  int32_t splits;      /* 0: the planner's choice */
  int32_t debug_checks;
} hyla_plan_options;
void hyla_plan_options_init(hyla_plan_options* options);

const char* hyla_version(void);
int hyla_built_with_cuda(void);
int hyla_cuda_device_count(void);

/* What a planner knows of a chip. */
typedef struct hyla_caps hyla_caps;
hyla_code hyla_caps_query(hyla_device_kind kind, int index, hyla_caps** caps, hyla_error* error); /* of this machine */
hyla_code hyla_caps_find(const char* name, hyla_caps** caps, hyla_error* error);                  /* built in: "h200", "cpu", ... */
void hyla_caps_free(hyla_caps* caps);                                                             /* null is allowed */

/* ---- KDA prefill ---- */

typedef enum hyla_kda_gate { HYLA_KDA_BOUNDED = 0, HYLA_KDA_UNBOUNDED = 1, HYLA_KDA_GIVEN = 2 } hyla_kda_gate;
typedef enum hyla_kda_state_layout { HYLA_KDA_K_FIRST = 0, HYLA_KDA_V_FIRST = 1 } hyla_kda_state_layout;

typedef struct hyla_kda_args {
  size_t struct_size;
  hyla_tensor q, k, v, g, beta, A_log, dt_bias, cu_seqlens;
  int64_t max_seqlen;
  hyla_tensor initial_state, state_indices, has_initial_state;
  int64_t lowest_valid_slot;
  hyla_tensor final_state;
  hyla_tensor checkpoints, checkpoint_offsets, checkpoint_indices;
  hyla_tensor out;
  int32_t state_layout; /* hyla_kda_state_layout */
  int32_t gate;         /* hyla_kda_gate */
  float lower_bound;
  float scale;
  int32_t qk_l2norm;
  int32_t beta_is_logits;
  int32_t beta_doubled;
} hyla_kda_args;
void hyla_kda_args_init(hyla_kda_args* args);

typedef struct hyla_kda_plan hyla_kda_plan;
/* HYLA_OK, or the reason why nothing here computes this. `options` may be null everywhere. */
hyla_code hyla_kda_can_run(const hyla_kda_args* args, const hyla_caps* caps, const hyla_plan_options* options, hyla_error* error);
hyla_code hyla_kda_plan_create(const hyla_kda_args* args, const hyla_caps* caps, const hyla_plan_options* options, hyla_kda_plan** plan, hyla_error* error);
const char* hyla_kda_plan_describe(const hyla_kda_plan* plan); /* one line; lives as long as the plan */
const char* hyla_kda_plan_variant(const hyla_kda_plan* plan);
size_t hyla_kda_plan_workspace_bytes(const hyla_kda_plan* plan);
void hyla_kda_plan_free(hyla_kda_plan* plan); /* null is allowed */
/* `workspace` is aligned to 256 bytes; `stream` is a cudaStream_t, ignored on the CPU. */
hyla_code hyla_kda_run(const hyla_kda_plan* plan, const hyla_kda_args* args, void* workspace, size_t workspace_bytes, void* stream, hyla_error* error);
hyla_code hyla_kda_check_contents(const hyla_kda_args* args, hyla_error* error);

/* ---- Extend attention ---- */

typedef struct hyla_extend_args {
  size_t struct_size;
  hyla_tensor q, k, v, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices;
  int64_t max_extend;
  int64_t max_prefix;
  hyla_tensor custom_mask, mask_indptr, window_kv_offsets, sinks, out, lse;
  int64_t sliding_window;
  int64_t xai_temperature_len;
  float sm_scale;
  float logit_cap;
  float k_scale;
  float v_scale;
  int32_t causal;
  int32_t skip_prefix_custom_mask;
  int32_t skip_prefix;
  int32_t skip_extend;
} hyla_extend_args;
void hyla_extend_args_init(hyla_extend_args* args);

typedef struct hyla_extend_plan hyla_extend_plan;
hyla_code hyla_extend_can_run(const hyla_extend_args* args, const hyla_caps* caps, const hyla_plan_options* options, hyla_error* error);
hyla_code hyla_extend_plan_create(const hyla_extend_args* args, const hyla_caps* caps, const hyla_plan_options* options, hyla_extend_plan** plan,
                                  hyla_error* error);
const char* hyla_extend_plan_describe(const hyla_extend_plan* plan);
const char* hyla_extend_plan_variant(const hyla_extend_plan* plan);
size_t hyla_extend_plan_workspace_bytes(const hyla_extend_plan* plan);
void hyla_extend_plan_free(hyla_extend_plan* plan);
hyla_code hyla_extend_run(const hyla_extend_plan* plan, const hyla_extend_args* args, void* workspace, size_t workspace_bytes, void* stream, hyla_error* error);
hyla_code hyla_extend_check_contents(const hyla_extend_args* args, hyla_error* error);

#ifdef __cplusplus
}
#endif

#endif /* HYLA_C_H */
