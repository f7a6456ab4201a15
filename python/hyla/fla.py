"""Drop-in for flash-linear-attention's chunk_kda (0.5 and 0.6), inference only.

    from hyla.fla import chunk_kda            # instead of fla.ops.kda
    hyla.fla.register()                       # or HYLA_FLA=1: fla's own dispatch, so that its layers run on hyla unchanged
"""

from __future__ import annotations

import os

import torch

from . import _api, _hyla

_CHUNK = 64


def _why_not(q, k, v, g, beta, *, initial_state=None, use_gate_in_kernel=False, lower_bound=None, return_intermediate_states=False, cu_seqlens=None, cu_seqlens_cpu=None, cp_context=None,
             chunk_size=_CHUNK, A_log=None, dt_bias=None, **_) -> str | None:
    """The reason why hyla does not take this call, or None."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, v, g, beta, A_log, dt_bias, initial_state)):
        return "hyla computes the forward pass only: call it under torch.no_grad() or inference_mode()"
    if cp_context is not None:
        return "context parallelism (cp_context) is not supported"
    if q.shape[-1] != v.shape[-1] or q.shape[-1] not in (64, 128):
        return f"head dims K = V = 64 or 128 are supported, got K={q.shape[-1]}, V={v.shape[-1]}"
    if chunk_size != _CHUNK and return_intermediate_states:
        return f"intermediate states are stored every {_CHUNK} tokens, got chunk_size={chunk_size}"
    if use_gate_in_kernel and lower_bound is not None and not -5 <= lower_bound < 0:
        return f"lower_bound within [-5, 0) is supported, got {lower_bound}"
    if return_intermediate_states and cu_seqlens is not None and cu_seqlens_cpu is None and torch.cuda.is_available() and \
            torch.cuda.is_current_stream_capturing():
        return "intermediate states of packed sequences under graph capture need cu_seqlens_cpu"
    return None


def _check(q, v, *, initial_state, cu_seqlens, use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, safe_gate, lower_bound, A_log):
    """The errors that flash-linear-attention raises for a wrong request."""
    if cu_seqlens is not None:
        if q.shape[0] != 1:
            raise ValueError(f"cu_seqlens needs a batch of 1 (packed sequences), got {q.shape[0]}")
        if initial_state is not None and initial_state.shape[0] != len(cu_seqlens) - 1:
            raise ValueError(f"initial_state needs {len(cu_seqlens) - 1} rows, one a sequence, got {initial_state.shape[0]}")
    if use_gate_in_kernel and A_log is None and lower_bound is None:
        raise ValueError("A_log is required with use_gate_in_kernel=True unless lower_bound is given")
    if safe_gate and use_gate_in_kernel and lower_bound is None:
        raise ValueError("lower_bound is required with safe_gate=True and use_gate_in_kernel=True")
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise ValueError("allow_neg_eigval=True needs use_beta_sigmoid_in_kernel=True")


def _intermediate_rows(lengths: list[int]) -> tuple[list[int], list[int], int]:
    """Where the state after every 64 tokens goes among flash-linear-attention's rows (the state BEFORE each chunk), and the first row of each
    sequence. A row index of -1 stores nothing: the state after the last full chunk of a sequence that ends there is its final state."""
    rows, first, total = [], [], 0
    for length in lengths:
        chunks = -(-length // _CHUNK)
        first.append(total if chunks else -1)
        rows += [total + p + 1 if p + 1 < chunks else -1 for p in range(length // _CHUNK)]
        total += chunks
    return rows, first, total


def chunk_kda(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
              use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False,
              return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, cp_context=None, use_graph=False,
              max_num_seqs=None, **kwargs):
    """flash-linear-attention's chunk_kda: same arguments, same meaning, same results (o, final_state[, h]).

    A_log and dt_bias come as keywords; transpose_state_layout is the older name of state_v_first. Raises HylaError where the call is not
    supported (gradients, context parallelism, head dims other than 64 and 128).
    """
    A_log, dt_bias = kwargs.get("A_log"), kwargs.get("dt_bias")
    state_v_first = state_v_first or bool(kwargs.get("transpose_state_layout", False))
    _check(q, v, initial_state=initial_state, cu_seqlens=cu_seqlens, use_gate_in_kernel=use_gate_in_kernel,
           use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel, allow_neg_eigval=allow_neg_eigval, safe_gate=safe_gate, lower_bound=lower_bound,
           A_log=A_log)
    reason = _why_not(q, k, v, g, beta, initial_state=initial_state, use_gate_in_kernel=use_gate_in_kernel, lower_bound=lower_bound,
                      return_intermediate_states=return_intermediate_states, cu_seqlens=cu_seqlens, cu_seqlens_cpu=cu_seqlens_cpu,
                      cp_context=cp_context, chunk_size=kwargs.get("chunk_size", _CHUNK), A_log=A_log, dt_bias=dt_bias)
    if reason is not None:
        raise _hyla.UnsupportedError(reason)

    gate = "given" if not use_gate_in_kernel else "unbounded" if lower_bound is None else "bounded"
    if A_log is not None:
        A_log = A_log.detach().reshape(-1).float()
    if dt_bias is not None:
        dt_bias = dt_bias.detach().reshape(-1).float()
    B, T, _, K = q.shape
    HV, V = v.shape[2], v.shape[3]
    inner = (V, K) if state_v_first else (K, V)

    checkpoints = checkpoint_indices = None
    if return_intermediate_states:
        if cu_seqlens is None:
            lengths = [T] * B
        else:
            ends = (cu_seqlens if cu_seqlens_cpu is None else cu_seqlens_cpu).tolist()
            lengths = [b - a for a, b in zip(ends, ends[1:])]
        rows, first, total = _intermediate_rows(lengths)
        # One row more than needed: an empty tensor would mean no checkpoints.
        checkpoints = torch.zeros((max(total, 1), HV, *inner), dtype=torch.bfloat16, device=q.device)
        if initial_state is not None:
            used = [n for n, row in enumerate(first) if row >= 0]
            checkpoints[[first[n] for n in used]] = initial_state[used].to(torch.bfloat16)
        checkpoint_indices = torch.tensor(rows or [-1], dtype=torch.int64, device=q.device)
        if not rows:
            checkpoint_indices = None

    o, final_state, _ = _api.kda_prefill(
        q.detach(), k.detach(), v.detach(), g.detach(), beta.detach(), A_log=A_log if gate != "given" else None,
        dt_bias=dt_bias if gate != "given" else None, gate=gate, lower_bound=-5.0 if lower_bound is None else lower_bound,
        qk_l2norm=use_qk_l2norm_in_kernel, beta_is_logits=use_beta_sigmoid_in_kernel, beta_doubled=allow_neg_eigval, scale=scale,
        cu_seqlens=cu_seqlens, initial_state=None if initial_state is None else initial_state.detach(), output_final_state=output_final_state,
        state_v_first=state_v_first, checkpoints=checkpoints if checkpoint_indices is not None else None, checkpoint_indices=checkpoint_indices)
    final_state = final_state if output_final_state else None
    if not return_intermediate_states:
        return o, final_state
    h = checkpoints[:total].view(B, -1, HV, *inner)
    return o, final_state, h


def register() -> None:
    """Puts hyla in front of flash-linear-attention's own kernels for chunk_kda. What hyla does not take falls through; the reason is logged once
    by flash-linear-attention. Calling it twice does nothing more."""
    global _registered
    if _registered:
        return
    from fla.ops.kda.chunk import chunk_kda as fla_chunk_kda

    try:
        from fla.backends import BaseBackend, register as fla_register  # 0.6
    except ImportError:
        from fla.ops.backends import BaseBackend, BackendRegistry  # 0.5

        fla_register = None

    class HylaBackend(BaseBackend):
        backend_type = "hyla"
        package_name = "hyla"
        env_var = "FLA_HYLA"
        default_enable = True
        priority = 1

        def chunk_kda_verifier(self, q, k, v, g, beta, *args, **kwargs):
            bound = _bind(q, k, v, g, beta, *args, **kwargs)
            if torch.is_grad_enabled():
                return False, "hyla computes the forward pass only: call it under torch.no_grad() or inference_mode()"
            reason = _why_not(**bound)
            return reason is None, reason

        def chunk_kda(self, *args, **kwargs):
            return chunk_kda(*args, **kwargs)

    if fla_register is not None:
        fla_register(fla_chunk_kda)(HylaBackend)
    else:
        BackendRegistry.get("kda").register(HylaBackend())
    _registered = True


_registered = False


def _bind(*args, **kwargs) -> dict:
    """Arguments of chunk_kda by name, keyword extras included."""
    import inspect

    bound = inspect.signature(chunk_kda).bind(*args, **kwargs)
    named = dict(bound.arguments)
    named.update(named.pop("kwargs", {}))
    return named


if os.environ.get("HYLA_FLA", "0") not in ("", "0"):
    register()
