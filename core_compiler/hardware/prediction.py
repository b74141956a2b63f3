"""Predicted times of GPU kernels: what bounds a launch, and how long it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class WarpWork:
    """The execution of one warp.

    ``instructions`` by pipe; cycles that its requests
    occupy shared memory and the first cache; ``sectors`` (32 bytes) that it requests from the
    second cache, ``cold_sectors`` of them from memory.
    """

    instructions: Mapping[str, float]
    shared_cycles: float
    first_cache_cycles: float
    sectors: float
    cold_sectors: float
