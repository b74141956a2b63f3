"""Matching of the results of two stages: by position, in a training step by role."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from core_compiler.ir import Module, Value
from core_compiler.ir.types import is_sized

#: Results of a training step that only passes read: later passes remove them.
_BETWEEN = ("gradient", "scaled", "finite")


def matched(before: Module, after: Module) -> list[tuple[int, int]] | None:
    """Return pairs of positions before and after a pass, or None if results do not match.

    None if results were removed or added without permission.  A training step may gain gradients,
    then the next state; an imported graph may gain results that say how much of a result counts.
    """
    old, new = _roles(before), _roles(after)
    if old is None or new is None:
        old_count, new_count = len(before.main.outputs), len(after.main.outputs)
        same = old_count <= new_count if _is_import(before, after) else old_count == new_count
        return [(i, i) for i in range(old_count)] if same else None
    new_positions = {row: position for position, row in reversed(list(enumerate(new)))}
    if any(row not in new_positions and row[0] not in _BETWEEN for row in old):
        return None
    return [
        (position, new_positions[row]) for position, row in enumerate(old) if row in new_positions
    ]


def _is_import(before: Module, after: Module) -> bool:
    return before.main.level != "tensor" == after.main.level


def counting(
    kept: Value, made: Value, old: np.ndarray, new: np.ndarray, room: Collection[Value] = ()
) -> np.ndarray:
    """Return the part of ``new`` that counts.

    If ``kept`` had an open size or ``made`` is in ``room``, it has room for the largest size, and
    the valid elements come first.
    """
    opened = is_sized(made.type) and not is_sized(kept.type)
    if not (opened or made in room) or old.ndim != new.ndim:
        return new
    return new[tuple(map(slice, old.shape))]


def _roles(module: Module) -> Sequence[tuple[str, int]] | None:
    """Return the roles of main's results, or None if it is no training step or a part of one."""
    rows = module.main.attributes.get("results")
    if not isinstance(rows, tuple) or len(rows) != len(module.main.outputs):
        return None
    return rows


def reference(
    before: Module, after: Module, old: Sequence[np.ndarray], new: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the expected results of ``after``: those of ``before`` (``old``) where they match.

    A result that is new, or has room for more, is its own reference (``new``).
    """
    made = list(new)
    for old_index, new_index in matched(before, after) or ():
        if old[old_index].shape == made[new_index].shape:
            made[new_index] = old[old_index]
    return made
