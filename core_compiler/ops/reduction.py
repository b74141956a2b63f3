"""Reductions, arg-reductions and scans. No keepdims: a reshape or broadcast restores an axis."""

from __future__ import annotations

import numpy as np

from core_compiler.ir import DType, tensor
from core_compiler.ops import hooks, typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.composite import in_f32, others, size_of, spread
from core_compiler.ops.gradients.table import CONSTANT, RULES
from core_compiler.ops.precision import FOLLOWS, RUNNING, SUM
from core_compiler.ops.rules import (
    BOOL,
    FLOATS,
    I64,
    INTEGERS,
    NUMBERS,
    each_operand,
    need,
    need_axes,
    need_axis,
    need_dtype,
    without,
)
from core_compiler.ops.traits import traits
from core_compiler.support import lazy_module

reduction = lazy_module.module("core_compiler.numerics.reference.reduction")
scan = lazy_module.module("core_compiler.numerics.reference.scan")

AXES = Attr(tuple, doc="the reduced axes, ascending")
ORDERS = Attr(
    tuple,
    (),
    "accumulation order of a sum: for each group of merged reduced axes, first group first, lanes "
    "or sequence; () is the contract's order for the logical axes.  Passes that move a transpose "
    "through the op set it, to keep the order",
    of=str,
)

#: Columns: name, meaning, dtypes, whether zero elements are allowed, traits, mixed precision.
REDUCTIONS = (
    ("reduce_sum", "Sum over the axes from +0, in the contract's order; integers wrap",
     NUMBERS, True, ("multilinear", "never_negative_zero"), SUM),
    ("reduce_prod",
     "Product over the axes, always in sequence order; 1 for no elements; integers wrap",
     NUMBERS, True, (), SUM),
    ("reduce_max", "Largest over the axes; -0 < +0; NaN if any is NaN", NUMBERS, False,
     ("exact", "selects", "canonical_nan"), FOLLOWS),
    ("reduce_min", "Smallest over the axes; -0 < +0; NaN if any is NaN", NUMBERS, False,
     ("exact", "selects", "canonical_nan"), FOLLOWS),
    ("reduce_and", "Bitwise and over the axes; all ones for no elements", (*INTEGERS, BOOL), True,
     ("exact",), None),
    ("reduce_or", "Bitwise or over the axes; 0 for no elements", (*INTEGERS, BOOL), True,
     ("exact",), None),
)  # fmt: skip


def reduced(x, axes) -> tuple:
    """Check ``axes`` and return the shape of ``x`` without them."""
    return without(x.shape, need_axes(axes, x.rank))


def need_elements(x, axes) -> None:
    """Check that the reduced axes are not empty (the maximum of nothing is undefined)."""
    for axis in axes:
        need(x.shape[axis] != 0, f"axis {axis} of x is empty: nothing to choose from")


def _reduce_rule(allowed, empty: bool):
    def rule(types, attributes):
        (x,) = types
        need_dtype("x", x, allowed)
        for order in attributes["orders"]:
            need(order in ("lanes", "sequence"), f"order {order!r} is not lanes or sequence")
        shape = reduced(x, attributes["axes"])
        if not empty:
            need_elements(x, attributes["axes"])
        return (tensor(shape, x.dtype),)

    return rule


def _reduce(kind: str):
    def reference(arrays, attributes, types):
        orders = attributes["orders"] or None
        return (reduction.reduce(arrays[0], attributes["axes"], kind, orders),)

    return reference


for _name, _summary, _allowed, _empty, _traits, _precision in REDUCTIONS:
    declare(
        OpDef(
            f"core.{_name}",
            _summary,
            ("x",),
            _reduce_rule(_allowed, _empty),
            _reduce(_name.removeprefix("reduce_")),
            attributes={"axes": AXES, "orders": ORDERS},
            flops=each_operand,
            traits=traits(*_traits),
            precision=_precision,
            lower=hooks.Reduction(_name.removeprefix("reduce_")),
            gradient=CONSTANT if _name in ("reduce_and", "reduce_or") else RULES[_name],
        )
    )


# -- mean, variance and deviations: composites -----------------------------------------------------


def _mean_rule(types, attributes):
    (x,) = types
    need_dtype("x", x, FLOATS)
    return (tensor(reduced(x, attributes["axes"]), x.dtype),)


@in_f32
def _mean(b, op: typed.Mean, x):
    axes = op.axes
    total = b.reduce_sum(x, axes=axes)
    return b.div(total, b.scalar_like(size_of(x, axes), total))


