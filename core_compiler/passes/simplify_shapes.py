"""Simplify shapes: chains of reshape, transpose, broadcast and slice become at most one op.

So does a take at known positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.kernel_ir import scalars
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.passes.axes import Axes, identity_axes, operand_axes, rearrange
from core_compiler.passes.base import Pass
from core_compiler.passes.canonicalise import _identity_slice, _same
from core_compiler.passes.grouping import is_widening
from core_compiler.passes.rules import Any_, Const, Match, Rule, apply_rules, op


def _same_shape(o) -> bool:
    return o.operands[0].type.shape == o.result.type.shape


def _in_order(axes: tuple[int, ...]) -> bool:
    return axes == tuple(range(len(axes)))


def _compose_transposes(b, m: Match):
    inner, outer = (typed.Transpose.of(o).permutation for o in (m.named["inner"], m.root))
    return b.transpose(m["x"], permutation=tuple(inner[a] for a in outer))


def _compose_broadcasts(b, m: Match):
    inner, outer = (typed.Broadcast.of(o).dims for o in (m.named["inner"], m.root))
    shape = m.root.result.type.shape
    return b.broadcast(m["x"], shape=shape, dims=tuple(outer[d] for d in inner))


def _compose_slices(b, m: Match):
    inner, outer = (typed.Slice.of(o) for o in (m.named["inner"], m.root))
    starts, limits, strides = [], [], []
    for i, axis in enumerate(zip(outer.starts, outer.limits, outer.strides, strict=True)):
        start, limit, step = axis
        assert isinstance(limit, int)  # sizes are bound before passes run
        base, jump = inner.starts[i], inner.strides[i]
        starts.append(base + start * jump)
        last = base + (limit - 1) * jump
        limits.append(last + 1 if limit > start else starts[-1])
        strides.append(step * jump)
    return b.slice(m["x"], starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))


def _broadcasts_nothing(o: Op) -> bool:
    return _same_shape(o) and _in_order(typed.Broadcast.of(o).dims)


def _transposes_nothing(o: Op) -> bool:
    return _in_order(typed.Transpose.of(o).permutation)


def _pads_nothing(o: Op) -> bool:
    pad = typed.Pad.of(o)
    return not any((*pad.low, *pad.high, *pad.interior))


def _moves_only_ones(o: Op) -> bool:
    """Return whether a transpose moves only axes of size 1: the same bytes in the same order."""
    shape, permutation = o.operands[0].type.shape, typed.Transpose.of(o).permutation
    kept = [a for a in permutation if shape[a] != 1]
    return kept == sorted(kept)


def _inserted_ones_only(m: Match) -> str | None:
    """Check that a reshape under a broadcast only inserts or drops axes of size 1."""
    before = [d for d in m["x"].type.shape if d != 1]
    after = [d for d in m.named["inner"].result.type.shape if d != 1]
    return None if before == after else "the reshape does more than insert or drop axes of size 1"


def _broadcast_through_reshape(b, m: Match):
    """Return dims to broadcast ``x`` directly, skipping a reshape that moves axes of size 1."""
    middle, dims = m.named["inner"].result.type.shape, typed.Broadcast.of(m.root).dims
    wide = [dims[i] for i, d in enumerate(middle) if d != 1]
    shape = m["x"].type.shape
    if 1 in shape:
        x = b.reshape(m["x"], shape=tuple(d for d in shape if d != 1))
    else:
        x = m["x"]
    return b.broadcast(x, shape=m.root.result.type.shape, dims=tuple(wide))


def _needs_progress(m: Match) -> str | None:
    shape = m["x"].type.shape
    if 1 in shape and m.named["inner"].result.type.shape == tuple(d for d in shape if d != 1):
        return "the reshape already drops only the axes of size 1"
    return _inserted_ones_only(m)


def _indices_are_evenly_spaced(m: Match) -> str | None:
    """Check that the indices of a take are evenly spaced, ascending positions of its axis."""
    indices = m.array("i").reshape(-1).astype(np.int64)
    if indices.size != m["i"].type.elements:
        return "the indices are one repeated number"
    if indices[0] < 0 or indices[-1] >= m["x"].type.shape[typed.Take.of(m.root).axis]:
        return "some indices are out of range"
    steps = np.diff(indices)
    if np.any(steps != steps[:1]) or np.any(steps < 1):
        return "the indices are not ascending and evenly spaced"
    return None


def _take_as_slice(b, m: Match):
    indices, axis = m.array("i").reshape(-1), typed.Take.of(m.root).axis
    shape = m["x"].type.shape
    first, last = int(indices[0]), int(indices[-1])
    cut = b.slice(
        m["x"],
        starts=tuple(first if a == axis else 0 for a in range(len(shape))),
        limits=tuple(last + 1 if a == axis else size for a, size in enumerate(shape)),
        strides=tuple(
            int(indices[1]) - first if a == axis and indices.size > 1 else 1
            for a in range(len(shape))
        ),
    )
    return b.reshape(cut, shape=m.root.result.type.shape)


def _widens_integers(o: Op) -> bool:
    """Return whether a cast widens integers: moved before it, they are fewer bytes."""
    return o.operands[0].type.dtype.is_integer and is_widening(o)


def _pads_with_narrow(m: Match) -> str | None:
    """Check that an integer is padded with a value of the dtype that it is widened from."""
    value, kind = m.array("v"), m["x"].type.dtype
    low, high = scalars.integer_range(kind)
    if low <= value <= high and value == np.round(value) and not (value == 0 and np.signbit(value)):
        return None
    return f"{value} is not a value of {kind.name}"


def _padded_before_cast(b, m: Match):
    pad, kind = typed.Pad.of(m.root), m["x"].type.dtype
    value = b.constant(m.array("v").astype(kind.numpy), kind)
    made = b.pad(m["x"], value, low=pad.low, high=pad.high, interior=pad.interior)
    return b.cast(made, **m.named["inner"].attributes)


def _transposed_before_pad(b, m: Match):
    pad, permutation = typed.Pad.of(m.named["inner"]), typed.Transpose.of(m.root).permutation
    low, high, interior = (
        tuple(each[a] for a in permutation) for each in (pad.low, pad.high, pad.interior)
    )
    x = b.transpose(m["x"], permutation=permutation)
    return b.pad(x, m["v"], low=low, high=high, interior=interior)


def _merged(shape, new_shape) -> list[list[int]] | None:
    """Return the axes that each axis of ``new_shape`` consists of, or None if one is split.

    Axes of size 1 are in none.
    """
    groups, wide = [], [axis for axis, size in enumerate(shape) if size != 1]
    for size in new_shape:
        group, count = [], 1
        while wide and count < size:
            group.append(wide.pop(0))
            count *= shape[group[-1]]
        if count != size:
            return None
        groups.append(group)
    return None if wide else groups


def _reshaped_pad(m: Match):
    """Return the shape and the padding of a reshaped padded value, if only first axes are padded.

    That is, the outermost of the axes that become one.
    """
    pad, x = typed.Pad.of(m.named["inner"]), m["x"].type.shape
    groups = _merged(m.named["inner"].result.type.shape, m.root.result.type.shape)
    amounts = list(zip(pad.low, pad.high, pad.interior, strict=True))
    if groups is None or any(pad.interior):
        return None
    first = {g[0] for g in groups if g}
    if any(any(each) for axis, each in enumerate(amounts) if axis not in first):
        return None
    shape = tuple(prod(x[a] for a in g) for g in groups)
    low, high = (
        tuple(each[g[0]] * prod(x[a] for a in g[1:]) if g else 0 for g in groups)
        for each in (pad.low, pad.high)
    )
    return shape, low, high


def _pads_whole_rows(m: Match) -> str | None:
    return "an axis that becomes part of another is padded" if _reshaped_pad(m) is None else None


def _reshaped_before_pad(b, m: Match):
    shape, low, high = _reshaped_pad(m)
    x = b.reshape(m["x"], shape=shape)
    return b.pad(x, m["v"], low=low, high=high, interior=(0,) * len(shape))


_MOVES = frozenset({"core.reshape", "core.transpose"})


def _moved(m: Match) -> tuple[Axes, Axes] | None:
    """Return (axes of x, those of the result) of a chain of reshapes and transposes.

    ``x`` is the value behind the chain that ends here.
    """
    if 0 in m.root.result.type.shape:  # an empty value has no positions
        return None
    target = identity_axes(m.root.result.type.shape)
    axes = operand_axes(m.root, target)
    for op_ in m.ops[1:]:
        axes = None if axes is None else operand_axes(op_, axes)
    return None if axes is None else (axes, target)


def _takes_fewer_ops(m: Match) -> str | None:
    """Check that fewer reshapes and transposes do the same."""
    if not m["x"].type.is_static:
        return "a size is unknown"
    moved = _moved(m)
    if moved is None:
        return "a reshape splits axes in a way that no transpose expresses"
    b = Builder()
    rearrange(b, m["x"], *moved)
    return None if len(b.ops) < len(m.ops) else f"{len(m.ops)} ops are already the minimum"


def _rearranged(b, m: Match):
    moved = _moved(m)
    return None if moved is None else rearrange(b, m["x"], *moved)


_CHAIN = Any_("x", through=lambda o: o.kind in _MOVES)

RULES = (
    Rule("reshape to the same shape => x", op("reshape", "x", where=_same_shape), _same),
    Rule("broadcast to the same shape => x",
         op("broadcast", "x", where=_broadcasts_nothing), _same),
    Rule("transpose by the identity => x",
         op("transpose", "x", where=_transposes_nothing), _same),
    Rule("slice of everything => x", op("slice", "x", where=_identity_slice), _same),
    Rule("pad by nothing => x",
         op("pad", "x", "v", where=_pads_nothing),
         _same),
    Rule("reshape(reshape(x)) => reshape(x)", op("reshape", op("reshape", "x")),
         lambda b, m: b.reshape(m["x"], shape=m.root.result.type.shape)),
    Rule("transpose(transpose(x)) => transpose(x)",
         op("transpose", op("transpose", "x", name="inner")), _compose_transposes),
    Rule("transpose of axes of size 1 => reshape", op("transpose", "x", where=_moves_only_ones),
         lambda b, m: b.reshape(m["x"], shape=m.root.result.type.shape)),
    Rule("broadcast(broadcast(x)) => broadcast(x)",
         op("broadcast", op("broadcast", "x", name="inner")), _compose_broadcasts),
    Rule("broadcast(reshape(x)) => broadcast(x)",
         op("broadcast", op("reshape", "x", name="inner")), _broadcast_through_reshape,
         check=_needs_progress),
    Rule("reshape(reshapes and transposes) => fewer of them", op("reshape", _CHAIN), _rearranged,
         check=_takes_fewer_ops),
    Rule("transpose(reshapes and transposes) => fewer of them", op("transpose", _CHAIN),
         _rearranged, check=_takes_fewer_ops),
    Rule("transpose(cast(x)) of integers => cast(transpose(x))",
         op("transpose", op("cast", "x", name="inner", where=_widens_integers)),
         lambda b, m: b.cast(
             b.transpose(m["x"], permutation=typed.Transpose.of(m.root).permutation),
             **m.named["inner"].attributes)),
    Rule("reshape(cast(x)) of integers => cast(reshape(x))",
         op("reshape", op("cast", "x", name="inner", where=_widens_integers)),
         lambda b, m: b.cast(
             b.reshape(m["x"], shape=m.root.result.type.shape), **m.named["inner"].attributes)),
    Rule("pad(cast(x)) of integers => cast(pad(x))",
         op("pad", op("cast", "x", name="inner", where=_widens_integers), Const("v")),
         _padded_before_cast, check=_pads_with_narrow),
    Rule("transpose(pad(x)) => pad(transpose(x))",
         op("transpose", op("pad", "x", "v", name="inner", one_use=True)), _transposed_before_pad),
    Rule("reshape(pad(x)) => pad(reshape(x))",
         op("reshape", op("pad", "x", "v", name="inner", one_use=True)), _reshaped_before_pad,
         check=_pads_whole_rows),
    Rule("slice(slice(x)) => slice(x)",
         op("slice", op("slice", "x", name="inner")), _compose_slices),
    Rule("take of places in a row => slice",
         op("take", "x", Const("i", lambda indices: indices.size > 0, "one place at least")),
         _take_as_slice, check=_indices_are_evenly_spaced),
)  # fmt: skip


@dataclass(frozen=True)
class SimplifyShapes(Pass):
    """Collapse chains of reshape, transpose, broadcast and slice."""

    @override
    def table(self):
        return RULES

    @override
    def run(self, module, context):
        return context.rewrite(module, lambda rw: apply_rules(rw, RULES, module.weights))
