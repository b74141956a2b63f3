"""Elementwise ATen ops: unary and binary tables, comparisons, activations, casts."""

from __future__ import annotations

import math

import numpy as np

from core_compiler.frontends.pytorch.aten.table import (
    BOOL,
    TABLE,
    Context,
    NotSupported,
    aten,
    wide,
)
from core_compiler.frontends.pytorch.tensors import dtype_of
from core_compiler.ir import Value, dtype

#: ATen name -> core op; integer operands are promoted to the result's dtype, as in torch.
_UNARY = {
    "abs": "abs", "neg": "neg", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log",
    "log2": "log2", "log10": "log10", "log1p": "log1p", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh", "erf": "erf", "erfc": "erfc", "sigmoid": "sigmoid", "floor": "floor",
    "ceil": "ceil", "round": "round", "trunc": "trunc", "fix": "trunc",
    "special_erf": "erf", "special_expm1": "expm1", "special_log1p": "log1p",
    "special_exp2": "exp2", "special_expit": "sigmoid", "special_erfc": "erfc",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "absolute": "abs", "negative": "neg", "_neg_view": "neg",
}  # fmt: skip
_KEEPS_INTEGERS = frozenset(("abs", "neg", "floor", "ceil", "round", "trunc"))

_BINARY = {
    "mul": "mul", "multiply": "mul", "maximum": "max", "minimum": "min",
    "max.other": "max", "min.other": "min", "pow": "pow",
    "fmod": "rem", "remainder": "mod", "atan2": "atan2", "arctan2": "atan2",
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "bitwise_left_shift": "shl",
    "bitwise_right_shift": "shr", "__and__": "and", "__or__": "or", "__xor__": "xor",
    "__lshift__": "shl", "__rshift__": "shr",
}  # fmt: skip

_COMPARE = {
    "eq": "eq",
    "ne": "ne",
    "not_equal": "ne",
    "lt": "lt",
    "less": "lt",
    "le": "le",
    "less_equal": "le",
    "gt": "gt",
    "greater": "gt",
    "ge": "ge",
    "greater_equal": "ge",
}


def _unary(name: str, keeps: bool):
    def handler(b: Context, x: Value):
        if keeps and not x.type.dtype.is_float:
            if name in ("floor", "ceil", "round", "trunc"):
                return x
            if name == "abs" and x.type.dtype.kind in ("uint", "bool"):
                return x
            if x.type.dtype is BOOL:
                return x
            if name == "neg" and x.type.dtype.kind == "uint":
                return b.sub(b.scalar_like(0, x), x)
        return b.op(f"core.{name}", (b.to(x, b.dtype),))

    return handler


#: The logical forms of these ops on booleans.
_ON_BOOL = {"mul": "and", "max": "or", "min": "and"}


def _binary(name: str):
    def handler(b: Context, x, y):
        kind = _ON_BOOL.get(name, name) if b.dtype is BOOL else name
        return b.op(f"core.{kind}", b.pair(x, y, b.dtype))

    return handler


def _compare(name: str):
    def handler(b: Context, x, y):
        return b.op(f"core.{name}", b.pair(x, y, b.common(x, y)))

    return handler


for _aten, _core in _UNARY.items():
    TABLE[_aten] = _unary(_core, _core in _KEEPS_INTEGERS)
for _aten, _core in _BINARY.items():
    TABLE[_aten] = _binary(_core)
for _aten, _core in _COMPARE.items():
    TABLE[_aten] = _compare(_core)


def _scaled(b: Context, y, alpha):
    """Return ``y * alpha`` in the result's dtype, or ``y`` if alpha is 1."""
    y = b.value(y, b.dtype)
    return y if alpha == 1 else b.mul(*b.pair(y, alpha, b.dtype))


@aten("add")
def add(b, x, y, alpha=1):
    if b.dtype is BOOL:
        return b.or_(*b.pair(x, y, BOOL))
    return b.add(*b.pair(x, _scaled(b, y, alpha), b.dtype))


@aten("sub", "subtract")
def sub(b, x, y, alpha=1):
    return b.sub(*b.pair(x, _scaled(b, y, alpha), b.dtype))


@aten("rsub")
def rsub(b, x, y, alpha=1):
    return b.sub(*b.pair(y, _scaled(b, x, alpha), b.dtype))


