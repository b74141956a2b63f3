"""Positions of elements of which equal ones may stand for each other.

A sort that is not asked to be stable, ``topk`` and ``kthvalue`` may give the position of any of
equal elements, as torch says; where rounding before them differs, of elements that are nearly so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core_compiler.ir import Op, Value
from core_compiler.ops.evaluation import evaluate
from core_compiler.ops.traits import has_trait

#: Ops that hand positions on: some of them, in another form.
_HANDED_ON = frozenset({"core.cast", "core.reshape", "core.slice"})


def finder(value: Value, maker: Callable[[Value], Op | None]) -> list[Op]:
    """The op that found the positions which ``value`` is, then those that hand them on; [] where
    it is no positions.  ``maker`` returns the op that makes a value."""
    chain: list[Op] = []
    while (op := maker(value)) is not None:
        chain.insert(0, op)
        if op.kind not in _HANDED_ON:  # (the first result of topk is elements)
            return chain if has_trait(op, "positions") and value == op.results[-1] else []
        value = op.operands[0]
    return []


def are_ties(chain: list[Op], x: np.ndarray, ours: np.ndarray, theirs: np.ndarray,
             apart: float = 0.0) -> bool:  # fmt: skip
    """Whether two answers of ``chain`` (a :func:`finder`), positions in ``x``, differ only between
    elements that are equal, or no more than ``apart`` from each other."""
    found, *handed_on = chain
    axis = found["axis"]
    if axis < 0 or theirs.shape != ours.shape or theirs.size == 0:
        return False
    if theirs.min() < 0 or theirs.max() >= x.shape[axis]:
        return False
    rows = _rows(found, handed_on, x.shape)
    if rows.shape != theirs.shape:
        return False
    if len(np.unique(np.stack([rows.ravel(), theirs.ravel()]), axis=1).T) != theirs.size:
        return False  # a position twice
    lines = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    at_ours, at_theirs = (lines[rows, i.astype(np.int64)] for i in (ours, theirs))
    same = (at_ours == at_theirs) | ((at_ours != at_ours) & (at_theirs != at_theirs))
    if apart:
        with np.errstate(invalid="ignore"):
            same |= np.abs(at_ours.astype(np.float64) - at_theirs.astype(np.float64)) <= apart
    return bool(same.all())


def _rows(found: Op, handed_on: list[Op], shape: tuple[int, ...]) -> np.ndarray:
    """Of each position that is handed on, the line along the axis in which it is one."""
    axis, made = found["axis"], found.results[-1].type.shape
    others = tuple(n for i, n in enumerate(shape) if i != axis)
    rows = np.arange(int(np.prod(others))).reshape(others)
    if len(made) == len(shape):
        rows = np.repeat(np.expand_dims(rows, axis), made[axis], axis)
    for op in handed_on:
        if op.kind != "core.cast":
            (rows,) = evaluate(op, [rows])
    return rows
