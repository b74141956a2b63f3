"""Torch dtypes, and dtypes for which torch has tensors but few kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from core_compiler.ir import DType, dtype

#: Dtype -> the name of torch's.
NAMES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2": "float8_e5m2",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "ui8": "uint8",
    "ui16": "uint16",
    "ui32": "uint32",
    "ui64": "uint64",
    "i1": "bool",
}
F32, I64, UI64 = map(dtype, ("f32", "i64", "ui64"))
#: Dtypes that torch stores and converts -> the dtype in which its kernels compute.  ui64 has none
#: that contains its numbers: its bits are read as i64.
_CARRIERS = {
    "ui16": I64,
    "ui32": I64,
    "ui64": I64,
    **{name: F32 for name in NAMES if name.startswith("f8")},
}


def missing(kind: DType) -> str:
    """Return why torch has no tensors of a dtype, or ""."""
    return "" if kind.name in NAMES else f"torch has no tensors of {kind.name}"


def torch_dtype(kind: DType) -> Any:
    """Return the torch dtype of a dtype that is not :func:`missing`."""
    import torch

    return getattr(torch, NAMES[kind.name])


def carrier(kind: DType) -> DType:
    """Return the dtype in which torch's kernels compute for tensors of ``kind``."""
    return _CARRIERS.get(kind.name, kind)


def to_tensor(array: np.ndarray) -> Any:
    """Return an array as a torch tensor with memory of its own and the same bits."""
    import torch

    kind = dtype(array.dtype)
    is_known = array.dtype.isbuiltin == 1
    bits = array if is_known else array.view(f"i{array.dtype.itemsize}")
    made = torch.from_numpy(np.array(bits, order="C"))
    return made if is_known else made.view(torch_dtype(kind))
