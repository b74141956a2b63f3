"""The sum over shards, by a fixed binary tree over their numbers (numerics contract).

Shards 0 and 1 are added, 2 and 3, and so on; the sums in the same way, until one is left. An
element without a partner moves up unchanged. The result does not depend on which worker holds a
shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from core_compiler.numerics.reference.dtypes import cast, widen

#: Elements added at a time, so that the data stay in a core's cache.
BLOCK = 1 << 14


def tree_sum(held: Sequence[np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
    """Return the sum of arrays of one shape and dtype, in ``out`` if given (contiguous).

    Floats narrower than f32 are added in f32 and rounded once; integers wrap.
    """
    first = held[0]
    made = np.empty(first.shape, first.dtype) if out is None else out
    flat = [np.ascontiguousarray(a).reshape(-1) for a in held]
    to = made.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, to.size, BLOCK):
            total = pairwise([widen(a[start : start + BLOCK]) for a in flat], np.add)
            to[start : start + BLOCK] = (
                total if total.dtype == made.dtype else cast(total, made.dtype)
            )
    return made


def pairwise(parts: Sequence[Any], add: Callable[[Any, Any], Any]) -> Any:
    """Combine ``parts`` by the tree: arrays, or values of generated code."""
    while len(parts) > 1:
        pairs = [add(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, parts[-1]] if len(parts) % 2 else pairs
    return parts[0]