declare(
    OpDef(
        "core.mean",
        "reduce_sum(x) / n, one division by the number of elements; NaN for no elements",
        ("x",),
        _mean_rule,
        attributes={"axes": AXES},
        decompose=_mean,
        traits=traits("multilinear"),
        precision=SUM,
        gradient=RULES["mean"],
    )
)


def _centred(b, x, axes):
    """Return ``x - mean(x)``, and 1 / (half the range of ``x``) for each result.

    ``x - middle`` is at most half the range, so nothing overflows, and a mean of values scaled to
    [-1, 1] loses no more digits than x has. A large mean itself would be rounded by up to many
    deviations, so it is kept as the sum of two numbers (Dekker, 1971).
    """
    kept, limits = others(x.type.rank, axes), np.finfo(x.type.dtype.numpy)
    least, most = b.reduce_min(x, axes=axes), b.reduce_max(x, axes=axes)
    half = b.scalar_like(0.5, least)
    least, most = b.mul(least, half), b.mul(most, half)
    middle = b.add(least, most)
    tiny = float(limits.tiny)  # its reciprocal is finite too
    reach = b.clamp(b.sub(most, least), low=tiny, high=1 / tiny)
    scale = b.div(b.scalar_like(1, reach), reach)
    near = b.mul(b.sub(x, spread(b, middle, x, kept)), spread(b, scale, x, kept))
    offset = b.div(b.mean(near, axes=axes), scale)
    mean = b.add(middle, offset)
    rest = b.sub(offset, b.sub(mean, middle))
    return b.sub(b.sub(x, spread(b, mean, x, kept)), spread(b, rest, x, kept)), scale


@in_f32
def _centre(b, op: typed.Centre, x):
    return _centred(b, x, op.axes)[0] if size_of(x, op.axes) else x


declare(
    OpDef(
        "core.centre",
        "x - mean(x), the mean as a sum of two numbers: exact to rounding for any mean.  "
        "a, z = reduce_min(x) / 2, reduce_max(x) / 2; c = a + z; s = 1 / clamp(z - a); "
        "t = mean((x - c) * s) / s; m = c + t; (x - m) - (t - (m - c))",
        ("x",),
        lambda types, attributes: (_mean_rule(types, attributes)[0].with_(shape=types[0].shape),),
        attributes={"axes": Attr(tuple, doc="the axes of the mean, ascending")},
        decompose=_centre,
        traits=traits("multilinear"),
        precision=SUM,
        gradient=RULES["centre"],
    )
)


def _mean_square(b, d, op: typed.StandardDeviation | typed.Variance):
    """Return the sum of squares over ``n - correction``."""
    total = b.reduce_sum(b.mul(d, d), axes=op.axes)
    return b.div(total, b.scalar_like(max(size_of(d, op.axes) - op.correction, 0), total))


def _scaled_variance(b, op: typed.StandardDeviation | typed.Variance, x):
    """Return the variance of ``x * scale``, which cannot overflow or underflow, and the scale."""
    axes = op.axes
    if not size_of(x, axes):
        made = _mean_square(b, x, op)
        return made, b.scalar_like(1, made)
    d, scale = _centred(b, x, axes)
    wide = spread(b, scale, x, others(x.type.rank, axes))
    return _mean_square(b, b.mul(d, wide), op), scale


@in_f32
def _variance(b, op: typed.Variance, x):
    if op.plain:
        mean = spread(b, b.mean(x, axes=op.axes), x, others(x.type.rank, op.axes))
        return _mean_square(b, b.sub(x, mean), op)
    made, scale = _scaled_variance(b, op, x)
    return b.div(b.div(made, scale), scale)


@in_f32
def _standard_deviation(b, op, x):
    made, scale = _scaled_variance(b, op, x)
    return b.div(b.sqrt(made), scale)


CORRECTION = Attr((int, float), 0, "0 for the population's, 1 for the sample's")

declare(
    OpDef(
        "core.variance",
        "d = centre(x) * s, s as in centre; reduce_sum(d * d) / max(n - correction, 0) / s / s",
        ("x",),
        _mean_rule,
        attributes={
            "axes": AXES,
            "correction": CORRECTION,
            "plain": Attr(
                bool,
                False,
                "as in normalisations: d = x - mean(x), s = 1; faster, but loses digits "
                "if the mean is large, and squares may overflow or underflow",
            ),
        },
        decompose=_variance,
        precision=SUM,
        gradient=RULES["variance"],
    )
)

