"""Slices at run-time positions, built from gathers and selects."""

from __future__ import annotations

from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.rules import I32


def dynamic_slice(b: Builder, op: typed.DynamicSlice) -> Value:
    """Take the positions from each start on, one axis at a time."""
    x, *starts = op.operands
    for axis, start in enumerate(starts):
        size, part = x.type.shape[axis], op.result.type.shape[axis]
        if part < size:
            places = b.iota(shape=(part,), dtype=I32)
            places = b.add(places, b.expand(_clamped(b, start, size - part), (part,)))
            x = b.take(x, places, axis=axis)
    return x


def dynamic_update_slice(b: Builder, op: typed.DynamicUpdateSlice) -> Value:
    """Select the update's element inside the box, and the old element elsewhere."""
    x, update, *starts = op.operands
    inside = None
    for axis, start in enumerate(starts):
        size, part = x.type.shape[axis], update.type.shape[axis]
        if part == size:
            continue
        places = b.iota(shape=(size,), dtype=I32)
        places = b.sub(places, b.expand(_clamped(b, start, size - part), (size,)))
        update = b.take(update, places, axis=axis)
        covered = b.and_(
            b.ge(places, b.scalar_like(0, places)), b.lt(places, b.scalar_like(part, places))
        )
        covered = b.broadcast(covered, shape=x.type.shape, dims=(axis,))
        inside = covered if inside is None else b.and_(inside, covered)
    return update if inside is None else b.select(inside, update, x)


def _clamped(b: Builder, start: Value, room: int) -> Value:
    """Return a start as i32 in ``0..room``, which a narrow dtype may not be able to hold."""
    kind = start.type.dtype
    if kind.bits < 32:
        start = b.cast(start, dtype=I32)
    start = b.max(start, b.constant(0, start.type.dtype))
    return b.cast(b.min(start, b.constant(room, start.type.dtype)), dtype=I32)
