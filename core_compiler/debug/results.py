"""Which results of two stages are the same: by their places, of a training step by their roles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.ir import Module

#: Results of a training step that only passes read: later ones take them away.
_BETWEEN = ("gradient", "scaled", "finite")


def matched(before: Module, after: Module) -> list[tuple[int, int]] | None:
    """Pairs of places, before and after a pass; None where results are gone or have come that
    must not.  A training step gets some: gradients, then the next state."""
    old, new = _roles(before), _roles(after)
    if old is None or new is None:
        count = len(before.main.outputs)
        return [(i, i) for i in range(count)] if count == len(after.main.outputs) else None
    places = {row: place for place, row in reversed(list(enumerate(new)))}
    if any(row not in places and row[0] not in _BETWEEN for row in old):
        return None
    return [(place, places[row]) for place, row in enumerate(old) if row in places]


def _roles(module: Module) -> Sequence[tuple[str, int]] | None:
    """The roles of main's results; None where it is no training step, or a part cut out of one."""
    rows = module.main.attributes.get("results")
    if not isinstance(rows, tuple) or len(rows) != len(module.main.outputs):
        return None
    return rows


def reference(
    before: Module, after: Module, old: Sequence[np.ndarray], new: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """What the results of ``after`` are compared with: ``old``, what those of ``before`` are, and
    where a result is new, that itself (``new``)."""
    made = list(new)
    for there, here in matched(before, after) or ():
        made[here] = old[there]
    return made
