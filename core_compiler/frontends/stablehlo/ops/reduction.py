"""Reductions and arg-reductions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.frontends.stablehlo.ops.elementwise import binary
from core_compiler.frontends.stablehlo.regions import combiner, signature
from core_compiler.frontends.stablehlo.table import Context, NotSupported, op
from core_compiler.ir import DType, Value
from core_compiler.ops import typed

#: The reduction of each combining op.
_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "max", "min": "min", "and": "and", "or": "or"}


def identity(kind: str, dtype: DType) -> object:
    """Return the identity element of a fold by ``kind``."""
    if dtype.kind == "bool":
        return kind in ("mul", "min", "and")
    if kind in ("add", "or", "xor"):
        return 0
    if kind == "mul":
        return 1
    if kind == "and":
        return -1 if dtype.kind == "int" else (1 << dtype.bits) - 1
    sign = -1 if kind == "max" else 1
    if dtype.is_float:
        return sign * np.inf
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    high = (1 << (dtype.bits - (dtype.kind == "int"))) - 1
    return low if kind == "max" else high


def is_identity(b: Context, kind: str, start: Value) -> bool:
    """Return whether ``start`` is known to be the identity of a fold by ``kind``."""
    known = b.constant_of(start)
    wanted = identity(kind, start.type.dtype)
    return known is not None and bool(np.all(known.astype(object) == wanted))


def fold(b: Context, kind: str, x: Value, axes: Sequence[int]) -> Value:
    """Fold ``x`` by ``kind`` over the axes."""
    dtype = x.type.dtype
    if dtype.kind == "bool":
        kind = {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(kind, kind)
        if kind == "xor":
            counted = b.reduce_sum(b.cast(x, dtype="ui8"), axes=tuple(axes))
            return b.cast(b.and_(counted, b.scalar_like(1, counted)), dtype=dtype)
        wide = b.op(f"core.reduce_{kind}", (b.cast(x, dtype="ui8"),), axes=tuple(axes))
        return b.cast(b.and_(wide, b.scalar_like(1, wide)), dtype=dtype)
    if kind not in _REDUCTIONS:
        raise NotSupported(f"a reduction by {kind}")
    made = b.op(f"core.reduce_{_REDUCTIONS[kind]}", (x,), axes=tuple(axes))
    return b.to(made, dtype)


@op("reduce")
def reduce(b, *operands):
    count = len(operands) // 2
    xs, starts = operands[:count], operands[count:]
    axes = tuple(sorted(map(int, b.attr("dimensions"))))
    kind = combiner(b.operation.regions[0]) if count == 1 else None
    if kind is not None and kind not in ("set", "keep"):
        (x,), (start,) = xs, starts
        if any(x.type.shape[axis] == 0 for axis in axes):
            return b.expand(start, b.results[0].shape)
        made = fold(b, kind, x, axes) if axes else x
        if is_identity(b, kind, start):
            return made
        return binary(b, kind, b.expand(start, made.type.shape), made)
    place = _extreme(b, xs, starts, axes)
    return place if place is not None else folded(b, 0, xs, starts, axes)


# -- argmax and argmin -----------------------------------------------------------------------------


def _steps(word: str, floats: bool) -> tuple:
    """Return jax's body for the first of the largest (``GT``) or smallest, with NaN before all."""
    number: tuple = (("compare", word, (0, 2)),)
    if floats:
        number += (("compare", "NE", (0, 0)), ("or", "", (4, 5)))
    pick = 3 + len(number)
    return (
        *number,
        ("compare", "EQ", (0, 2)),
        ("compare", "LT", (1, 3)),
        ("and", "", (pick + 1, pick + 2)),
        ("or", "", (pick, pick + 3)),
        ("select", "", (pick, 0, 2)),
        ("select", "", (pick + 4, 1, 3)),
        ("return", "", (pick + 5, pick + 6)),
    )


_EXTREMES = {
    _steps(word, floats): kind
    for word, kind in (("GT", "max"), ("LT", "min"))
    for floats in (False, True)
}


def _extreme(b: Context, xs, starts, axes) -> tuple[Value, Value] | None:
    """Return (extreme, its position) if the reduction is jax's argmax or argmin, else None."""
    if len(xs) != 2 or len(axes) != 1:
        return None
    kind = _EXTREMES.get(signature(b.operation.regions[0]))
    counted = typed.Iota.match(b.importer.made.get(xs[1]))
    start, first = b.constant_of(starts[0]), b.constant_of(starts[1])
    if kind is None or start is None or first is None or int(first) != 0:
        return None
    if counted is None or counted.axis != axes[0]:
        return None
    if xs[0].type.dtype.is_float and not np.isinf(start):
        return None
    wide = b.cast(xs[0], dtype="ui8") if xs[0].type.dtype.kind == "bool" else xs[0]
    place = b.op(f"core.arg{kind}", (wide,), axis=axes[0], dtype=xs[1].type.dtype)
    return fold(b, kind, xs[0], axes), place


# -- other bodies ----------------------------------------------------------------------------------


def folded(b: Context, region: int, xs, starts, axes) -> tuple[Value, ...]:
    """Fold by any body, adjacent elements first, in ``log2(n)`` steps over half of the rest.

    A body must be associative (StableHLO leaves the order open); the start value comes last.
    """
    values = tuple(xs)
    for axis in sorted(axes, reverse=True):
        size = values[0].type.shape[axis]
        if size == 0:
            shape = tuple(d for i, d in enumerate(values[0].type.shape) if i != axis)
            values = tuple(b.expand(start, shape) for start in starts)
            continue
        while size > 1:
            even = tuple(b.cut(v, axis, 0, size - 1, 2) for v in values)
            odd = tuple(b.cut(v, axis, 1, size, 2) for v in values)
            made = b.lifted(region, (*even, *odd))
            if size % 2:
                rest = (b.cut(v, axis, size - 1, size) for v in values)
                made = tuple(b.concat(m, r, axis=axis) for m, r in zip(made, rest, strict=True))
            values, size = made, (size + 1) // 2
        shape = tuple(d for i, d in enumerate(values[0].type.shape) if i != axis)
        values = tuple(b.reshape(v, shape=shape) for v in values)
    shape = values[0].type.shape
    return b.lifted(region, (*(b.expand(s, shape) for s in starts), *values))
