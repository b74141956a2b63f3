"""Reductions, softmax and scans of ATen."""

from __future__ import annotations

from core_compiler.frontends import windows
from core_compiler.frontends.pytorch.aten.table import (
    BOOL,
    I64,
    NotSupported,
    aten,
    axes_of,
    axis_of,
    wide,
)


def _sum_of_scalar(b, x):
    """Return the sum of a scalar, which is added to +0."""
    return b.add(x, b.scalar_like(0, x)) if x.type.dtype.is_float else x


def _total(b, x, kind: str, axes, keepdim: bool):
    if x.type.rank == 0:
        return _sum_of_scalar(b, x) if kind == "sum" else x
    axes = axes_of(axes, x.type.rank)
    if x.type.dtype is BOOL:
        kind = {"max": "or", "min": "and", "prod": "and"}.get(kind, kind)
    reduced = b.op(f"core.reduce_{kind}", (x,), axes=axes) if axes else x
    return b.keep(reduced, axes, keepdim, x)


@aten("sum")
def sum_(b, x, axes=None, keepdim=False, dtype=None):
    return _total(b, b.to(x, b.dtype), "sum", axes, keepdim)


@aten("mean")
def mean(b, x, axes=None, keepdim=False, dtype=None):
    x = b.to(x, b.dtype)
    if x.type.rank == 0:
        return _sum_of_scalar(b, x)
    axes = axes_of(axes, x.type.rank)
    return b.keep(b.mean(x, axes=axes) if axes else x, axes, keepdim, x)


@aten("prod")
def prod(b, x, axis=None, keepdim=False, dtype=None):
    return _total(b, b.to(x, b.dtype), "prod", axis, keepdim)


@aten("amax")
def amax(b, x, axes=(), keepdim=False):
    return _total(b, x, "max", axes, keepdim)


@aten("amin")
def amin(b, x, axes=(), keepdim=False):
    return _total(b, x, "min", axes, keepdim)


@aten("max", "min")
def whole_extreme(b, x):
    name = str(b.node.target).split(".")[1]
    return _total(b, x, name, None, False)


def _with_index(b, x, axis, keepdim, name):
    axis = axis_of(axis, x.type.rank)
    if x.type.rank == 0:
        return x, b.constant(0, "i64")
    whole = b.cast(x, dtype="i8") if x.type.dtype is BOOL else x
    # The value next to an index is the element there: the first of -0 and +0.
    if x.type.dtype.is_float and (b.symbols.training or b.uses(1)):
        values, places = windows.first_largest(b, x, axis, name)
    else:
        values = b.to(b.op(f"core.reduce_{name}", (whole,), axes=(axis,)), x.type.dtype)
        places = b.op(f"core.arg{name}", (whole,), axis=axis, dtype=I64)
    return b.keep(values, (axis,), keepdim, x), b.keep(places, (axis,), keepdim, x)


@aten("max.dim")
def max_dim(b, x, axis, keepdim=False):
    return _with_index(b, x, axis, keepdim, "max")


@aten("min.dim")
def min_dim(b, x, axis, keepdim=False):
    return _with_index(b, x, axis, keepdim, "min")


def _arg(b, x, axis, keepdim, name):
    if axis is None:
        flat = b.reshape(x, shape=(x.type.elements,))
        place = b.op(f"core.{name}", (flat,), axis=0, dtype=I64)
        return b.reshape(place, shape=(1,) * x.type.rank) if keepdim else place
    axis = axis_of(axis, x.type.rank)
    if x.type.rank == 0:
        return b.constant(0, "i64")
    return b.keep(b.op(f"core.{name}", (x,), axis=axis, dtype=I64), (axis,), keepdim, x)


@aten("argmax")
def argmax(b, x, axis=None, keepdim=False):
    return _arg(b, x, axis, keepdim, "argmax")


@aten("argmin")
def argmin(b, x, axis=None, keepdim=False):
    return _arg(b, x, axis, keepdim, "argmin")


def _truth(b, x):
    return x if x.type.dtype is BOOL else b.ne(x, b.scalar_like(0, x))


@aten("any")
def any_(b, x, axes=None, keepdim=False):
    return b.to(_total(b, _truth(b, x), "or", axes, keepdim), b.dtype)


@aten("all")
def all_(b, x, axes=None, keepdim=False):
    return b.to(_total(b, _truth(b, x), "and", axes, keepdim), b.dtype)


def _variance(b, x, axes, correction, keepdim):
    """Return the variance or standard deviation, by the node's name, with the mean if requested."""
    name, axes = str(b.node.target).split(".")[1], axes_of(axes, x.type.rank)
    kind = "standard_deviation" if name.startswith("std") else "variance"
    correction = 1 if correction is None else correction
    made = b.op(f"core.{kind}", (x,), axes=axes, correction=correction)
    made = b.keep(made, axes, keepdim, x)
    if not name.endswith("mean"):
        return made
    return made, b.keep(b.mean(x, axes=axes), axes, keepdim, x)


