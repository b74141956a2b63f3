"""Conversion of torch dtypes and tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core_compiler.ir import DType, dtype
from core_compiler.ir.weights import array_digest
from core_compiler.support.arrays import as_numpy
from core_compiler.support.errors import UserError

_NAMES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e4m3fnuz": "f8E4M3FNUZ",
    "float8_e5m2": "f8E5M2",
    "float8_e5m2fnuz": "f8E5M2FNUZ",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "ui8",
    "uint16": "ui16",
    "uint32": "ui32",
    "uint64": "ui64",
    "bool": "i1",
}

#: The dtype of the two parts of a complex dtype.
_PARTS = {"complex32": "f16", "complex64": "f32", "complex128": "f64"}


def dtype_of(torch_dtype) -> DType:
    """Return the dtype of a torch dtype; raise KeyError if unsupported (complex, quantised)."""
    return dtype(_NAMES[str(torch_dtype).removeprefix("torch.")])


def element_of(torch_dtype) -> DType:
    """Return the dtype of a torch dtype, for a complex one that of its parts; KeyError as above."""
    name = str(torch_dtype).removeprefix("torch.")
    return dtype(_PARTS[name]) if name in _PARTS else dtype_of(torch_dtype)


def memory_key(held) -> tuple:
    """Return a key that is equal for all names of one tensor, also in a program that was loaded."""
    try:
        if held.numel():
            return held.data_ptr(), tuple(held.shape), held.stride(), held.dtype
    except (RuntimeError, NotImplementedError):  # sparse and quantised: no memory of its own
        pass
    return (id(held),)


def to_numpy(held) -> np.ndarray:
    """Return a torch tensor as a NumPy array with the same bits; KeyError as above."""
    dtype_of(held.dtype)
    return as_numpy(held)


def borrow_memory(name: str, held) -> tuple[np.ndarray, Callable[[str], None] | None]:
    """Return the bits of a torch tensor, read-only in its own memory, and a check.

    The check raises UserError once the bits no longer have a given digest; there is none if they
    had to be copied or may not be shared.  Torch counts the in-place changes of every tensor, but
    not those through ``.data`` or NumPy, and none of inference tensors.
    """
    array = to_numpy(held)
    if held.is_inference() or held.data_ptr() != array.ctypes.data:
        return array, None
    held = held.detach()  # keeps this memory if the parameter is assigned another
    version = held._version
    array = array.view()
    array.flags.writeable = False

    def check(digest: str) -> None:
        nonlocal version
        current = held._version
        if current == version:
            return
        if array_digest(array) != digest:  # the same values may have been written again
            raise UserError(
                f"{name} was changed in place after the model was imported; its memory is shared, "
                "not copied",
                name,
                "compile the model again, or compile a copy (copy.deepcopy) if its training "
                "continues",
            )
        version = current

    return array, check