@aten("div", "divide", "true_divide", "div.Tensor_mode", "div.Scalar_mode")
def div(b, x, y, rounding_mode=None):
    if rounding_mode is None or (rounding_mode == "trunc" and b.dtype.is_float):
        quotient = b.div(*b.pair(x, y, b.dtype))
        return quotient if rounding_mode is None else b.trunc(quotient)
    if b.dtype.is_float:
        return _floor_of_quotient(b, *b.pair(x, y, b.dtype))
    x, y = b.pair(x, y, b.dtype)
    quotient = b.div(x, y)
    if rounding_mode == "trunc" or b.dtype.kind == "uint":
        return quotient
    return _floor_of_truncated(b, x, y, quotient)


@aten("floor_divide")
def floor_divide(b, x, y):
    return div(b, x, y, "floor")


def _floor_of_quotient(b, x, y):
    """Compute floor(x / y) of floats as torch does (``c10::div_floor_floating``, Python's ``//``).

    It is the floor of the exact quotient, computed from the remainder; narrow floats in f32.
    """
    kind = x.type.dtype
    x, y = wide(b, x), wide(b, y)
    zero, one = b.scalar_like(0, x), b.scalar_like(1, x)
    rest = b.rem(x, y)
    quotient = b.div(b.sub(x, rest), y)
    differ = b.xor(b.lt(y, zero), b.lt(rest, zero))
    quotient = b.select(b.and_(b.ne(rest, zero), differ), b.sub(quotient, one), quotient)
    floor = b.floor(quotient)
    far = b.gt(b.sub(quotient, floor), b.scalar_like(0.5, x))
    floor = b.select(far, b.add(floor, one), floor)
    plain = b.div(x, y)
    bits = b.bitcast(plain, dtype=f"i{plain.type.dtype.bits}")
    nothing = b.select(b.lt(bits, b.scalar_like(0, bits)), b.neg(zero), zero)
    floor = b.select(b.ne(quotient, zero), floor, nothing)
    return b.to(b.select(b.eq(y, zero), plain, floor), kind)


def _floor_of_truncated(b, x, y, quotient):
    """Compute floor(x / y) of integers from the truncated quotient.

    It is one less if the signs differ and the remainder is not 0.
    """
    zero = b.scalar_like(0, x)
    rest = b.ne(b.rem(x, y), zero)
    differ = b.xor(b.lt(x, zero), b.lt(y, zero))
    return b.select(b.and_(rest, differ), b.sub(quotient, b.scalar_like(1, x)), quotient)


@aten("sign", "sgn")
def sign(b, x):
    """Compute ``(x > 0) - (x < 0)``: 0 for NaN, and +0 for both zeros."""
    if not x.type.dtype.is_float:
        unsigned = x.type.dtype is BOOL or x.type.dtype.kind == "uint"
        return b.to(_as_bool(b, x), x.type.dtype) if unsigned else b.sign(x)
    zero = b.scalar_like(0, x)
    return b.select(b.gt(b.abs(x), zero), b.sign(x), zero)


@aten("reciprocal")
def reciprocal(b, x):
    x = b.to(x, b.dtype)
    return b.div(b.scalar_like(1, x), x)


@aten("outer", "ger")
def outer(b, x, y):
    rows = b.broadcast(b.to(x, b.dtype), shape=b.shape, dims=(0,))
    columns = b.broadcast(b.to(y, b.dtype), shape=b.shape, dims=(1,))
    return _binary("mul")(b, rows, columns)


@aten("square")
def square(b, x):
    x = b.to(x, b.dtype)
    return b.mul(x, x)


@aten("pow.Tensor_Scalar")
def pow_scalar(b, x, exponent):
    x = b.to(x, b.dtype)
    if exponent == 1:
        return x
    if exponent == 2:
        return b.mul(x, x)
    if exponent == 0.5:
        return b.sqrt(x)
    if exponent == -0.5:  # torch's too: -infinity for -0
        return b.rsqrt(x)
    return b.pow(x, b.scalar_like(exponent, x))


@aten("logical_not")
def logical_not(b, x):
    return b.not_(_as_bool(b, x))


def _as_bool(b, x):
    return x if x.type.dtype is BOOL else b.ne(x, b.scalar_like(0, x))


