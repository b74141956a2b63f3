"""Functions of floats, comparisons and selects: one node each, or a formula.

Formulas preserve infinities, NaN and the accuracy near 0 that the op guarantees; they run in f32 at
least.
"""

from __future__ import annotations

import math

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.table import Emitter, core, in_f32
from core_compiler.support.onnx_names import BINARY, UNARY

#: Core ops that a name is not enough for, here or in the files of their families.
_FORMS = frozenset(
    {
        "and", "bitnot", "div", "hard_swish", "mish", "or", "relu", "sign", "softplus", "softsign",
        "xor",
    }
)  # fmt: skip


def _enter_unary(name: str, kind: str) -> None:
    core(name)(lambda g, op, x: g.emit(kind, x))


def _enter_binary(name: str, kind: str) -> None:
    core(name)(lambda g, op, a, b: g.emit(kind, a, b))


for _kind, _name in {**UNARY, "IsInf": "is_inf"}.items():
    if _name not in _FORMS:
        _enter_unary(_name, _kind)
for _kind, _name in {**BINARY, "Max": "max", "Min": "min"}.items():
    if _name not in _FORMS:
        _enter_binary(_name, _kind)


@core("ne")
def ne(g, op, a, b):
    return g.emit("Not", g.emit("Equal", a, b))


@core("is_finite")
def is_finite(g, op, x):
    return g.emit("Less", g.emit("Abs", x), g.scalar(math.inf, x.dtype))


@core("select")
def select(g, op, p, a, b):
    return g.where(p, a, b)


@core("sign")
def sign(g, op, x):
    """Restore NaN, whose sign ONNX does not specify."""
    made = g.emit("Sign", x)
    if not g.guards or not x.dtype.is_float:
        return made
    return g.where(g.is_nan(x), x, made)


# -- functions that ONNX does not have -------------------------------------------------------------


@core("exp2")
@in_f32
def exp2(g, op, x):
    return g.emit("Pow", g.scalar(2, x.dtype), x)


@core("log2")
@in_f32
def log2(g, op, x):
    return g.emit("Div", g.emit("Log", x), g.scalar(math.log(2), x.dtype))


@core("log10")
@in_f32
def log10(g, op, x):
    return g.emit("Div", g.emit("Log", x), g.scalar(math.log(10), x.dtype))


@core("rsqrt")
@in_f32
def rsqrt(g, op, x):
    return g.emit("Reciprocal", g.emit("Sqrt", x))


@core("trunc")
@in_f32
def trunc(g, op, x):
    negative = g.emit("Less", x, g.scalar(0, x.dtype))
    return g.where(negative, g.emit("Ceil", x), g.emit("Floor", x))


@core("cbrt")
@in_f32
def cbrt(g, op, x):
    root = g.emit("Pow", g.emit("Abs", x), g.scalar(1 / 3, x.dtype))
    return g.where(g.emit("Less", x, g.scalar(0, x.dtype)), g.emit("Neg", root), root)


@core("expm1")
@in_f32
def expm1(g, op, x):
    """Compute ``tanh(x / 2) * (exp(x) + 1)``: the same value without cancellation near 0."""
    half = g.emit("Mul", x, g.scalar(0.5, x.dtype))
    return g.emit(
        "Mul", g.emit("Tanh", half), g.emit("Add", g.emit("Exp", x), g.scalar(1, x.dtype))
    )


@core("log1p")
@in_f32
def log1p(g, op, x):
    """Compute ``log(u) * (x / (u - 1))`` with u = 1 + x rounded.

    Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991,
    theorem 4.
    """
    one = g.scalar(1, x.dtype)
    u = g.emit("Add", x, one)
    d = g.emit("Sub", u, one)
    curve = g.emit("Mul", g.emit("Log", u), g.emit("Div", x, d))
    curve = g.where(g.emit("Equal", u, g.scalar(math.inf, x.dtype)), u, curve)
    return g.where(g.emit("Equal", d, g.scalar(0, x.dtype)), x, curve)


@core("erfc")
@in_f32
def erfc(g, op, x):
    """Compute 1 - Erf(x), with Erf's absolute accuracy: ONNX has no op for its tail."""
    return g.emit("Sub", g.scalar(1, x.dtype), g.emit("Erf", x))


@core("atan2")
@in_f32
def atan2(g, op, y, x):
    """Compute the angle in the first quadrant and mirror it by the signs, also those of zeros."""
    zero = g.scalar(0, x.dtype)
    far, near = g.emit("Abs", y), g.emit("Abs", x)
    angle = g.emit("Atan", g.emit("Div", far, near))
    # 0 / 0 is on an axis, infinity / infinity halfway between two.
    tie = g.where(g.emit("Equal", far, zero), zero, g.scalar(math.pi / 4, x.dtype))
    angle = g.where(g.emit("Equal", far, near), tie, angle)
    mirrored = g.emit("Sub", g.scalar(math.pi, x.dtype), angle)
    angle = g.where(is_negative(g, x), mirrored, angle)
    return g.where(is_negative(g, y), g.emit("Neg", angle), angle)


def is_negative(g: Emitter, x: Tensor) -> Tensor:
    """Return whether the sign bit of a float is set, also for zeros."""
    zero = g.scalar(0, x.dtype)
    below = g.emit("Less", x, zero)
    return g.emit("Or", below, g.emit("Less", g.emit("Reciprocal", x), zero))
