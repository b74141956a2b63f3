"""Reductions, scans, sorts, products, convolutions, pooling and random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

import numpy as np

from core_compiler.exporters.numpy_source.table import F32, cast, core, in_f32
from core_compiler.exporters.numpy_source.text import dtype_text, sequence
from core_compiler.ir import DType
from core_compiler.ops import typed


def _axes(axes: Sequence[int]) -> str:
    """Return an axis, or a tuple of them."""
    return str(axes[0]) if len(axes) == 1 else sequence(axes)


# -- reductions ------------------------------------------------------------------------------------


def _enter_sum(name: str, method: str) -> None:
    def handler(w, op: typed.ReduceProd | typed.ReduceSum, x):
        """Name the dtype of the sum, because NumPy sums small integers in i64 by default."""
        kind = op.result.type.dtype
        own = f", dtype={dtype_text(kind)}" if kind.is_integer and kind.bits < 64 else ""
        return f"{x}.{method}({_axes(op.axes)}{own})"

    core(name)(in_f32(handler))


_enter_sum("reduce_sum", "sum")
_enter_sum("reduce_prod", "prod")


def _enter_method(name: str, method: str) -> None:
    core(name)(in_f32(lambda w, op, x: f"{x}.{method}({_axes(op.axes)})"))


_enter_method("reduce_max", "max")
_enter_method("reduce_min", "min")
_enter_method("mean", "mean")


def _enter_bitwise(name: str, of_bools: str, of_integers: str) -> None:
    def handler(w, op: typed.ReduceAnd | typed.ReduceOr, x):
        if op.result.type.dtype.kind == "bool":
            return f"{x}.{of_bools}({_axes(op.axes)})"
        return f"np.{of_integers}.reduce({x}, {sequence(op.axes)})"

    core(name)(handler)


_enter_bitwise("reduce_and", "all", "bitwise_and")
_enter_bitwise("reduce_or", "any", "bitwise_or")


_IN_F64 = ", dtype=np.float64"  # in f32, rounding a large mean costs more than a standard deviation


def _from_f64(op: typed.Centre | typed.StandardDeviation | typed.Variance, expression: str) -> str:
    return expression if op.result.type.dtype.bits == 64 else cast(expression, F32)


@core("centre")
@in_f32
def centre(w, op: typed.Centre, x):
    return _from_f64(op, f"{x} - {x}.mean({_axes(op.axes)}{_IN_F64}, keepdims=True)")


def _enter_spread(name: str, method: str) -> None:
    def handler(w, op: typed.StandardDeviation | typed.Variance, x):
        correction = f", ddof={op.correction}" if op.correction else ""
        if isinstance(op, typed.Variance) and op.plain:
            return f"{x}.{method}({_axes(op.axes)}{correction})"
        return _from_f64(op, f"{x}.{method}({_axes(op.axes)}{_IN_F64}{correction})")

    core(name)(in_f32(handler))


_enter_spread("variance", "var")
_enter_spread("standard_deviation", "std")


def _enter_position(name: str) -> None:
    def handler(w, op: typed.Argmax | typed.Argmin, x):
        """Use NumPy's function: the first of equal values, -0 equals +0, the first NaN wins."""
        made = f"{x}.{name}({op.axis})"
        return made if op.dtype.name == "i64" else cast(made, op.dtype)

    core(name)(in_f32(handler))


_enter_position("argmax")
_enter_position("argmin")


# -- scans -----------------------------------------------------------------------------------------


def _enter_scan(name: str, function: str, start) -> None:
    def handler(w, op: typed.Scan, x):
        flags = {n: True for n, on in op.pick("reverse", "exclusive").items() if on}
        if not flags:
            kind = op.result.type.dtype
            own = f", dtype={dtype_text(kind)}" if kind.is_integer and kind.bits < 64 else ""
            return f"np.{function}.accumulate({x}, {op.axis}{own})"
        first = {"start": start(op.result.type.dtype)} if op.exclusive else {}
        return w.call("running", f"np.{function}", x, op.axis, **flags, **first)

    core(name)(in_f32(handler))


def _limit(kind: DType, lowest: bool) -> str:
    if kind.is_float:
        return "-np.inf" if lowest else "np.inf"
    limits = np.iinfo(kind.numpy)
    return str(limits.min if lowest else limits.max)


