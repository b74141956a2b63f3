"""Linear algebra of ONNX beyond products."""

from __future__ import annotations

from core_compiler.frontends import factors
from core_compiler.frontends.onnx.table import NotSupported, onnx_op


@onnx_op("Det")
def det(b, x):
    rows, columns = x.type.shape[-2:]
    if rows != columns:
        raise NotSupported(f"the determinant of {rows} x {columns}")
    packed, _, swaps = b.lu(x)
    return factors.determinant(b, packed, swaps)


@onnx_op("com.microsoft::Inverse")
def inverse(b, x):
    return factors.inverse(b, x)
