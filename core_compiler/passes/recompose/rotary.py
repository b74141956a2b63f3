"""Rotary position embeddings: pairs of the last axis, each rotated by an angle.

All forms round where the op does, so the rules are exact: a - b is a + (-b), and sums and products
of two commute.
"""

from __future__ import annotations

from collections.abc import Callable

from core_compiler.ir import Op, Value
from core_compiler.ops import typed
from core_compiler.passes.rules import Match, Rule, either, op


def _takes_range_of_last_axis(op_: Op, first: int, last: int, step: int) -> bool:
    """Return whether a slice takes part of the last axis and all of the others.

    The part is ``first``, ``first + step``... before ``last``.
    """
    cut = typed.Slice.of(op_)
    *lead, _ = cut.x.type.shape
    rest = (0,) * len(lead)
    return (
        cut.starts == (*rest, first)
        and cut.strides == (*(1 for _ in lead), step)
        and cut.limits == (*lead, last)
    )


def _width(op_: Op) -> int:
    size = op_.operands[0].type.shape[-1]
    return size if isinstance(size, int) and size % 2 == 0 else 0


def _half(part: int) -> Callable[[Op], bool]:
    """Match the lower or the upper half of the last axis."""

    def where(op_: Op) -> bool:
        half = _width(op_) // 2
        return half > 0 and _takes_range_of_last_axis(op_, part * half, (part + 1) * half, 1)

    return where


def _every_other(part: int) -> Callable[[Op], bool]:
    """Match the even or the odd elements of the last axis."""

    def where(op_: Op) -> bool:
        width = _width(op_)
        return width > 0 and any(
            _takes_range_of_last_axis(op_, part, last, 2) for last in (width - 1 + part, width)
        )

    return where


def _of_pair(part: int) -> Callable[[Op], bool]:
    """Match one of the two elements of the last axis."""
    return lambda op_: (
        op_.operands[0].type.shape[-1] == 2 and _takes_range_of_last_axis(op_, part, part + 1, 1)
    )


def _last_axis(op_: Op) -> bool:
    return typed.Concat.of(op_).axis == op_.result.type.rank - 1


def _drops_one(op_: Op) -> bool:
    """Match a reshape that only removes a last axis of size 1."""
    return op_.operands[0].type.shape == (*op_.result.type.shape, 1)


def _adds_one(op_: Op) -> bool:
    shape, broadcast = op_.operands[0].type.shape, typed.Broadcast.match(op_)
    in_place = broadcast is None or broadcast.dims == tuple(range(len(shape)))
    return in_place and op_.result.type.shape == (*shape, 1)


def _with_one(part):
    """Match ``part`` with a last axis of size 1."""
    return either(*(op(kind, part, where=_adds_one) for kind in ("reshape", "broadcast")))


# -- x * cos + turned(x) * sin ---------------------------------------------------------------------

_ROTATED_HALVES = op(
    "concat",
    op("neg", op("slice", "x", where=_half(1))),
    op("slice", "x", where=_half(0)),
    where=_last_axis,
)


def _of_whole(b, m: Match) -> Value:
    return b.rotary_embedding(m["x"], m["cos"], m["sin"])


# -- (u * cos - v * sin, u * sin + v * cos) --------------------------------------------------------


def _parts(u, v) -> tuple:
    """Return the rotated parts of each pair."""
    return (
        op("sub", op("mul", u, "cos"), op("mul", v, "sin")),
        op("add", op("mul", u, "sin"), op("mul", v, "cos")),
    )


def _halves(m: Match) -> str | None:
    """Check that the shapes of the angles are known, one angle per pair."""
    return _of_floats(m) or (None if m["cos"].type.is_static else "a size is unknown")


def _of_floats(m: Match) -> str | None:
    found = m["x"].type.dtype
    return None if found.is_float else f"it rotates {found.name}, but the op takes floats"


def _of_halves(b, m: Match) -> Value:
    axis = m["x"].type.rank - 1
    cos, sin = (b.concat(m[name], m[name], axis=axis) for name in ("cos", "sin"))
    return b.rotary_embedding(m["x"], cos, sin)


def _of_pairs(b, m: Match) -> Value:
    """Return the op; ``x`` has pairs along its last axis, or adjacent along the one before."""
    pairs = m.root.result.type.shape
    whole = (*pairs[:-2], pairs[-2] * 2)
    x = m["x"] if m["x"].type.shape == whole else b.reshape(m["x"], shape=whole)
    dims = tuple(range(len(pairs) - 1))
    cos, sin = (
        b.reshape(b.broadcast(m[name], shape=pairs, dims=dims), shape=whole)
        for name in ("cos", "sin")
    )
    return b.reshape(b.rotary_embedding(x, cos, sin, interleaved=True), shape=pairs)


def _lower(part: int):
    return op("slice", "x", where=_half(part))


def _spread(part: int):
    return either(
        op("slice", "x", where=_every_other(part)),
        op("reshape", op("slice", "x", where=_of_pair(part)), where=_drops_one),
    )


RULES = (
    Rule(
        "x * cos + (-v, u) * sin => rotary_embedding",
        op("add", op("mul", "x", "cos"), op("mul", _ROTATED_HALVES, "sin")),
        _of_whole,
        _of_floats,
    ),
    Rule(
        "(u cos - v sin, u sin + v cos) of halves => rotary_embedding",
        op("concat", *_parts(_lower(0), _lower(1)), where=_last_axis),
        _of_halves,
        _halves,
    ),
    Rule(
        "(u cos - v sin, u sin + v cos) of neighbours => rotary_embedding",
        op("concat", *map(_with_one, _parts(_spread(0), _spread(1))), where=_last_axis),
        _of_pairs,
        _halves,
    ),
)
