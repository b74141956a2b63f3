"""Elementwise ONNX ops: tables, comparisons, activations."""

from __future__ import annotations

from functools import reduce

import numpy as np

from core_compiler.frontends.onnx.statistics import initializer
from core_compiler.frontends.onnx.table import TABLE, Context, onnx_op
from core_compiler.ir import dtype
from core_compiler.support.onnx_names import ACTIVATIONS, BINARY, MANY, UNARY

F64 = dtype("f64")


def _unary(name: str):
    def handler(b: Context, x):
        if name in ("abs", "sign") and x.type.dtype.kind == "uint":
            return x if name == "abs" else b.min(x, b.scalar_like(1, x))
        return b.op(f"core.{name}", (x,))

    return handler


def _binary(name: str):
    return lambda b, x, y: b.op(f"core.{name}", _paired(b, x, y))


def _paired(b, x, y):
    """Broadcast both operands to their common shape.

    Before opset 7 ``y`` may start at axis ``axis`` of ``x``.
    """
    if b.opset < 7 and b.attr("broadcast", 0):
        axis = b.attr("axis")
        if axis is not None:
            axis = axis + x.type.rank if axis < 0 else axis
            dims = tuple(range(axis, axis + y.type.rank))
            return x, b.broadcast(y, shape=x.type.shape, dims=dims)
    return b.broadcast_together(x, y)


#: Ops that are a single core op on every element.
POINTWISE = frozenset({*UNARY, *BINARY})

for _onnx, _core in UNARY.items():
    TABLE[_onnx] = _unary(_core)
for _onnx, _core in BINARY.items():
    TABLE[_onnx] = _binary(_core)


def _fold(kind: str):
    def handler(b: Context, *xs):
        return reduce(lambda a, c: b.op(f"core.{kind}", b.broadcast_together(a, c)), xs)

    return handler


for _onnx, _core in MANY.items():
    TABLE[_onnx] = _fold(_core)


def _activation(name: str, attributes):
    def handler(b: Context, x):
        given = {ours: type(default)(b.attr(n, default)) for n, ours, default in attributes}
        return b.op(f"core.{name}", (x,), **given)

    return handler


for _onnx, (_core, _attributes) in ACTIVATIONS.items():
    TABLE[_onnx] = _activation(_core, _attributes)
TABLE["com.microsoft::Gelu"] = TABLE["Gelu"]


@onnx_op("Mean")
def mean(b, *xs):
    total = TABLE["Sum"](b, *xs)
    return b.div(total, b.scalar_like(len(xs), total))


@onnx_op("Pow")
def pow_(b, x, y):
    kind = x.type.dtype
    if y.type.dtype.is_float and not kind.is_float:  # the result is truncated
        x, y = (b.to(v, F64) for v in _paired(b, x, y))
        return b.cast(b.pow(x, y), dtype=kind)
    return b.pow(*_paired(b, x, b.to(y, x.type.dtype)))


@onnx_op("Mod")
def mod(b, x, y):
    return b.op("core.rem" if b.attr("fmod", 0) else "core.mod", b.broadcast_together(x, y))


@onnx_op("BitShift")
def bit_shift(b, x, y):
    x, y = b.broadcast_together(x, y)
    if b.attr("direction") == "LEFT":
        return b.shl(x, y)
    return b.shr(x, y)


@onnx_op("Reciprocal")
def reciprocal(b, x):
    return b.div(b.scalar_like(1, x), x)


@onnx_op("Where")
def where(b, condition, x, y):
    return b.select(*b.broadcast_together(condition, x, y))


@onnx_op("IsInf")
def is_inf(b, x):
    negative, positive = b.attr("detect_negative", 1), b.attr("detect_positive", 1)
    found = b.is_inf(x)
    zero = b.scalar_like(0, x)
    if not positive:
        found = b.and_(found, b.lt(x, zero))
    if not negative:
        found = b.and_(found, b.gt(x, zero))
    return found


@onnx_op("Identity")
def identity(b, x):
    """Return the value itself, or in training a copy of a stored tensor.

    Exporters merge tensors of equal values and use this op to name the others; in training, each is
    a separate parameter or statistic.
    """
    stored = initializer(b.importer, x) if b.importer.training and not b.importer.calls else None
    if stored is None:
        return x
    return b.importer.stored(b.node.output[0], stored[1])


@onnx_op("Clip")
def clip(b, x, low=None, high=None):
    if b.opset < 11:
        # The defaults are f32's largest values, so infinities are clipped too.
        most = min(float(np.finfo(k).max) for k in (np.float32, x.type.dtype.numpy))
        low, high = (
            b.constant(b.attr(name, default), x.type.dtype)
            for name, default in (("min", -most), ("max", most))
        )
    if low is not None:
        x = b.max(*b.broadcast_together(x, low))
    if high is not None:
        x = b.min(*b.broadcast_together(x, high))
    return x


@onnx_op("Selu")
def selu(b, x):
    alpha, gamma = (
        float(b.attr(n, d))
        for n, d in (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875))
    )
    bent = b.mul(b.scalar_like(alpha, x), b.expm1(x))
    return b.mul(b.scalar_like(gamma, x), b.select(b.gt(x, b.scalar_like(0, x)), x, bent))


@onnx_op("ThresholdedRelu")
def thresholded_relu(b, x):
    return b.select(b.gt(x, b.scalar_like(b.attr("alpha", 1.0), x)), x, b.scalar_like(0, x))


@onnx_op("PRelu")
def prelu(b, x, slope):
    if b.opset < 7 and slope.type.rank == 1 and x.type.rank > 1:  # one value per channel
        slope = b.reshape(slope, shape=(*slope.type.shape, *(1,) * (x.type.rank - 2)))
    slope = b.expand(slope, x.type.shape)
    return b.select(b.lt(x, b.scalar_like(0, x)), b.mul(slope, x), x)


@onnx_op("Shrink")
def shrink(b, x):
    bias, limit = float(b.attr("bias", 0.0)), float(b.attr("lambd", 0.5))
    kind = x.type.dtype
    x = x if kind.is_float else b.cast(x, dtype=F64)
    middle = b.select(
        b.gt(x, b.scalar_like(limit, x)), b.sub(x, b.scalar_like(bias, x)), b.scalar_like(0, x)
    )
    low = b.lt(x, b.scalar_like(-limit, x))
    return b.to(b.select(low, b.add(x, b.scalar_like(bias, x)), middle), kind)


@onnx_op("SwiGLU")
def swiglu(b, x, gate):
    return b.mul(swish(b, x), gate)


@onnx_op("com.microsoft::QuickGelu")
def quick_gelu(b, x):
    return b.mul(x, b.sigmoid(b.mul(x, b.scalar_like(b.attr("alpha", 1.702), x))))


@onnx_op("com.microsoft::FastGelu")
def fast_gelu(b, x, bias=None):
    return b.gelu(x if bias is None else b.add(x, b.expand(bias, x.type.shape)), approximate="tanh")


@onnx_op("com.microsoft::BiasGelu")
def bias_gelu(b, x, bias):
    return b.gelu(b.add(x, b.expand(bias, x.type.shape)))


@onnx_op("Swish")
def swish(b, x):
    alpha = float(b.attr("alpha", 1.0))
    return b.silu(x) if alpha == 1 else b.mul(x, b.sigmoid(b.mul(x, b.scalar_like(alpha, x))))