_enter_scan("cumsum", "add", lambda kind: "0")
_enter_scan("cumprod", "multiply", lambda kind: "1")
_enter_scan("cummax", "maximum", lambda kind: _limit(kind, lowest=True))
_enter_scan("cummin", "minimum", lambda kind: _limit(kind, lowest=False))


# -- sorts -----------------------------------------------------------------------------------------


@core("sort")
def sort(w, op: typed.Sort, x):
    return w.call("sort", x, op.axis, **({"descending": True} if op.descending else {}))


@core("argsort")
def argsort(w, op: typed.Argsort, x):
    flags = {"descending": True} if op.descending else {}
    made = w.call("argsort", x, op.axis, **flags)
    return made if op.dtype.name == "i64" else cast(made, op.dtype)


@core("topk")
def topk(w, op: typed.Topk, x):
    flags = {} if op.largest else {"largest": False}
    return w.call("topk", x, op.k, op.axis, **flags)


# -- products --------------------------------------------------------------------------------------


def _product(
    op: typed.Contract | typed.Convolution | typed.Linear | typed.Matmul, form: str, *operands: str
) -> str:
    """Return ``form`` on operands in the dtype of the sum.

    f32 for narrower floats, i32 for narrower integers.
    """
    kind, made = op.operands[0].type.dtype, op.result.type.dtype
    wide = made if kind.is_integer or made.bits >= 32 else None
    wide = wide or F32
    given = [x if kind is wide else cast(x, wide) for x in operands]
    result = form.format(*given)
    return result if made is wide else cast(result, made)


@core("matmul")
def matmul(w, op, a, b):
    return _product(op, "{} @ {}", a, b)


@core("linear")
def linear(w, op, x, weight, *bias):
    made = _product(op, "{} @ {}", x, weight)
    return f"{made} + {bias[0]}" if bias else made


@core("contract")
def contract(w, op: typed.Contract, a, b):
    letters = iter(ascii_letters)
    left = [next(letters) for _ in op.a.type.shape]
    right = [next(letters) for _ in op.b.type.shape]
    batch, summed = op.batch_a, op.contract_a
    pairs = zip((*batch, *summed), (*op.batch_b, *op.contract_b), strict=True)
    for mine, other in pairs:
        right[other] = left[mine]
    free = [c for i, c in enumerate(left) if i not in batch + summed]
    free += [c for i, c in enumerate(right) if i not in op.batch_b + op.contract_b]
    equation = f"{''.join(left)},{''.join(right)}->{''.join([left[i] for i in batch] + free)}"
    return _product(op, f'np.einsum("{equation}", {{}}, {{}})', a, b)


# -- convolution and pooling -----------------------------------------------------------------------


def _geometry(op: typed.Convolution | typed.Pool, *names: str) -> dict[str, str]:
    return {n: sequence(held) for n, held in op.pick(*names).items()}


def _convolution(w, op: typed.Convolution, x: str, weight: str, *more: str) -> str:
    options = _geometry(op, "strides", "low", "high", "dilations", *more)
    if op.groups > 1:
        options["groups"] = str(op.groups)
    return _product(op, w.call(op.kind.partition(".")[2], "{}", "{}", **options), x, weight)


@core("conv")
def conv(w, op, x, weight):
    return _convolution(w, op, x, weight)


@core("conv_transpose")
def conv_transpose(w, op, x, weight):
    return _convolution(w, op, x, weight, "output_padding")


@core("max_pool", "avg_pool")
@in_f32
def pool(w, op: typed.Pool, x):
    options = _geometry(op, "window", "strides", "low", "high", "dilations")
    if isinstance(op, typed.AvgPool) and op.count_padding:
        options["count_padding"] = "True"
    return w.call(op.kind.partition(".")[2], x, **options)


# -- random numbers --------------------------------------------------------------------------------


@core("random_bits", "random_uniform", "random_normal")
def random(w, op: typed.Random, seed, *counter):
    made = w.call(op.kind.partition(".")[2], sequence(op.shape), seed, op.stream, *counter)
    default = "ui32" if op.kind == "core.random_bits" else "f32"
    return made if op.dtype.name == default else cast(made, op.dtype)
