"""Positions of equal elements, which may be exchanged for each other.

An unstable sort, ``topk`` and ``kthvalue`` may return the position of any of several equal
elements, as torch documents; if the rounding before them differs, also of nearly equal elements.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core_compiler.ir import Op, Value
from core_compiler.ops.base import view
from core_compiler.ops.evaluation import evaluate
from core_compiler.ops.traits import has_trait

#: Ops that pass positions on: some of them, or in another form.
_HANDED_ON = frozenset({"core.cast", "core.reshape", "core.slice"})


def finder(value: Value, maker: Callable[[Value], Op | None]) -> list[Op]:
    """Return the op that found the positions in ``value``, then the ops that pass them on.

    Returns [] if the value does not hold positions.  ``maker`` returns the op that defines a value.
    """
    chain: list[Op] = []
    while (op := maker(value)) is not None:
        chain.insert(0, op)
        if op.kind not in _HANDED_ON:  # (the first result of topk holds elements)
            return chain if has_trait(op, "positions") and value == op.results[-1] else []
        value = op.operands[0]
    return []


def are_ties(
    chain: list[Op], x: np.ndarray, ours: np.ndarray, theirs: np.ndarray, tolerance: float = 0.0
) -> bool:
    """Return whether two results of ``chain`` differ only between equal elements.

    ``chain`` is the result of :func:`finder`, the results are positions in ``x``.  Elements count
    as equal if they differ by at most ``tolerance``.
    """
    found, *views = chain
    axis = view(found).axis
    if axis < 0 or theirs.shape != ours.shape or theirs.size == 0:
        return False
    if theirs.min() < 0 or theirs.max() >= x.shape[axis]:
        return False
    rows = _rows(found, views, x.shape)
    if rows.shape != theirs.shape:
        return False
    if len(np.unique(np.stack([rows.ravel(), theirs.ravel()]), axis=1).T) != theirs.size:
        return False  # a position occurs twice
    lines = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    at_ours, at_theirs = (lines[rows, i.astype(np.int64)] for i in (ours, theirs))
    same = (at_ours == at_theirs) | ((at_ours != at_ours) & (at_theirs != at_theirs))
    if tolerance:
        with np.errstate(invalid="ignore"):
            same |= np.abs(at_ours.astype(np.float64) - at_theirs.astype(np.float64)) <= tolerance
    return bool(same.all())


def _rows(found: Op, handed_on: list[Op], shape: tuple[int, ...]) -> np.ndarray:
    """Return, for each position passed on, the line along the axis that it is a position in."""
    axis, made = view(found).axis, found.results[-1].type.shape
    others = tuple(n for i, n in enumerate(shape) if i != axis)
    rows = np.arange(int(np.prod(others))).reshape(others)
    if len(made) == len(shape):
        rows = np.repeat(np.expand_dims(rows, axis), made[axis], axis)
    for op in handed_on:
        if op.kind != "core.cast":
            (rows,) = evaluate(op, [rows])
    return rows
