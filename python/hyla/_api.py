"""The two operations and their planners, on arrays of any framework."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _arrays, _hyla

Array = Any


class KdaResult(NamedTuple):
    """What kda_prefill computes: out [B, T, HV, V], final_state (or None), checkpoints (or None)."""

    out: Array
    final_state: Array | None
    checkpoints: Array | None


def _kda_call(q, k, v, g, beta, A_log, dt_bias, cu_seqlens, max_seqlen, initial_state, state_indices, has_initial_state, lowest_valid_slot, final_state,
              state_v_first, checkpoints, checkpoint_offsets, checkpoint_indices, out, gate, lower_bound, qk_l2norm, beta_is_logits, beta_doubled, scale,
              variant, splits, debug_checks):
    view = _arrays.view
    return _hyla.kda_call(
        view(q), view(k), view(v), view(g), view(beta), view(A_log), view(dt_bias), view(cu_seqlens), max_seqlen, view(initial_state), view(state_indices),
        view(has_initial_state), lowest_valid_slot, view(final_state), state_v_first, view(checkpoints), view(checkpoint_offsets),
        view(checkpoint_indices), view(out), gate, lower_bound, qk_l2norm, beta_is_logits, beta_doubled, scale or 0.0, variant or "", splits, debug_checks)


def _run(call, like, workspace):
    place = _arrays.device_and_stream(like)
    if workspace is None:
        workspace = _arrays.workspace(like, call.workspace_bytes, place)
    address, size = _arrays.aligned(workspace)
    call.run(address, size, place[2])


def kda_prefill(
    q: Array,
    k: Array,
    v: Array,
    g: Array,
    beta: Array,
    *,
    A_log: Array | None = None,
    dt_bias: Array | None = None,
    gate: str = "bounded",
    lower_bound: float = -5.0,
    qk_l2norm: bool = True,
    beta_is_logits: bool = False,
    beta_doubled: bool = False,
    scale: float | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    initial_state: Array | None = None,
    final_state: Array | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    state_indices: Array | None = None,
    has_initial_state: Array | None = None,
    lowest_valid_slot: int = 0,
    checkpoints: Array | None = None,
    checkpoint_offsets: Array | None = None,
    checkpoint_indices: Array | None = None,
    out: Array | None = None,
    workspace: Array | None = None,
    variant: str | None = None,
    splits: int = 0,
    debug_checks: bool = False,
) -> KdaResult:
    """Kimi Delta Attention over new tokens (prefill, short extensions, decode).

    Per value head: ``S = diag(exp(g_t)) S; S += beta_t k_t (v_t - k_t^T S)^T; o_t = scale * S^T q_t``.
    Source: "Kimi Linear: An Expressive, Efficient Attention Architecture" (Moonshot AI, 2025).

    Shapes and dtypes (innermost dimension contiguous, other strides free):
        q, k: [B, T, H, K] bf16 (CPU also fp16, fp32); v: [B, T, HV, V] alike, HV a multiple of H; K = V = 128 or 64.
        g: [B, T, HV, K] bf16 or fp32. ``gate='bounded'``: lower_bound * sigmoid(exp(A_log) * (g + dt_bias)), lower_bound in [-5, 0);
            ``'unbounded'``: -exp(A_log) * softplus(g + dt_bias); ``'given'``: g is the log decay.
        beta: [B, T, HV] bf16 or fp32; logits with ``beta_is_logits``; doubled afterwards with ``beta_doubled``.
        A_log: [HV] fp32; dt_bias: [HV, K] or [HV * K] fp32.
        cu_seqlens: [N + 1] int32 or int64 on the arrays' device, with B = 1: packed sequences.
        initial_state, final_state: [N, HV, K, V] (``state_v_first``: [N, HV, V, K]) fp32 or bf16; with ``state_indices`` [N] they are pools
            [slots, HV, ..], and passing the same pool as both updates it in place. Indices below ``lowest_valid_slot`` skip the sequence.
        checkpoints: [C, HV, K, V] fp32 or bf16: the state after every 64 tokens, or at ``checkpoint_offsets`` [N, P] (multiples of 64, -1 for
            none), scattered through ``checkpoint_indices`` if given.
        workspace: uint8, at least ``plan_kda(...).workspace_bytes`` + 256 bytes; else one is cached per device and stream.
        variant, splits: force a variant by name, or the number of segments.

    Returns (out, final_state, checkpoints). ``final_state`` is made when ``output_final_state`` is set and none was passed.

    Raises HylaError (a ValueError) naming the argument, what was expected and what came; UnsupportedError when nothing computes it here.
    """
    shape = v.shape
    if out is None:
        out = _arrays.empty(v, tuple(shape), _arrays.dtype_name(v))
    if output_final_state and final_state is None:
        if state_indices is not None:
            final_state = initial_state
        else:
            n = q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
            inner = (shape[3], q.shape[3]) if state_v_first else (q.shape[3], shape[3])
            final_state = _arrays.empty(v, (n, shape[2], *inner), "float32")
    call = _kda_call(q, k, v, g, beta, A_log, dt_bias, cu_seqlens, max_seqlen, initial_state, state_indices, has_initial_state, lowest_valid_slot,
                     final_state, state_v_first, checkpoints, checkpoint_offsets, checkpoint_indices, out, gate, lower_bound, qk_l2norm,
                     beta_is_logits, beta_doubled, scale, variant, splits, debug_checks)
    _run(call, v, workspace)
    return KdaResult(_arrays.finish(v, out), _arrays.finish(v, final_state), checkpoints)


def plan_kda(q, k, v, g, beta, *, A_log=None, dt_bias=None, gate="bounded", lower_bound=-5.0, qk_l2norm=True, beta_is_logits=False,
             beta_doubled=False, scale=None, cu_seqlens=None, max_seqlen=0, initial_state=None, final_state=None, state_v_first=False,
             state_indices=None, has_initial_state=None, lowest_valid_slot=0, checkpoints=None, checkpoint_offsets=None, checkpoint_indices=None,
             out=None, variant=None, splits=0):
    """The plan that kda_prefill would run for these arguments: variant, workspace_bytes, modelled_us, why, candidates. Runs nothing."""
    if out is None:
        out = _arrays.empty(v, tuple(v.shape), _arrays.dtype_name(v))
    return _kda_call(q, k, v, g, beta, A_log, dt_bias, cu_seqlens, max_seqlen, initial_state, state_indices, has_initial_state, lowest_valid_slot,
                     final_state, state_v_first, checkpoints, checkpoint_offsets, checkpoint_indices, out, gate, lower_bound, qk_l2norm,
                     beta_is_logits, beta_doubled, scale, variant, splits, False).plan


def _extend_call(q, k, v, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices, max_extend, max_prefix, custom_mask, mask_indptr,
                 skip_prefix_custom_mask, window_kv_offsets, sinks, out, lse, causal, sliding_window, sm_scale, logit_cap, k_scale, v_scale,
                 xai_temperature_len, skip_prefix, skip_extend, variant, splits, debug_checks):
    view = _arrays.view
    return _hyla.extend_call(
        view(q), view(k), view(v), view(k_buffer), view(v_buffer), view(qo_indptr), view(kv_indptr), view(kv_indices), max_extend, max_prefix,
        view(custom_mask), view(mask_indptr), skip_prefix_custom_mask, view(window_kv_offsets), view(sinks), view(out), view(lse), causal,
        sliding_window, sm_scale or 0.0, logit_cap, k_scale, v_scale, xai_temperature_len, skip_prefix, skip_extend, variant or "", splits,
        debug_checks)


def extend_attention(
    q: Array,
    k: Array,
    v: Array,
    k_buffer: Array,
    v_buffer: Array,
    qo_indptr: Array,
    kv_indptr: Array,
    kv_indices: Array,
    *,
    causal: bool = True,
    sliding_window: int = -1,
    sm_scale: float | None = None,
    logit_cap: float = 0.0,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    sinks: Array | None = None,
    custom_mask: Array | None = None,
    mask_indptr: Array | None = None,
    skip_prefix_custom_mask: bool = True,
    window_kv_offsets: Array | None = None,
    xai_temperature_len: int = -1,
    skip_prefix: bool = False,
    skip_extend: bool = False,
    max_extend: int = 0,
    max_prefix: int = 0,
    out: Array | None = None,
    lse: Array | None = None,
    workspace: Array | None = None,
    variant: str | None = None,
    splits: int = 0,
    debug_checks: bool = False,
) -> Array:
    """New tokens attend to a paged KV prefix and to themselves in one softmax; returns out [n, Hq, Lv].

    Shapes and dtypes (innermost dimension contiguous, other strides free):
        q [n, Hq, Lq], k [n, Hkv, Lq], v [n, Hkv, Lv]: bf16 or fp16, all requests packed; Hq a multiple of Hkv; Lq, Lv multiples of 8 up to 576.
        k_buffer [slots, Hkv, Lq] or [pages, page_size, Hkv, Lq], v_buffer alike: q's dtype, float8_e4m3fn or float8_e5m2.
        qo_indptr, kv_indptr [batch + 1], kv_indices [total prefix] (token slots): int32 or int64.
        custom_mask: uint8 or bool, flat, with mask_indptr [batch + 1]: replaces causality over the new keys.
        sliding_window W: W + 1 keys with the query itself; -1 is off. sinks [Hq]: raw logits in the denominator. lse [n, Hq] fp32 receives the
        natural log-sum-exp. logit_cap: cap * tanh(s / cap). k_scale, v_scale: prefix part only.

    A row without an allowed key gives 0 and LSE -inf. Meanings follow sglang's extend_attention_fwd.
    Raises HylaError naming the argument, what was expected and what came; UnsupportedError when nothing computes it here.
    """
    if out is None:
        out = _arrays.empty(q, (q.shape[0], q.shape[1], v.shape[2]), _arrays.dtype_name(q))
    call = _extend_call(q, k, v, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices, max_extend, max_prefix, custom_mask, mask_indptr,
                        skip_prefix_custom_mask, window_kv_offsets, sinks, out, lse, causal, sliding_window, sm_scale, logit_cap, k_scale, v_scale,
                        xai_temperature_len, skip_prefix, skip_extend, variant, splits, debug_checks)
    _run(call, q, workspace)
    return _arrays.finish(q, out)


def plan_extend(q, k, v, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices, *, causal=True, sliding_window=-1, sm_scale=None, logit_cap=0.0,
                k_scale=1.0, v_scale=1.0, sinks=None, custom_mask=None, mask_indptr=None, skip_prefix_custom_mask=True, window_kv_offsets=None,
                xai_temperature_len=-1, skip_prefix=False, skip_extend=False, max_extend=0, max_prefix=0, out=None, lse=None, variant=None, splits=0):
    """The plan that extend_attention would run for these arguments. Runs nothing."""
    if out is None:
        out = _arrays.empty(q, (q.shape[0], q.shape[1], v.shape[2]), _arrays.dtype_name(q))
    return _extend_call(q, k, v, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices, max_extend, max_prefix, custom_mask, mask_indptr,
                        skip_prefix_custom_mask, window_kv_offsets, sinks, out, lse, causal, sliding_window, sm_scale, logit_cap, k_scale, v_scale,
                        xai_temperature_len, skip_prefix, skip_extend, variant, splits, False).plan


def info() -> dict:
    """Version, backends built in, devices found, variants of both operations."""
    from . import __version__

    count = _hyla.cuda_device_count()
    return {
        "version": __version__,
        "cuda_built": _hyla.built_with_cuda(),
        "cuda_devices": [_hyla.device_name("cuda", i) for i in range(count)],
        "cpu_threads": _hyla.cpu_threads(),
        "kda_variants": list(_hyla.kda_variants()),
        "extend_variants": list(_hyla.extend_variants()),
    }
