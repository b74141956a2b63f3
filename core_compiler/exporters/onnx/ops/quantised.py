"""QuantizeLinear and DequantizeLinear: the borders of a quantised model that runtimes seek."""

from __future__ import annotations

import numpy as np

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.ops.conversion import limits
from core_compiler.exporters.onnx.table import F32, I32, Emitter, core
from core_compiler.ir import DType
from core_compiler.ops import typed

#: The opset whose QuantizeLinear has integers of other sizes than 8 bits.
OTHER_SIZES = 21


def _has(g: Emitter, kind: DType) -> bool:
    return kind.is_integer and (kind.bits == 8 or (kind.bits < 32 and g.opset >= OTHER_SIZES))


def _quantizes(g: Emitter, op: typed.Quantize) -> bool:
    """Return whether the op divides an f32 by its scale, as QuantizeLinear does."""
    narrow = op.dtype.bits < 8 and (op.low, op.high) != (None, None)  # Clip has no such integers
    is_f32 = op.x.type.dtype is F32 and op.scale.type.dtype is F32
    return is_f32 and _has(g, op.dtype) and not op.reciprocal and not narrow


@core("quantize", when=_quantizes)
def quantize(g, op: typed.Quantize, x, scale, zero=None):
    if zero is None:
        zero = g.constant(np.zeros(op.scale.type.shape, op.dtype.numpy))
    made = g.emit("QuantizeLinear", x, scale, zero, axis=op.axis)
    least, most = limits(op.dtype)
    low = least if op.low is None else op.low
    high = most if op.high is None else op.high
    if (low, high) == (least, most):
        return made
    return g.emit("Clip", made, g.scalar(low, op.dtype), g.scalar(high, op.dtype))


def _dequantizes(g: Emitter, op: typed.Dequantize) -> bool:
    kind, is_f32 = op.q.type.dtype, op.scale.type.dtype is F32
    return is_f32 and (_has(g, kind) or (kind is I32 and op.zero_point is None))


@core("dequantize", when=_dequantizes)
def dequantize(g, op: typed.Dequantize, q, scale, zero=None):
    made = Tensor(F32)  # which the scale's dtype says: the signature leaves it open
    inputs = (q, scale) if zero is None else (q, scale, zero)
    g.node("DequantizeLinear", inputs, (made,), axis=op.axis)
    return made
