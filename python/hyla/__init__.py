"""hyla: KDA prefill and extend attention for NVIDIA Hopper, with a CPU backend.

Importing needs neither a GPU nor torch. hyla.fla and hyla.sglang are drop-ins for flash-linear-attention's chunk_kda and sglang's
extend_attention_fwd; hyla.torch_ops registers custom operators for torch.compile.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("hyla")
except PackageNotFoundError:  # an extension module on the path without an installed distribution
    __version__ = "0.0.0"

try:
    from . import _hyla
except ImportError as error:
    raise ImportError(f"hyla's compiled module could not be loaded ({error}); install the package with 'pip install .' from its source") from error

from ._api import KdaResult, extend_attention, info, kda_prefill, plan_extend, plan_kda
from ._arrays import clear_workspaces

HylaError = _hyla.HylaError
UnsupportedError = _hyla.UnsupportedError
Candidate = _hyla.Candidate
KdaPlan = _hyla.KdaPlan
ExtendPlan = _hyla.ExtendPlan

__all__ = ["kda_prefill", "extend_attention", "plan_kda", "plan_extend", "info", "clear_workspaces", "KdaResult", "KdaPlan", "ExtendPlan", "Candidate",
           "HylaError", "UnsupportedError"]
