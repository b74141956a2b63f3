"""Positions of elements of which equal ones may stand for each other.

A sort that is not asked to be stable, ``topk`` and ``kthvalue`` may give the position of any of
equal elements, as torch says; where rounding before them differs, of elements that are nearly so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core_compiler.ir import Op, Value

#: Ops that give positions in their first operand along their ``axis``, and those that hand
#: positions on: some of them, in another form.
POSITIONS = frozenset({"core.topk", "core.argsort", "core.argmax", "core.argmin"})
_HANDED_ON = frozenset({"core.cast", "core.reshape", "core.slice"})


def finder(op: Op | None, maker: Callable[[Value], Op | None]) -> Op | None:
    """The op that found the positions which ``op`` gives or hands on; None where it gives none.
    ``maker`` says what makes a value."""
    while op is not None and op.kind in _HANDED_ON:
        op = maker(op.operands[0])
    return op if op is not None and op.kind in POSITIONS else None


def are_ties(op: Op, x: np.ndarray, ours: np.ndarray, theirs: np.ndarray,
             apart: float = 0.0) -> bool:  # fmt: skip
    """Whether two answers, positions in ``x`` along the axis of ``op`` (a :func:`finder`), differ
    only between elements that are equal, or no more than ``apart`` from each other."""
    axis = op["axis"]
    if theirs.shape != ours.shape or axis < 0 or theirs.size == 0:
        return False
    if theirs.ndim == x.ndim - 1:
        ours, theirs = (np.expand_dims(a, axis) for a in (ours, theirs))
    others = [tuple(np.delete(a.shape, axis)) for a in (x, theirs)] if theirs.ndim == x.ndim else []
    if len(set(others)) != 1 or theirs.min() < 0 or theirs.max() >= x.shape[axis]:
        return False
    if (np.diff(np.sort(theirs, axis), axis=axis) == 0).any():
        return False  # a position twice
    at_ours, at_theirs = (np.take_along_axis(x, i.astype(np.int64), axis) for i in (ours, theirs))
    same = (at_ours == at_theirs) | ((at_ours != at_ours) & (at_theirs != at_theirs))
    if apart:
        with np.errstate(invalid="ignore"):
            same |= np.abs(at_ours.astype(np.float64) - at_theirs.astype(np.float64)) <= apart
    return bool(same.all())
