"""Bounds of the elements of a value, derived from the ops that compute it.

They make guards unnecessary: positions known to be in range need no clamp, and floats that fit into
the integer need no saturation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from core_compiler.exporters.base import short
from core_compiler.ir import Op, Value
from core_compiler.ir.views import OpView
from core_compiler.ops import typed
from core_compiler.ops.base import view

Bounds = tuple[float, float]
#: The maximum number of ops that a bound is traced back through.
MAX_DEPTH = 24

#: Ops whose elements are elements of their first operand.
_MOVING_OPS = frozenset(
    {
        "broadcast",
        "reshape",
        "transpose",
        "slice",
        "reverse",
        "dynamic_slice",
        "take",
        "take_along",
        "gather_nd",
        "sort",
        "reduce_max",
        "reduce_min",
        "cummax",
        "cummin",
    }
)
#: Ops whose result is a position on an axis of their operand.
_POSITION_OPS = frozenset({"argmax", "argmin", "argsort"})


class Ranges:
    """Bounds of values, derived from their defining ops; ``numbers`` evaluates constants."""

    def __init__(self, numbers: Callable[[Value], np.ndarray | None]):
        self._numbers = numbers
        self._producers: dict[Value, Op] = {}
        self._aliases: dict[Value, Value] = {}
        self._known: dict[Value, Bounds | None] = {}

    def made(self, op: Op) -> None:
        """Record the op that defines its results."""
        self._producers |= dict.fromkeys(op.results, op)

    def alias(self, value: Value, other: Value) -> None:
        """Record that ``value``, an argument of a region, is ``other``."""
        self._aliases[value] = other

    def of(self, value: Value, depth: int = MAX_DEPTH) -> Bounds | None:
        """Return the least and greatest element, inclusive, without any NaN; None if unknown."""
        while value in self._aliases:
            value = self._aliases[value]
        op = self._producers.get(value)
        if value.type.dtype.kind == "bool" and (op is None or op.kind != "core.constant"):
            return 0, 1
        if op is None or not depth or not value.type.elements:
            return None
        if value not in self._known:
            constant = op.kind == "core.constant"
            found = self._of_constant(value) if constant else self._of_op(op, value, depth - 1)
            self._known[value] = found if found and _fits_dtype(value, found) else None
        return self._known[value]

    def _of_constant(self, value: Value) -> Bounds | None:
        held = self._numbers(value)
        if held is None or held.dtype.kind not in "biuf" or not held.size:
            return None
        low, high = held.min().item(), held.max().item()
        return None if low != low or high != high else (low, high)

    def _of_op(self, op: Op, value: Value, depth: int) -> Bounds | None:
        name, own = short(op), view(op)
        if name in _POSITION_OPS or (name == "topk" and value is op.results[1]):
            return 0, own.x.type.shape[own.axis] - 1
        if name in _MOVING_OPS or name == "topk":
            if name in ("cummax", "cummin") and own.exclusive:  # it starts with an extreme value
                return None
            return self.of(op.operands[0], depth)
        if name == "iota":
            return 0, value.type.shape[own.axis] - 1
        rule = _RULES.get(name)
        if rule is None:
            return None
        return rule(own, [self.of(v, depth) for v in op.operands])


def _fits_dtype(value: Value, found: Bounds) -> bool:
    """Return whether the value's dtype contains the bounds, so that nothing wraps."""
    kind = value.type.dtype
    if kind.kind in ("int", "uint") and kind.bits >= 8:
        limits = np.iinfo(kind.numpy)
        return limits.min <= found[0] and found[1] <= limits.max
    small = max(map(abs, found)) <= 1 << 24
    return kind.kind == "bool" or (kind.name in ("f32", "f64") and small)


def _union(found) -> Bounds | None:
    if any(f is None for f in found):
        return None
    return min(f[0] for f in found), max(f[1] for f in found)


def _cast(op: typed.Cast, found) -> Bounds | None:
    """Return integer bounds that the new dtype can represent; None for floats."""
    whole = op.operands[0].type.dtype.kind != "float"
    return found[0] if whole or op.result.type.dtype.is_float else None


def _sum(op: OpView, found) -> Bounds | None:
    a, b = found
    return None if a is None or b is None else (a[0] + b[0], a[1] + b[1])


def _difference(op: OpView, found) -> Bounds | None:
    a, b = found
    return None if a is None or b is None else (a[0] - b[1], a[1] - b[0])


def _product(op: OpView, found) -> Bounds | None:
    a, b = found
    if a is None or b is None:
        return None
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _larger(op: OpView, found) -> Bounds | None:
    """Bound one end by a single known operand."""
    a, b = (f or _all(op) for f in found)
    return None if a is None or b is None else (max(a[0], b[0]), max(a[1], b[1]))


def _smaller(op: OpView, found) -> Bounds | None:
    a, b = (f or _all(op) for f in found)
    return None if a is None or b is None else (min(a[0], b[0]), min(a[1], b[1]))


def _clamp(op: typed.Clamp, found) -> Bounds | None:
    held = found[0] or _all(op)
    for limit, end in ((op.low, max), (op.high, min)):
        if held is not None and limit is not None:
            held = end(held[0], limit), end(held[1], limit)
    return held


def _all(op: OpView) -> Bounds | None:
    """Return the range of the result's dtype; None for a float, which may be NaN."""
    kind = op.results[0].type.dtype
    if not kind.is_integer or kind.bits < 8:
        return None
    limits = np.iinfo(kind.numpy)
    return int(limits.min), int(limits.max)


def _running_sum(op: typed.Cumsum, found) -> Bounds | None:
    held, count = found[0], op.result.type.shape[op.axis]
    return (
        None
        if held is None
        else (min(held[0] * count, held[0], 0), max(held[1] * count, held[1], 0))
    )


def _remainder(op: typed.Mod, found) -> Bounds | None:
    """Return bounds with the sign of a positive divisor, and below it."""
    divisor = found[1]
    if divisor is None or divisor[0] <= 0 or not op.result.type.dtype.is_integer:
        return None
    return 0, divisor[1] - 1


_RULES: dict[str, Callable[[Any, list[Bounds | None]], Bounds | None]] = {
    "cast": _cast,
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "max": _larger,
    "min": _smaller,
    "clamp": _clamp,
    "mod": _remainder,
    "cumsum": _running_sum,
    "select": lambda op, found: _union(found[1:]),
    "concat": lambda op, found: _union(found),
}
