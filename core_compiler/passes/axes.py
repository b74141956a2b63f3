"""The positions of a value's axes within another value's, through views, and their rearrangement.

An axis is a tuple of digits ``(of, stride, size)``: positions along it count through ``size`` steps
of ``stride`` along axis ``of`` of the reference value, the last digit fastest.  For example, an
axis of 6 that a reshape splits into 2 and 3 is ``((0, 3, 2),)`` and ``((0, 1, 3),)``, one that
merges axes 0 and 1 is ``((0, 1, 2), (1, 1, 3))``, and one of size 1 has no digits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from core_compiler.ir import Op, Value
from core_compiler.ops import typed
from core_compiler.ops.base import definition, view
from core_compiler.passes.rules import MOVES, Match, MatchFailure, View
from core_compiler.support.errors import InternalError

#: The number of an axis, or a name and a number for an axis that the reference value does not have.
AxisId = int | tuple[str, int]
Digit = tuple[AxisId, int, int]
Axis = tuple[Digit, ...]
Axes = tuple[Axis, ...]


def identity_axes(shape: Sequence[int]) -> Axes:
    """Return the axes of a value relative to itself."""
    return tuple(((axis, 1, size),) if size != 1 else () for axis, size in enumerate(shape))


def length(axis: Axis) -> int:
    return prod(size for _, _, size in axis)


def flatten_axes(axes: Sequence[Axis]) -> Axis:
    """Return all digits as one axis; neighbours that count through one axis are merged."""
    out: list[Digit] = []
    for of, stride, size in (digit for axis in axes for digit in axis):
        if out and out[-1][0] == of and out[-1][1] == stride * size:
            size *= out.pop()[2]
        out.append((of, stride, size))
    return tuple(out)


def canonical_digits(axes: Sequence[Axis]) -> Axis:
    """Return the digits in a canonical order, equal for axes that cover the same positions."""
    found = {digit for axis in axes for digit in axis}
    return flatten_axes([tuple(sorted(found, key=lambda d: (repr(d[0]), -d[1])))])


def operand_axes(op: Op, axes: Axes) -> Axes | None:
    """Return the axes of a view's operand, given those of its result, or None.

    None if a reshape splits them in a way that digits cannot express.
    """
    (x,), transpose, broadcast = op.operands, typed.Transpose.match(op), typed.Broadcast.match(op)
    if transpose is not None:
        at = {axis: position for position, axis in enumerate(transpose.permutation)}
        return tuple(axes[at[axis]] for axis in range(x.type.rank))
    if broadcast is not None:
        sizes = zip(broadcast.dims, x.type.shape, strict=True)
        return tuple(axes[d] if size == broadcast.shape[d] else () for d, size in sizes)
    return split_digits(flatten_axes(axes), x.type.shape)


def split_digits(digits: Axis, sizes: Sequence[int]) -> Axes | None:
    """Return digits split into axes of these sizes, in order, or None.

    None if a digit is not divisible accordingly, or if there are no elements.
    """
    if 0 in sizes or any(count == 0 for _, _, count in digits):
        return None
    rest = list(reversed(digits))
    out: list[Axis] = []
    for size in sizes:
        axis: list[Digit] = []
        while size != 1:
            if not rest:
                return None
            of, stride, count = rest.pop()
            if count > size and count % size == 0:
                rest.append((of, stride, count // size))
                stride, count = stride * (count // size), size
            if size % count:
                return None
            axis.append((of, stride, count))
            size //= count
        out.append(tuple(axis))
    return tuple(out) if not rest else None


def view_chain(value: Value, axes: Axes, view: View, repeats: bool) -> Iterator[tuple[Value, Axes]]:
    """Yield ``value`` and the values that it is a view of, each with its axes.

    ``repeats``: also through a broadcast that repeats elements.  It ends when it reaches a value
    again: an e-class may contain a view of itself.
    """
    seen: set[Value] = set()
    while value not in seen:
        seen.add(value)
        yield value, axes
        producer = view.producer(value)
        if producer is None or producer.kind not in MOVES:
            return
        (x,) = producer.operands
        if not repeats and x.type.elements != value.type.elements:
            return
        found = operand_axes(producer, axes)
        if found is None:
            return
        value, axes = x, found


class AxisMap:
    """The axes of the values of a match relative to its root's result.

    They are found through the elementwise ops and views of the match.  ``axis_map[value]`` is None
    if unknown, or if a value is read in two arrangements.
    """

    def __init__(self, m: Match):
        self.view = m.view
        self._known: dict[Value, Axes | None] = {}
        inside = set(m.ops)
        work = []
        if m.root.result.type.is_static:
            work = [(m.root.result, identity_axes(m.root.result.type.shape))]
        while work:
            value, axes = work.pop()
            if value in self._known:
                if self._known[value] != axes:
                    self._resolve_conflict(value, m)
                continue
            self._known[value] = axes
            producer = m.view.producer(value)
            if producer not in inside or producer is None:
                continue
            if "elementwise" in definition(producer).traits:
                work += [(v, axes) for v in producer.operands]
            elif producer.kind in MOVES:
                found = operand_axes(producer, axes)
                work += [(producer.operands[0], found)] if found is not None else []

    def _resolve_conflict(self, value: Value, m: Match) -> None:
        """Handle a value read in two arrangements: forget its axes if constant, else all axes."""
        if m.view.constant(value, through=()) is not None:
            self._known[value] = None
        else:
            self._known = dict.fromkeys(self._known)

    def __getitem__(self, value: Value) -> Axes | None:
        """Return the axes of ``value``, derived from a view of it if only that is read."""
        if value in self._known:
            return self._known[value]
        for known, axes in list(self._known.items()):
            if axes is not None:
                for found, its in view_chain(known, axes, self.view, repeats=False):
                    if found is value:
                        return its
        return None

    def reduced_axes(self, reduction: Op, source: Axes | None = None) -> Axis:
        """Return the axes that a reduction removes.

        Raises Unfit if the result is not broadcast back to the positions of the rest of its operand
        (``source``, if known from elsewhere).
        """
        source, back = source or self[reduction.operands[0]], self[reduction.result]
        if source is None or back is None:
            raise MatchFailure("a reduction and its reader have different axis orders")
        gone = view(reduction).axes
        if flatten_axes(back) != flatten_axes([a for i, a in enumerate(source) if i not in gone]):
            raise MatchFailure("a broadcast does not restore the axes of its reduction")
        return flatten_axes([source[axis] for axis in gone])

    def parameter(self, value: Value, wanted: Sequence[Axis]) -> Parameter | None:
        """Return ``value`` as a tensor over the axes ``wanted``; None if it varies elsewhere."""
        axes = self._known.get(value)
        if axes is None:
            return None
        found = compact(value, axes, self.view)
        return Parameter(found, tuple(wanted)) if covers(wanted, found.axes) else None


@dataclass(frozen=True)
class CompactValue:
    """A value without the repetitions of its views.

    For a constant its ``array``, without the axes along which it repeats.
    """

    value: Value
    axes: Axes
    array: np.ndarray | None

    def build(self, b) -> Value:
        if self.array is None or self.array.shape == self.value.type.shape:
            return self.value
        return b.constant(self.array)


def compact(value: Value, axes: Axes, view: View) -> CompactValue:
    *_, (value, axes) = view_chain(value, axes, view, repeats=True)
    array = view.constant(value, through=())
    if array is None or not array.size:
        return CompactValue(value, axes, array)
    kept = list(range(len(axes)))
    left = array
    for axis in reversed(kept[:]):
        first = left.take([0], axis)
        if np.array_equal(np.broadcast_to(first, left.shape), left):
            left = first.reshape(first.shape[:axis] + first.shape[axis + 1 :])
            kept.remove(axis)
    return CompactValue(value, tuple(axes[a] for a in kept), left)


@dataclass(frozen=True)
class Parameter:
    """A value that varies only along ``wanted``, ready to be built over these axes."""

    compact: CompactValue
    wanted: Axes

    @property
    def axes(self) -> Axes:
        return self.compact.axes

    def build(self, b) -> Value:
        return rearrange(b, self.compact.build(b), self.compact.axes, self.wanted)


def covers(wanted: Sequence[Axis], axes: Sequence[Axis]) -> bool:
    """Return whether every digit of ``axes`` is one of ``wanted``."""
    made = refine_axes(wanted, axes)
    if made is None:
        return False
    return {d for axis in made[1] for d in axis} <= {d for axis in made[0] for d in axis}


def refine_axes(*many: Sequence[Axis]) -> list[list[Axis]] | None:
    """Return the axes with digits split so that any two are equal or disjoint, or None.

    None if that is not possible.
    """
    bounds: dict[AxisId, set[int]] = {}
    if any(size == 0 for axes in many for axis in axes for _, _, size in axis):
        return None
    for of, stride, size in (d for axes in many for axis in axes for d in axis):
        bounds.setdefault(of, set()).update((stride, stride * size))
    out: list[list[Axis]] = []
    for axes in many:
        fine: list[Axis] = []
        for axis in axes:
            digits: list[Digit] = []
            for of, stride, size in axis:
                edges = sorted(e for e in bounds[of] if stride <= e <= stride * size)[::-1]
                pairs = list(itertools.pairwise(edges))
                if any(high % low for high, low in pairs):
                    return None
                digits += [(of, low, high // low) for high, low in pairs]
            fine.append(tuple(digits))
        out.append(fine)
    return out


def rearrange(b, value: Value, axes: Sequence[Axis], target: Sequence[Axis]) -> Value:
    """Return ``value``, whose axes are ``axes``, with axes ``target``; missing ones are repeated.

    It takes at most a reshape, a transpose, a broadcast and a reshape.  ``target`` covers ``axes``.
    """
    made = refine_axes(axes, target)
    if made is None:
        raise InternalError(f"{value} cannot be rearranged: ask covers() first")
    own = [d for axis in made[0] for d in axis]
    wanted = [d for axis in made[1] for d in axis]
    present = [d for d in wanted if d in own]
    value = _reshape(b, value, [size for _, _, size in own])
    order = tuple(own.index(d) for d in present)
    if order != tuple(range(len(order))):
        value = b.transpose(value, permutation=order)
    if len(present) < len(wanted):
        dims = tuple(position for position, d in enumerate(wanted) if d in own)
        value = b.broadcast(value, shape=tuple(size for _, _, size in wanted), dims=dims)
    return _reshape(b, value, [length(axis) for axis in target])


def _reshape(b, value: Value, shape: Sequence[int]) -> Value:
    return value if value.type.shape == tuple(shape) else b.reshape(value, shape=tuple(shape))