@aten("bitwise_not")
def bitwise_not(b, x):
    return b.not_(x) if x.type.dtype is BOOL else b.bitnot(x)


def _logical(name):
    def handler(b, x, y):
        return b.op(f"core.{name}", b.broadcast_together(_as_bool(b, x), _as_bool(b, y)))

    return handler


for _name in ("and", "or", "xor"):
    TABLE[f"logical_{_name}"] = _logical(_name)


@aten("isnan")
def isnan(b, x):
    return b.is_nan(x) if x.type.dtype.is_float else b.expand(b.constant(False, "i1"), x.type.shape)


@aten("isinf")
def isinf(b, x):
    return b.is_inf(x) if x.type.dtype.is_float else b.expand(b.constant(False, "i1"), x.type.shape)


@aten("isfinite")
def isfinite(b, x):
    return (
        b.is_finite(x) if x.type.dtype.is_float else b.expand(b.constant(True, "i1"), x.type.shape)
    )


@aten("where")
def where(b, condition, x, y):
    x, y = b.value(x, b.dtype), b.value(y, b.dtype)
    return b.select(*b.broadcast_together(condition, x, y))


@aten("masked_fill")
def masked_fill(b, x, mask, value):
    mask, x, value = b.broadcast_together(mask, x, b.value(value, x.type.dtype))
    return b.select(mask, value, x)


@aten("clamp", "clip")
def clamp(b, x, low=None, high=None):
    x = b.to(x, b.dtype)
    if b.dtype.is_float and not isinstance(low, Value) and not isinstance(high, Value):
        bounds = {k: float(v) for k, v in (("low", low), ("high", high)) if v is not None}
        return b.clamp(x, **bounds)
    upper, lower = ("or", "and") if b.dtype is BOOL else ("max", "min")
    if b.symbols.training and b.dtype.is_float:
        return _clamp_to(b, x, low, high)
    if low is not None:
        x = b.op(f"core.{upper}", b.pair(x, low, b.dtype))
    if high is not None:
        x = b.op(f"core.{lower}", b.pair(x, high, b.dtype))
    return x


def _clamp_to(b, x, low, high):
    """Clamp with torch's gradient: on a bound, x receives all of it."""
    for bound, beyond in ((low, b.lt), (high, b.gt)):
        if bound is not None:
            x, bound = b.pair(x, bound, b.dtype)
            x = b.select(b.is_nan(bound), bound, b.select(beyond(x, bound), bound, x))
    return x


@aten("clamp_min")
def clamp_min(b, x, low):
    return clamp(b, x, low)


@aten("clamp_max")
def clamp_max(b, x, high):
    return clamp(b, x, None, high)


@aten("relu")
def relu(b, x):
    return b.relu(x) if x.type.dtype.is_float else b.max(x, b.scalar_like(0, x))


@aten("relu6")
def relu6(b, x):
    return hardtanh(b, x, 0.0, 6.0)


@aten("hardtanh")
def hardtanh(b, x, low=-1.0, high=1.0):
    if b.symbols.training and b.dtype.is_float:
        return b.clamp(x, low=float(low), high=float(high), open=True)
    return clamp(b, x, low, high)


@aten("gelu")
def gelu(b, x, approximate="none"):
    return b.gelu(x, approximate=approximate)


@aten("silu")
def silu(b, x):
    return b.silu(x)


@aten("mish")
def mish(b, x):
    return b.mish(x)


@aten("leaky_relu")
def leaky_relu(b, x, slope=0.01):
    return b.leaky_relu(x, slope=float(slope))


@aten("elu")
def elu(b, x, alpha=1.0, scale=1.0, input_scale=1.0):
    if scale != 1 or input_scale != 1:
        raise NotSupported(f"scales {scale} and {input_scale} other than 1")
    return b.elu(x, alpha=float(alpha))


@aten("selu")
def selu(b, x):
    return b.selu(x)


@aten("celu")
def celu(b, x, alpha=1.0):
    return b.celu(x, alpha=float(alpha))


@aten("hardsigmoid")
def hardsigmoid(b, x):
    return b.hard_sigmoid(x, alpha=1 / 6, beta=0.5)