@aten("var", "std", "var_mean", "std_mean")
def unbiased_form(b, x, unbiased=True):
    """Translate the old forms over all axes with a flag for the correction."""
    if not isinstance(unbiased, bool):
        raise NotSupported("unbiased that is not a bool")
    return _variance(b, x, None, int(unbiased), False)


@aten("var.dim", "std.dim", "var_mean.dim", "std_mean.dim")
def unbiased_axes(b, x, axes, unbiased=True, keepdim=False):
    return _variance(b, x, axes, int(unbiased), keepdim)


@aten("var.correction", "std.correction", "var_mean.correction", "std_mean.correction")
def corrected(b, x, axes=None, *, correction=None, keepdim=False):
    return _variance(b, x, axes, correction, keepdim)


@aten("logsumexp")
def logsumexp(b, x, axes, keepdim=False):
    x = b.to(x, b.dtype)
    if x.type.rank == 0:
        return x
    axes = axes_of(axes, x.type.rank)
    return b.keep(b.logsumexp(x, axes=axes), axes, keepdim, x)


@aten("softmax", "_softmax")
def softmax(b, x, axis, extra=None):
    x = b.to(x, b.dtype)
    if x.type.rank == 0:
        return b.reshape(b.softmax(b.reshape(x, shape=(1,)), axis=0), shape=())
    return b.softmax(x, axis=axis_of(axis, x.type.rank))


@aten("_safe_softmax")
def safe_softmax(b, x, axis, dtype=None):
    return b.softmax(b.to(x, b.dtype), axis=axis_of(axis, x.type.rank), empty_rows="zero")


@aten("log_softmax", "_log_softmax")
def log_softmax(b, x, axis, extra=None):
    x = b.to(x, b.dtype)
    if x.type.rank == 0:
        return b.reshape(b.log_softmax(b.reshape(x, shape=(1,)), axis=0), shape=())
    return b.log_softmax(x, axis=axis_of(axis, x.type.rank))


@aten("cumsum", "cumprod")
def cumulative(b, x, axis, dtype=None):
    name = str(b.node.target).split(".")[1]
    x = b.to(x, b.dtype)
    return b.op(f"core.{name}", (x,), axis=axis_of(axis, x.type.rank)) if x.type.rank else x


@aten("cummax", "cummin")
def cumulative_extreme(b, x, axis):
    """Return the running extremes and their positions, of equal elements the last one's."""
    if x.type.rank == 0:
        return x, b.constant(0, "i64")
    axis = axis_of(axis, x.type.rank)
    name = str(b.node.target).split(".")[1]
    wide = b.cast(x, dtype="i32") if x.type.dtype.kind == "bool" else x
    held = b.eq(wide, b.op(f"core.{name}", (wide,), axis=axis))
    if wide.type.dtype.is_float:
        held = b.op("core.or", (held, b.is_nan(wide)))
    place = b.iota(shape=x.type.shape, dtype="i64", axis=axis)
    at = b.cummax(b.select(held, place, b.scalar_like(0, place)), axis=axis)
    return b.take_along(x, at, axis=axis), at


def root(b, x, power: float = 0.5):
    """Compute ``x ** power``; the gradient of a norm of 0 is 0, as in torch."""

    def of(value):
        like = b.scalar_like(power, value)
        return b.sqrt(value) if power == 0.5 else b.pow(value, like)

    if not b.symbols.training or power < 0:
        return of(x)
    nothing = b.scalar_like(0, x)
    none = b.eq(x, nothing)
    return b.select(none, nothing, of(b.select(none, b.scalar_like(1, x), x)))


@aten("norm.ScalarOpt_dim", "linalg_vector_norm")
def vector_norm(b, x, order=2, axes=None, keepdim=False, dtype=None):
    x = b.to(x, b.dtype)
    if x.type.rank == 0:
        x = b.reshape(x, shape=(1,))
        return b.reshape(vector_norm(b, x, order, [0], False), shape=())
    axes = axes_of(axes, x.type.rank)
    return b.keep(norm(b, x, order, axes), axes, keepdim, x)


def norm(b, x, order: float, axes):
    """Compute the norm along ``axes``; order 0 counts nonzero elements.

    Narrow floats are computed in f32, as in torch: their squares would overflow or underflow.
    """
    kind = x.type.dtype
    x = wide(b, x)
    size = b.abs(x)
    if order == 2:
        made = root(b, b.reduce_sum(b.mul(x, x), axes=axes))
    elif order == 1:
        made = b.reduce_sum(size, axes=axes)
    elif order in (float("inf"), float("-inf")):
        made = b.op("core.reduce_max" if order > 0 else "core.reduce_min", (size,), axes=axes)
    elif order == 0:
        made = b.reduce_sum(b.cast(b.ne(x, b.scalar_like(0, x)), dtype=x.type.dtype), axes=axes)
    else:
        powers = b.reduce_sum(b.pow(size, b.scalar_like(order, x)), axes=axes)
        made = root(b, powers, 1 / order)
    return b.to(made, kind)
