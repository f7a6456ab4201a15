"""torch custom operators, for torch.compile(fullgraph=True) and as graph splitting points. Importing this module registers them:

    torch.ops.hyla.kda_prefill(...)       -> (out, final_state)
    torch.ops.hyla.kda_prefill_(...)      -> out; updates a state pool in place
    torch.ops.hyla.extend_attention(...)  -> (out, lse)
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import _api


def _final_state_like(q: Tensor, v: Tensor, cu_seqlens: Tensor | None, state_v_first: bool) -> Tensor:
    n = q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    inner = (v.shape[3], q.shape[3]) if state_v_first else (q.shape[3], v.shape[3])
    return q.new_empty((n, v.shape[2], *inner), dtype=torch.float32)


def _contiguous_like(v: Tensor) -> Tensor:
    return v.new_empty(v.shape)


@torch.library.custom_op("hyla::kda_prefill", mutates_args=())
def kda_prefill(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor | None = None, dt_bias: Tensor | None = None,
                gate: str = "bounded", lower_bound: float = -5.0, qk_l2norm: bool = True, beta_is_logits: bool = False, beta_doubled: bool = False,
                scale: float = 0.0, cu_seqlens: Tensor | None = None, initial_state: Tensor | None = None,
                state_v_first: bool = False) -> tuple[Tensor, Tensor]:
    out = _contiguous_like(v)
    final_state = _final_state_like(q, v, cu_seqlens, state_v_first)
    _api.kda_prefill(q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, gate=gate, lower_bound=lower_bound, qk_l2norm=qk_l2norm,
                     beta_is_logits=beta_is_logits, beta_doubled=beta_doubled, scale=scale, cu_seqlens=cu_seqlens, initial_state=initial_state,
                     final_state=final_state, state_v_first=state_v_first, out=out)
    return out, final_state


@kda_prefill.register_fake
def _(q, k, v, g, beta, A_log=None, dt_bias=None, gate="bounded", lower_bound=-5.0, qk_l2norm=True, beta_is_logits=False, beta_doubled=False, scale=0.0,
      cu_seqlens=None, initial_state=None, state_v_first=False):
    return _contiguous_like(v), _final_state_like(q, v, cu_seqlens, state_v_first)


@torch.library.custom_op("hyla::kda_prefill_", mutates_args=("state_pool",))
def kda_prefill_(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state_pool: Tensor, state_indices: Tensor, A_log: Tensor | None = None,
                 dt_bias: Tensor | None = None, gate: str = "bounded", lower_bound: float = -5.0, qk_l2norm: bool = True,
                 beta_is_logits: bool = False, beta_doubled: bool = False, scale: float = 0.0, cu_seqlens: Tensor | None = None,
                 has_initial_state: Tensor | None = None, lowest_valid_slot: int = 0, state_v_first: bool = False) -> Tensor:
    out = _contiguous_like(v)
    _api.kda_prefill(q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, gate=gate, lower_bound=lower_bound, qk_l2norm=qk_l2norm,
                     beta_is_logits=beta_is_logits, beta_doubled=beta_doubled, scale=scale, cu_seqlens=cu_seqlens, initial_state=state_pool,
                     final_state=state_pool, state_indices=state_indices, has_initial_state=has_initial_state, lowest_valid_slot=lowest_valid_slot,
                     state_v_first=state_v_first, out=out)
    return out


@kda_prefill_.register_fake
def _(q, k, v, g, beta, state_pool, state_indices, A_log=None, dt_bias=None, gate="bounded", lower_bound=-5.0, qk_l2norm=True, beta_is_logits=False,
      beta_doubled=False, scale=0.0, cu_seqlens=None, has_initial_state=None, lowest_valid_slot=0, state_v_first=False):
    return _contiguous_like(v)


@torch.library.custom_op("hyla::extend_attention", mutates_args=())
def extend_attention(q: Tensor, k: Tensor, v: Tensor, k_buffer: Tensor, v_buffer: Tensor, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
                     causal: bool = True, sliding_window: int = -1, sm_scale: float = 0.0, logit_cap: float = 0.0, k_scale: float = 1.0,
                     v_scale: float = 1.0, sinks: Tensor | None = None, max_extend: int = 0) -> tuple[Tensor, Tensor]:
    out = q.new_empty((q.shape[0], q.shape[1], v.shape[2]))
    lse = q.new_empty((q.shape[0], q.shape[1]), dtype=torch.float32)
    _api.extend_attention(q, k, v, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices, causal=causal, sliding_window=sliding_window,
                          sm_scale=sm_scale, logit_cap=logit_cap, k_scale=k_scale, v_scale=v_scale, sinks=sinks, max_extend=max_extend, out=out,
                          lse=lse)
    return out, lse


@extend_attention.register_fake
def _(q, k, v, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices, causal=True, sliding_window=-1, sm_scale=0.0, logit_cap=0.0, k_scale=1.0,
      v_scale=1.0, sinks=None, max_extend=0):
    return q.new_empty((q.shape[0], q.shape[1], v.shape[2])), q.new_empty((q.shape[0], q.shape[1]), dtype=torch.float32)
