"""Drop-in for sglang's Triton extend_attention_fwd.

    from hyla.sglang import extend_attention_fwd
    hyla.sglang.patch()                         # replaces the function in sglang's own modules
"""

from __future__ import annotations

import sys

from . import _api, _hyla


def _as_float(scale) -> float:
    """k_scale and v_scale come as numbers, None (1) or one-element tensors on the host."""
    if scale is None:
        return 1.0
    if hasattr(scale, "is_cuda") and scale.is_cuda:
        raise _hyla.UnsupportedError("k_scale and v_scale are host numbers; a device tensor would force a read-back in every call")
    return float(scale)


def extend_attention_fwd(q_extend, k_extend, v_extend, o_extend, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices, custom_mask, is_causal,
                         mask_indptr, max_len_extend, k_scale=None, v_scale=None, sm_scale=None, logit_cap=0.0, skip_prefix_custom_mask=True,
                         sliding_window_size=-1, sinks=None, window_kv_offsets=None, xai_temperature_len=-1, lse_extend=None, skip_prefix=False,
                         skip_extend=False, page_size=1, score_mod=None, aux_tensors=None, extend_seq_lens_cpu=None, identity_kv_indices=False):
    """sglang's extend_attention_fwd, argument by argument; writes o_extend (and lse_extend) in place and returns nothing.

    score_mod is not supported (UnsupportedError). extend_seq_lens_cpu and identity_kv_indices are hints that hyla does not need.
    sliding_window_size <= 0 is off, as there. A 4-D pool [pages, page_size, heads, dim] or a 3-D pool of token slots is taken.
    """
    if score_mod is not None or aux_tensors is not None:
        raise _hyla.UnsupportedError("score_mod and aux_tensors are not supported: expected None")
    if k_buffer.ndim == 4 and k_buffer.shape[1] != page_size and page_size != 1:
        raise _hyla.HylaError(f"page_size: expected {k_buffer.shape[1]} (= k_buffer.shape[1]), got {page_size}")
    _api.extend_attention(
        q_extend, k_extend, v_extend, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices, causal=bool(is_causal),
        sliding_window=sliding_window_size if sliding_window_size > 0 else -1, sm_scale=sm_scale, logit_cap=logit_cap, k_scale=_as_float(k_scale),
        v_scale=_as_float(v_scale), sinks=sinks, custom_mask=custom_mask, mask_indptr=mask_indptr if custom_mask is not None else None,
        skip_prefix_custom_mask=skip_prefix_custom_mask,
        window_kv_offsets=window_kv_offsets if custom_mask is not None and sliding_window_size > 0 else None,
        xai_temperature_len=xai_temperature_len if xai_temperature_len > 0 else -1, skip_prefix=skip_prefix, skip_extend=skip_extend,
        max_extend=int(max_len_extend), out=o_extend, lse=lse_extend)


_MODULES = ("sglang.kernels.ops.attention.extend_attention", "sglang.srt.layers.attention.triton_ops.extend_attention")
_originals: dict[tuple[str, str], object] = {}


def patch() -> list[str]:
    """Replaces extend_attention_fwd in every loaded module that holds sglang's; calls that hyla does not take go to the original.
    Returns the names of the modules changed. unpatch() takes it back."""
    import importlib

    original = None
    for name in _MODULES:
        try:
            original = importlib.import_module(name).extend_attention_fwd
            break
        except (ImportError, AttributeError):
            continue
    if original is None:
        raise ImportError("sglang's extend_attention module was not found: is sglang installed?")

    def fwd(*args, **kwargs):
        try:
            return extend_attention_fwd(*args, **kwargs)
        except _hyla.UnsupportedError:
            return original(*args, **kwargs)

    fwd.__wrapped__ = original
    changed = []
    for name, module in list(sys.modules.items()):
        if name.startswith("sglang") and getattr(module, "extend_attention_fwd", None) is original:
            _originals[(name, "extend_attention_fwd")] = original
            module.extend_attention_fwd = fwd
            changed.append(name)
    return changed


def unpatch() -> None:
    """Undoes patch()."""
    for (name, attribute), original in _originals.items():
        setattr(sys.modules[name], attribute, original)
    _originals.clear()
