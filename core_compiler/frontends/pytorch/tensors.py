"""Torch dtypes and tensors as ours."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core_compiler.ir import DType, dtype
from core_compiler.ir.weights import array_digest
from core_compiler.support.arrays import as_numpy
from core_compiler.support.errors import UserError

_NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "float8_e4m3fn": "f8E4M3FN", "float8_e4m3fnuz": "f8E4M3FNUZ", "float8_e5m2": "f8E5M2",
    "float8_e5m2fnuz": "f8E5M2FNUZ", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "ui8", "uint16": "ui16", "uint32": "ui32", "uint64": "ui64", "bool": "i1",
}  # fmt: skip

#: Of complex dtypes the dtype of the two parts.
_PARTS = {"complex32": "f16", "complex64": "f32", "complex128": "f64"}


def dtype_of(torch_dtype) -> DType:
    """Our dtype of a torch dtype; KeyError where there is none (complex, quantised)."""
    return dtype(_NAMES[str(torch_dtype).removeprefix("torch.")])


def element_of(torch_dtype) -> DType:
    """Our dtype of a torch dtype, of a complex one that of its parts; KeyError as above."""
    name = str(torch_dtype).removeprefix("torch.")
    return dtype(_PARTS[name]) if name in _PARTS else dtype_of(torch_dtype)


def memory_of(held) -> tuple:
    """What two names of one tensor have in common, also in a program that was saved and loaded."""
    try:
        if held.numel():
            return held.data_ptr(), tuple(held.shape), held.stride(), held.dtype
    except (RuntimeError, NotImplementedError):  # it has no memory of its own: sparse, quantised
        pass
    return (id(held),)


def to_numpy(held) -> np.ndarray:
    """A torch tensor as a NumPy array with the same bits; KeyError as above."""
    dtype_of(held.dtype)
    return as_numpy(held)


def lent(name: str, held) -> tuple[np.ndarray, Callable[[str], None] | None]:
    """The bits of a torch tensor, read-only in its own memory, and a check that raises UserError
    once they are not those of a digest any more; without a check where they had to be copied or may
    not be shared.

    Torch counts the changes in place of every tensor; those made through ``.data`` or NumPy escape
    it, and of inference tensors it counts none.
    """
    array = to_numpy(held)
    if held.is_inference() or held.data_ptr() != array.ctypes.data:
        return array, None
    held = held.detach()  # stays with this memory when the parameter is given another
    version = held._version
    array = array.view()
    array.flags.writeable = False

    def check(digest: str) -> None:
        nonlocal version
        now = held._version
        if now == version:
            return
        if array_digest(array) != digest:  # the same may have been written again
            raise UserError(
                f"{name} was changed in place after the model was imported; its memory is shared, "
                "not copied",
                name,
                "compile the model again, or compile a copy (copy.deepcopy) if its training "
                "continues",
            )
        version = now

    return array, check
