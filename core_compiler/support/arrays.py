"""Conversion of callers' arrays: NumPy's, and torch tensors without importing torch."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

#: Torch dtypes that NumPy lacks -> integers of the same width, and ml_dtypes'.
_NARROW = {
    "bfloat16": ("int16", ml_dtypes.bfloat16),
    "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": ("uint8", ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
    "float8_e5m2fnuz": ("uint8", ml_dtypes.float8_e5m2fnuz),
}


def as_numpy(given: Any) -> np.ndarray:
    """Return an array with the same bits, sharing memory if possible.

    A torch tensor may be on a device, part of a graph, and of any dtype.
    """
    if not _is_tensor(given):
        return np.asarray(given)
    if (made := dense_tensor(given)) is not None:
        return made
    tensor = given.detach().cpu().resolve_neg()
    if tensor.dtype.is_complex:
        return tensor.resolve_conj().numpy()
    return _memory(tensor.contiguous())


def dense_tensor(given: Any) -> np.ndarray | None:
    """Return a torch tensor's own memory if it is a row-major array of the CPU's, else None.

    It asks little: a call of a small program takes 5 us.
    """
    torch: Any = sys.modules.get("torch")
    if type(given) is not getattr(torch, "Tensor", None) or given.requires_grad:
        return None
    if not given.is_cpu or given.layout is not torch.strided or not given.is_contiguous():
        return None
    if given.is_neg() or given.is_complex():
        return None
    try:
        return _memory(given)
    except TypeError:  # a dtype that neither NumPy nor ml_dtypes has, or quantised numbers
        return None


def _memory(tensor: Any) -> np.ndarray:
    if (narrow := _narrow(tensor.dtype)) is None:
        return tensor.numpy(force=True)  # a tensor of zeros may have no memory
    bits, kind = narrow
    return tensor.view(bits).numpy().view(kind)


def _is_tensor(given: Any) -> bool:
    """Return whether ``given`` is a torch tensor; if torch is not imported, nothing is."""
    return isinstance(given, getattr(sys.modules.get("torch"), "Tensor", ()))


@functools.cache
def _narrow(kind: Any) -> tuple[Any, type] | None:
    """Return torch's integer dtype and ml_dtypes' for a torch dtype that NumPy lacks, else None."""
    import torch

    bits, made = _NARROW.get(str(kind).removeprefix("torch."), ("", None))
    return None if made is None else (getattr(torch, bits), made)


def widened(array: np.ndarray) -> np.ndarray:
    """Return ``array`` in f64 if it holds floats (of any size), else itself."""
    kind = array.dtype
    is_float = kind.kind == "f" or (kind.kind == "V" and "float" in kind.name)
    if kind == np.float64 or not is_float:
        return array
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return array.astype(np.float64)


def _address_by_layout(array: np.ndarray) -> int:
    return ctypes.c_void_p.from_address(id(array) + _DATA).value or 0


def _address_by_numpy(array: np.ndarray) -> int:
    return array.ctypes.data


#: Where CPython's array objects have the address of their data, after the object's header.
_DATA = object.__basicsize__
_PROBE = np.zeros(4, np.uint8)[1:]
#: Return the address of an array's data. NumPy's own way takes 0.8 us, of a call that takes 5; the
#: place in the object is part of NumPy's binary interface, and is looked up here once.
data_address = (
    _address_by_layout
    if _address_by_layout(_PROBE) == _address_by_numpy(_PROBE)
    and _address_by_layout(_PROBE[1:]) == _address_by_numpy(_PROBE[1:])
    else _address_by_numpy
)


def strided(flat: np.ndarray, shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Return a view of ``flat`` with this shape; ``strides`` are counted in elements.

    It supports any dtype (NumPy's own function rejects arrays of float8_e5m2).
    """
    item = flat.itemsize
    plain = flat.view(f"u{item}") if item in (1, 2, 4, 8) else flat
    view = np.lib.stride_tricks.as_strided(
        plain, tuple(shape), [s * item for s in strides], writeable=flat.flags.writeable
    )
    return view.view(flat.dtype)


def numbers(given: Any) -> np.ndarray:
    """Return :func:`as_numpy` of a caller's object; ValueError says why it is no numeric array."""
    try:
        made = as_numpy(given)
    except Exception as error:  # sparse, without data, of several shapes
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"not an array ({message[:160]})") from None
    if made.dtype.kind in "OUSMm":
        raise ValueError(f"expected numbers, got dtype {made.dtype}")
    return made


def write_back(given: Any, array: np.ndarray) -> None:
    """Write an array into a caller's torch tensor or writable array.

    Other objects (a list, a JAX array) cannot have been changed.
    """
    if _is_tensor(given):
        given.detach().copy_(to_torch(array))
    elif isinstance(given, np.ndarray) and given.flags.writeable:
        given[...] = array


def to_torch(array: np.ndarray) -> Any:
    """Return an array as a torch tensor with the same bits, sharing memory if possible."""
    import torch

    for name, (bits, kind) in _NARROW.items():
        if array.dtype == kind:
            return torch.from_numpy(array.view(bits)).view(getattr(torch, name))
    return torch.from_numpy(array)
