"""Shape computations shared by both dialects."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np


def groups(wide: Sequence[Any], narrow: Sequence[Any]) -> list[list[int]] | None:
    """Return, for each axis of ``narrow``, the adjacent axes of ``wide`` that it merges.

    None if ``narrow`` is not a merger of ``wide``.  The result is meaningless for shapes without
    elements.
    """
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


def kept_ranges(
    shape: Sequence[Any], low: Sequence[int], extents: Sequence[Any], interior: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Return where ``core.pad`` puts a tensor in a padded one of ``extents``.

    For each axis: (the first element that is not cropped, the number of elements kept, the position
    of that first element).
    """
    made = []
    for size, before, extent, between in zip(shape, low, extents, interior, strict=True):
        step = between + 1
        first = max(0, -(before // step))
        last = min(size, (extent - 1 - before) // step + 1)
        made.append((first, max(0, last - first), before + first * step))
    return made


def positions_inside(
    sizes: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    low: Sequence[int],
    outputs: Sequence[int],
) -> np.ndarray:
    """Count, for each output, the positions of its window inside an image of ``sizes``."""
    counts = np.ones(())
    rows = zip(sizes, window, strides, dilations, low, outputs, strict=True)
    for size, taps, stride, dilation, before, count in rows:
        at = np.arange(count)[:, None] * stride + np.arange(taps) * dilation - before
        counts = np.multiply.outer(counts, ((at >= 0) & (at < size)).sum(1).astype(np.float64))
    return counts