@aten("hardswish")
def hardswish(b, x):
    return b.hard_swish(x)


@aten("softplus")
def softplus(b, x, beta=1.0, threshold=20.0):
    made = b.softplus(x, beta=float(beta))
    if threshold == 20 and b.dtype.bits <= 32:
        return made  # x itself is the nearest number from there on
    is_linear = b.gt(b.mul(x, b.scalar_like(beta, x)), b.scalar_like(threshold, x))
    return b.select(is_linear, x, made)


@aten("log_sigmoid", "logsigmoid")
def log_sigmoid(b, x):
    return b.neg(b.softplus(b.neg(x)))


@aten("threshold")
def threshold(b, x, limit, value):
    return b.select(b.le(x, b.scalar_like(limit, x)), b.scalar_like(value, x), x)


@aten("logit")
def logit(b, x, eps=None):
    x = b.to(x, b.dtype)
    if eps is not None:
        x = b.clamp(x, low=float(eps), high=1 - float(eps))
    return b.log(b.div(x, b.sub(b.scalar_like(1, x), x)))


@aten("prelu", "_prelu_kernel")
def prelu(b, x, weight):
    if weight.type.elements != 1 and weight.type.rank == 1:
        weight = b.broadcast(weight, shape=x.type.shape, dims=(1,))
    elif weight.type.elements == 1:
        weight = b.expand(b.reshape(weight, shape=()), x.type.shape)
    else:
        weight = b.expand(weight, x.type.shape)
    return b.select(b.gt(x, b.scalar_like(0, x)), x, b.mul(weight, x))


@aten("addcmul")
def addcmul(b, x, y, z, value=1):
    product = b.mul(*b.pair(y, z, b.dtype))
    return b.add(*b.pair(x, _scaled(b, product, value), b.dtype))


@aten("addcdiv")
def addcdiv(b, x, y, z, value=1):
    quotient = b.div(*b.pair(y, z, b.dtype))
    return b.add(*b.pair(x, _scaled(b, quotient, value), b.dtype))


@aten("lerp")
def lerp(b, x, y, weight):
    x, y = b.pair(x, y, b.dtype)
    weight, x = b.broadcast_together(b.value(weight, b.dtype), x)
    return b.add(x, b.mul(weight, b.sub(y, x)))


@aten("deg2rad")
def deg2rad(b, x):
    return b.mul(*b.pair(x, math.pi / 180, b.dtype))


@aten("rad2deg")
def rad2deg(b, x):
    return b.mul(*b.pair(x, 180 / math.pi, b.dtype))


@aten(
    "_to_copy",
    "to",
    "to.dtype",
    "to.dtype_layout",
    "to.device",
    "type_as",
    "float",
    "double",
    "half",
)
def to(b, x, *args, **kwargs):
    return b.to(x, b.dtype)


@aten("convert_element_type")
def convert_element_type(b, x, dtype):
    return b.to(x, b.dtype)


@aten("fmax", "fmin")
def without_nan(b, x, y):
    """Return the larger or smaller value; a number wins over NaN."""
    name = "max" if "fmax" in str(b.node.target) else "min"
    if not b.dtype.is_float:
        return TABLE["maximum" if name == "max" else "minimum"](b, x, y)
    x, y = b.pair(x, y, b.dtype)
    if b.symbols.training:  # of equal values, the first receives the gradient
        larger = b.select((b.lt if name == "max" else b.gt)(x, y), y, x)
    else:
        larger = b.op(f"core.{name}", (x, y))
    return b.select(b.is_nan(x), y, b.select(b.is_nan(y), x, larger))


@aten("sinc")
def sinc(b, x):
    """Compute ``sin(pi x) / (pi x)``, with 1 at 0, which does not propagate a gradient."""
    x = wide(b, b.to(x, b.dtype))
    line = b.mul(x, b.scalar_like(math.pi, x))
    one = b.scalar_like(1, line)
    none = b.eq(line, b.scalar_like(0, line))
    line = b.select(none, one, line)
    return b.to(b.select(none, one, b.div(b.sin(line), line)), b.dtype)