declare(
    OpDef(
        "core.standard_deviation",
        "d = centre(x) * s, s as in centre; sqrt(reduce_sum(d * d) / max(n - correction, 0)) / s; "
        "its gradient at 0 is 0",
        ("x",),
        _mean_rule,
        attributes={"axes": AXES, "correction": CORRECTION},
        decompose=_standard_deviation,
        precision=SUM,
        gradient=RULES["standard_deviation"],
    )
)


# -- arg-reductions --------------------------------------------------------------------------------


def _arg_rule(types, attributes):
    (x,), axis = types, attributes["axis"]
    need_dtype("x", x, NUMBERS)
    need_dtype("dtype", attributes["dtype"], INTEGERS)
    need_axis(axis, x.rank)
    need_elements(x, (axis,))
    return (tensor(without(x.shape, (axis,)), attributes["dtype"]),)


def _arg(kind: str):
    def reference(arrays, attributes, types):
        found = reduction.reduce(arrays[0], (attributes["axis"],), kind)
        return (np.asarray(found).astype(types[0].dtype.numpy),)

    return reference


for _name, _word in (("argmax", "largest"), ("argmin", "smallest")):
    declare(
        OpDef(
            f"core.{_name}",
            f"Position of the {_word} along an axis; the first of equals, -0 equals +0; the first "
            "NaN if any",
            ("x",),
            _arg_rule,
            _arg(_name),
            attributes={
                "axis": Attr(int, doc="the reduced axis"),
                "dtype": Attr(DType, I64, "the positions' dtype"),
            },
            flops=each_operand,
            traits=traits("exact", "positions"),
            lower=hooks.Reduction(_name),
            gradient=CONSTANT,
        )
    )


# -- scans -----------------------------------------------------------------------------------------


def _scan_rule(types, attributes):
    (x,) = types
    need_dtype("x", x, NUMBERS)
    need_axis(attributes["axis"], x.rank)
    return (tensor(x.shape, x.dtype),)


def _scan(kind: str):
    def reference(arrays, attributes, types):
        (x,), axis, reverse = arrays, attributes["axis"], attributes["reverse"]
        exclusive = attributes["exclusive"] and x.shape[axis] > 0
        made = scan.cumulative(x, axis, kind, reverse, exclusive and kind in ("sum", "prod"))
        if exclusive and kind in ("max", "min"):
            made = _shifted(made, axis, reverse, _limit(types[0].dtype, kind == "max"))
        return (made,)

    return reference


def _shifted(x, axis: int, reverse: bool, start):
    """Return ``x`` moved one position along ``axis``, with ``start`` at the free end."""
    first = np.full_like(np.take(x, [0], axis), start)
    rest = np.delete(x, 0 if reverse else -1, axis)
    return np.concatenate([rest, first] if reverse else [first, rest], axis)


def lowest(found: DType):
    """Return the lowest value of a dtype (an infinity for floats)."""
    return _limit(found, True)


def _limit(found: DType, lowest: bool):
    """Return the lowest or highest value of a dtype (an infinity for floats)."""
    if found.is_float:
        return -np.inf if lowest else np.inf
    info = np.iinfo(found.numpy)
    return info.min if lowest else info.max


_KEPT = ("exact", "selects")
#: Columns: name, meaning, initial value of an exclusive scan, traits.
SCANS = (
    ("cumsum", "Running sum", "0", ("multilinear",)),
    ("cumprod", "Running product", "1", ()),
    ("cummax", "Running maximum; NaN from the first NaN on", "the lowest value", _KEPT),
    ("cummin", "Running minimum; NaN from the first NaN on", "the highest value", _KEPT),
)

for _name, _summary, _start, _traits in SCANS:
    declare(
        OpDef(
            f"core.{_name}",
            f"{_summary} along an axis, in the contract's order for scans",
            ("x",),
            _scan_rule,
            _scan(_name.removeprefix("cum")),
            attributes={
                "axis": Attr(int, doc="the axis of the scan"),
                "reverse": Attr(bool, False, "run from the last element to the first"),
                "exclusive": Attr(bool, False, f"exclude the element itself; start with {_start}"),
            },
            flops=each_operand,
            traits=traits(*_traits),
            precision=RUNNING if "exact" in _traits else SUM,
            lower=hooks.Scan(_name.removeprefix("cum")),
            gradient=RULES[_name],
        )
    )
