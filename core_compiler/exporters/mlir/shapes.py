"""Facts of shapes that both dialects need."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np


def groups(wide: Sequence[int], narrow: Sequence[int]) -> list[list[int]] | None:
    """For each axis of ``narrow`` the neighbouring axes of ``wide`` that it merges; None where it
    is no such merger.  Shapes without elements have no answer that is worth one."""
    made: list[list[int]] = []
    place = 0
    for size in narrow:
        group: list[int] = []
        while place < len(wide) and (not group or prod(wide[i] for i in group) < size):
            group.append(place)
            place += 1
        if prod(wide[i] for i in group) != size or not group:
            return None
        made.append(group)
    rest = list(range(place, len(wide)))
    if any(wide[i] != 1 for i in rest):
        return None
    if made:
        made[-1] += rest
    return made


def placed(size: int, low: int, extent: int, interior: int) -> tuple[int, int, int]:
    """Where an axis of ``size`` elements stands in a padded one of ``extent``: (its first element
    that is not cropped, how many are kept, the place of that first one)."""
    step = interior + 1
    first = max(0, -(low // step))
    last = min(size, (extent - 1 - low) // step + 1)
    return first, max(0, last - first), low + first * step


def reduced_last(rank: int, axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(axes that stay, ``axes``)."""
    return tuple(a for a in range(rank) if a not in axes), tuple(axes)


def positions_inside(
    sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    low: Sequence[int], outputs: Sequence[int],
) -> np.ndarray:  # fmt: skip
    """How many positions of the window at each output lie inside an image of ``sizes``."""
    counts = np.ones(())
    rows = zip(sizes, window, strides, dilations, low, outputs, strict=True)
    for size, taps, stride, dilation, before, count in rows:
        at = np.arange(count)[:, None] * stride + np.arange(taps) * dilation - before
        counts = np.multiply.outer(counts, ((at >= 0) & (at < size)).sum(1).astype(np.float64))
    return counts