@aten("xlogy", "special_xlog1py")
def x_log_y(b, x, y):
    """Compute ``x * log(y)`` or ``x * log1p(y)``, with 0 if x is 0.

    No gradient propagates through a logarithm that is not finite there.
    """
    log = "core.log1p" if "log1p" in str(b.node.target) else "core.log"
    x, y = b.pair(x, y, b.dtype)
    start = b.scalar_like(-1 if log == "core.log1p" else 0, y)
    one, nothing = b.scalar_like(1, y), b.scalar_like(0, x)
    infinite = b.scalar_like(math.inf, y)
    out = b.op("core.not", (b.op("core.and", (b.gt(y, start), b.lt(y, infinite))),))
    none = b.op("core.and", (b.eq(x, nothing), out))
    made = b.mul(x, b.op(log, (b.select(none, one, y),)))
    return b.select(b.is_nan(y), y, b.select(none, nothing, made))


@aten("copysign")
def copysign(b, x, y):
    """Return |x| with the sign bit of y (also for zeros)."""
    x, y = b.pair(x, y, b.dtype)
    if b.dtype.bits not in (16, 32, 64):
        raise NotSupported(f"the sign bit of {b.dtype}")
    bits = b.bitcast(y, dtype=f"i{b.dtype.bits}")
    return b.select(b.lt(bits, b.scalar_like(0, bits)), b.neg(b.abs(x)), b.abs(x))


@aten("signbit")
def signbit(b, x):
    if x.type.dtype is BOOL or x.type.dtype.kind == "uint":
        return b.expand(b.constant(False, "i1"), x.type.shape)
    bits = b.bitcast(x, dtype=f"i{x.type.dtype.bits}") if x.type.dtype.is_float else x
    return b.lt(bits, b.scalar_like(0, bits))


@aten("round.decimals")
def round_decimals(b, x, decimals=0):
    if not x.type.dtype.is_float or decimals == 0:
        return b.round(x) if x.type.dtype.is_float else x
    kind = x.type.dtype
    x = wide(b, x)
    factor = b.scalar_like(10.0 ** abs(decimals), x)
    if decimals < 0:
        made = b.mul(b.round(b.div(x, factor)), factor)
    else:
        made = b.div(b.round(b.mul(x, factor)), factor)
    return b.to(made, kind)


@aten("bool", "int", "long")
def to_integer(b, x, *args):
    return _as_bool(b, x) if b.dtype is BOOL else b.to(x, b.dtype)


@aten("view.dtype")
def view_dtype(b, x, wanted):
    """Read the same bytes as another dtype; the first byte of a number is its lowest."""
    kind, of = x.type.dtype, dtype_of(wanted)
    if kind.bits == of.bits or min(kind.bits, of.bits) < 8:
        return b.bitcast(x, dtype=of)
    narrow, broad = (dtype(f"ui{bits}") for bits in sorted((kind.bits, of.bits)))
    count, shape = broad.bits // narrow.bits, b.shape
    steps = b.constant(np.arange(0, broad.bits, narrow.bits, dtype=broad.numpy))
    if kind.bits > of.bits:
        whole = b.bitcast(x, dtype=broad)
        parts = (*x.type.shape, count)
        spread = b.broadcast(whole, shape=parts, dims=tuple(range(x.type.rank)))
        cut = b.cast(b.shr(spread, b.expand(steps, parts)), dtype=narrow)
        return b.bitcast(b.reshape(cut, shape=shape), dtype=of)
    parts = b.reshape(b.bitcast(x, dtype=narrow), shape=(*shape, count))
    placed = b.cast(parts, dtype=broad)
    placed = b.shl(placed, b.expand(steps, placed.type.shape))
    return b.bitcast(b.reduce_sum(placed, axes=(len(shape),)), dtype=of)


@aten("real", "conj_physical", "ravel", "atleast_1d", "atleast_2d", "atleast_3d")
def reshaped(b, x, *args):
    if isinstance(x, list | tuple):
        raise NotSupported("a list of tensors")
    return b.reshape(x, shape=b.shape)


@aten("detach", "detach_copy")
def detach(b, x):
    return b.stop_gradient(x) if b.symbols.training else x


@aten(
    "clone",
    "contiguous",
    "lift_fresh_copy",
    "alias",
    "lift_fresh",
    "_conj",
    "resolve_conj",
    "resolve_neg",
    "positive",
)
def same(b, x, *args, **kwargs):
    return x
