"""torch, numpy, cupy and jax arrays at the edge of the library, without copies and without importing any of them needlessly.

An array crosses into C++ either as a torch tensor (read by its attributes there) or as the tuple that `view` makes:
(address, dtype name, shape, strides in elements, device kind, device index).
"""

from __future__ import annotations

import sys
from typing import Any


def framework_of(array: Any) -> str:
    """'torch', 'numpy', 'cupy' or 'jax'; a TypeError for anything else."""
    root = type(array).__module__.partition(".")[0]
    if root in ("numpy", "cupy", "torch"):
        return root
    if root in ("jax", "jaxlib"):
        return "jax"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return "numpy"
    raise TypeError(f"hyla takes torch, numpy, cupy or jax arrays, got {type(array).__module__}.{type(array).__qualname__}")


def _from_interface(interface: dict, dtype: str, itemsize: int, device: tuple[str, int]):
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        steps, step = [], 1
        for extent in reversed(shape):
            steps.append(step)
            step *= max(extent, 1)
        strides = tuple(reversed(steps))
    else:
        if any(s % itemsize for s in strides):
            raise ValueError(f"strides must be multiples of the element size of {itemsize} bytes, got {strides}")
        strides = tuple(s // itemsize for s in strides)
    return (interface["data"][0], dtype, shape, strides, *device)


def view(array: Any):
    """What the extension module takes for `array` (None stays None). The caller keeps `array` alive during the call."""
    if array is None:
        return None
    kind = framework_of(array)
    if kind == "torch":
        return array
    if kind == "jax":
        if next(iter(array.devices())).platform != "cpu":
            return (array.unsafe_buffer_pointer(), str(array.dtype), array.shape, _row_major(array.shape), "cuda",
                    next(iter(array.devices())).local_hardware_id)
        import numpy

        array = numpy.asarray(array)  # a view of the jax buffer on CPU
    if kind == "cupy":
        return _from_interface(array.__cuda_array_interface__, array.dtype.name, array.dtype.itemsize, ("cuda", array.device.id))
    return _from_interface(array.__array_interface__, array.dtype.name, array.dtype.itemsize, ("cpu", 0))


def _row_major(shape):
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def dtype_name(array: Any) -> str:
    """'bfloat16', 'float32', ... of any framework's array."""
    name = str(array.dtype)
    return name[6:] if name.startswith("torch.") else name


def empty(like: Any, shape: tuple[int, ...], dtype: str):
    """An uninitialised array of `like`'s framework and device. jax arrays are immutable: a numpy array stands in until `finish`."""
    kind = framework_of(like)
    if kind == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
    if kind == "cupy":
        import cupy

        with like.device:
            return cupy.empty(shape, dtype=dtype)
    if kind == "jax" and next(iter(like.devices())).platform != "cpu":
        raise TypeError("jax arrays on a GPU are immutable: pass them to hyla through torch or cupy (DLPack), with their own outputs")
    import numpy

    if dtype.startswith(("bfloat16", "float8")):
        import ml_dtypes

        return numpy.empty(shape, dtype=getattr(ml_dtypes, dtype))
    return numpy.empty(shape, dtype=dtype)


def finish(like: Any, array: Any):
    """Hands an output to the framework of `like`: the same object, except for jax."""
    if array is not None and framework_of(like) == "jax":
        import jax

        return jax.numpy.asarray(array)
    return array


_workspaces: dict[tuple, Any] = {}


def device_and_stream(like: Any) -> tuple[str, int, int]:
    """Device kind, device index and the framework's current stream (0 on the CPU)."""
    kind = framework_of(like)
    if kind == "torch":
        if not like.is_cuda:
            return ("cpu", 0, 0)
        import torch

        index = like.get_device()
        return ("cuda", index, torch._C._cuda_getCurrentRawStream(index))
    if kind == "cupy":
        import cupy

        return ("cuda", like.device.id, cupy.cuda.get_current_stream().ptr)
    return ("cpu", 0, 0)


def workspace(like: Any, nbytes: int, place: tuple[str, int, int]):
    """A cached workspace of at least `nbytes` for this framework, device and stream. It only grows; hyla.clear_workspaces() frees it.

    Under CUDA graph capture in torch the buffer comes from the graph's own pool and is not cached, so that a captured graph never
    shares scratch memory with later eager calls.
    """
    if nbytes == 0:
        return None
    kind = framework_of(like)
    if kind == "torch" and place[0] == "cuda":
        import torch

        if torch.cuda.is_current_stream_capturing():
            return empty(like, (nbytes + 256,), "uint8")
    key = (kind, *place)
    buffer = _workspaces.get(key)
    if buffer is None or buffer.shape[0] < nbytes + 256:
        buffer = _workspaces[key] = empty(like, (nbytes + 256,), "uint8")
    return buffer


def aligned(buffer: Any) -> tuple[int, int]:
    """Address (rounded up to 256) and remaining bytes of a workspace buffer."""
    if buffer is None:
        return (0, 0)
    if hasattr(buffer, "data_ptr"):
        address, size = buffer.data_ptr(), buffer.numel() * buffer.element_size()
    else:
        described = view(buffer)
        address, size = described[0], buffer.nbytes
    start = (address + 255) // 256 * 256
    return (start, max(0, size - (start - address)))


def clear_workspaces() -> None:
    """Frees every cached workspace."""
    _workspaces.clear()

