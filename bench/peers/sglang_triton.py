"""Loads sglang's Triton extend-attention kernel straight from its wheel, without installing sglang: the modules that the file imports are
replaced by the few functions it uses. Read at run time only; nothing of it is kept here."""

from __future__ import annotations

import glob
import sys
import types
import zipfile
from pathlib import Path

_FILE = "sglang/kernels/ops/attention/extend_attention.py"


def find_wheel() -> str | None:
    """Path of an sglang wheel in the current folder, .whl/ or .peers/."""
    found = [p for folder in (".", ".whl", ".peers") for p in glob.glob(f"{folder}/sglang-*.whl")]
    return found[0] if found else None


def _module(name: str, **members) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(members)
    module.__path__ = []
    sys.modules[name] = module


def _strides(buffer, page_size: int):
    """(slot, head, page, token) strides of a 3-D or 4-D pool."""
    if buffer.dim() == 4:
        return (buffer.stride(1), buffer.stride(2), buffer.stride(0), buffer.stride(1))
    return (buffer.stride(0), buffer.stride(1), buffer.stride(0) * page_size, buffer.stride(0))


def load(wheel: str, workdir: str = "/tmp/sglang_triton"):
    """The module with extend_attention_fwd; `set_stages(n)` on it forces Triton's pipeline depth."""
    target = Path(workdir) / "extend_attention_sglang.py"
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        target.write_bytes(archive.read(_FILE))

    class Envs:
        def __getattr__(self, _):
            return types.SimpleNamespace(get=lambda: False)

    for package in ("sglang", "sglang.kernels", "sglang.kernels.ops", "sglang.kernels.ops.attention", "sglang.srt"):
        _module(package)
    _module("sglang.kernels.ops.attention.decode_attention", _extract_kv_strides=_strides)
    _module("sglang.kernels.ops.attention.score_mod", unpack_aux_tensors=lambda mod, aux: (None, 0, 0, 0))
    _module("sglang.srt.environ", envs=Envs())
    no = lambda *_: False
    _module("sglang.srt.utils", is_cuda=lambda: True, is_hip=no, is_gfx95_supported=no, is_gfx1250_supported=no)
    sys.path.insert(0, str(target.parent))
    import extend_attention_sglang as module

    kernel = module._fwd_kernel

    class Staged:
        stages = 1

        def __getitem__(self, grid):
            def launch(*args, **kwargs):
                kwargs["num_stages"] = self.stages
                return kernel[grid](*args, **kwargs)

            return launch

    staged = Staged()
    module._fwd_kernel = staged

    def set_stages(n: int) -> None:
        staged.stages = n

    module.set_stages = set_stages
    return module
