"""Arrays of callers: NumPy's, and tensors of torch, which is not imported for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

#: Dtypes of torch that NumPy has none of its own for -> integers of as many bits, and ml_dtypes'.
_NARROW = {
    "bfloat16": ("int16", ml_dtypes.bfloat16),
    "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": ("uint8", ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
    "float8_e5m2fnuz": ("uint8", ml_dtypes.float8_e5m2fnuz),
}


def as_numpy(given: Any) -> np.ndarray:
    """An array with the same bits, in the same memory where that may be; a tensor of torch may be
    on a device, part of a graph, and of any dtype."""
    if not any((b.__module__, b.__name__) == ("torch", "Tensor") for b in type(given).__mro__):
        return np.asarray(given)
    held = given.detach().cpu().resolve_neg()
    if held.dtype.is_complex:
        return held.resolve_conj().numpy()
    held = held.contiguous()
    name = str(held.dtype).removeprefix("torch.")
    if name in _NARROW:
        import torch

        bits, kind = _NARROW[name]
        return held.view(getattr(torch, bits)).numpy().view(kind)
    return held.numpy(force=True)  # a tensor of zeros may have no memory


def widened(array: np.ndarray) -> np.ndarray:
    """``array`` in f64 where it holds floats (of any size), else itself."""
    kind = array.dtype
    is_float = kind.kind == "f" or (kind.kind == "V" and "float" in kind.name)
    if kind == np.float64 or not is_float:
        return array
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return array.astype(np.float64)


def strided(flat: np.ndarray, shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """A view of ``flat`` with this shape, ``strides`` counted in elements; of any dtype (NumPy's
    own function takes no array of float8_e5m2)."""
    item = flat.itemsize
    plain = flat.view(f"u{item}") if item in (1, 2, 4, 8) else flat
    view = np.lib.stride_tricks.as_strided(plain, tuple(shape), [s * item for s in strides],
                                           writeable=flat.flags.writeable)  # fmt: skip
    return view.view(flat.dtype)


def numbers(given: Any) -> np.ndarray:
    """:func:`as_numpy` of what somebody gives; ValueError says why it is no array of numbers."""
    try:
        made = as_numpy(given)
    except Exception as error:  # sparse, without data, of several shapes
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"not an array ({said[:160]})") from None
    if made.dtype.kind in "OUSMm":
        raise ValueError(f"expected numbers, got dtype {made.dtype}")
    return made


def write_back(given: Any, array: np.ndarray) -> None:
    """Write an array into what a caller gave, a tensor of torch or an array that may be written;
    others (a list, an array of JAX) nobody can have changed."""
    if any((b.__module__, b.__name__) == ("torch", "Tensor") for b in type(given).__mro__):
        given.detach().copy_(to_torch(array))
    elif isinstance(given, np.ndarray) and given.flags.writeable:
        given[...] = array


def to_torch(held: np.ndarray) -> Any:
    """An array as a tensor of torch with the same bits; it shares memory where it may."""
    import torch

    for name, (bits, kind) in _NARROW.items():
        if held.dtype == kind:
            return torch.from_numpy(held.view(bits)).view(getattr(torch, name))
    return torch.from_numpy(held)
