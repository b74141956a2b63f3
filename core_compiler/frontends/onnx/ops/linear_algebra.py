"""Linear algebra of ONNX beyond products."""

from __future__ import annotations

from core_compiler.frontends import factors
from core_compiler.frontends.onnx.table import NotSupported, onnx_op
from core_compiler.ops.composite import as_dtype, widened


@onnx_op("Det")
def det(b, x):
    rows, columns = x.type.shape[-2:]
    if rows != columns:
        raise NotSupported(f"the determinant of {rows} x {columns}")
    packed, _, swaps = b.lu(widened(b, x))
    return as_dtype(b, factors.determinant(b, packed, swaps), x.type.dtype)


@onnx_op("com.microsoft::Inverse")
def inverse(b, x):
    return as_dtype(b, factors.inverse(b, widened(b, x)), x.type.dtype)
