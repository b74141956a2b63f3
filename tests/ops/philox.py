"""Philox4x32-10 in plain Python integers, from the paper (Salmon et al., SC 2011), as an oracle."""

from __future__ import annotations

import math

import numpy as np

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def philox(counter, key) -> tuple[int, int, int, int]:
    """Four random words of a counter of four words under a key of two."""
    c, k = tuple(counter), tuple(key)
    for _ in range(10):
        left, right = c[0] * _MULTIPLIERS[0], c[2] * _MULTIPLIERS[1]
        c = ((right >> 32) ^ c[1] ^ k[0], right & _MASK, (left >> 32) ^ c[3] ^ k[1], left & _MASK)
        k = tuple((word + step) & _MASK for word, step in zip(k, _WEYL, strict=True))
    return c


def words(seed: int, stream: int, iteration: int, count: int, trip: int = 0) -> np.ndarray:
    """The contract's first ``count`` words of a stream."""
    key = (seed & _MASK, (seed >> 32) & _MASK)
    blocks = [philox((i, stream, iteration, trip), key) for i in range(-(-count // 4))]
    return np.array(blocks, np.uint32).reshape(-1)[:count]


def uniform(bits: np.ndarray) -> np.ndarray:
    """The contract's uniform numbers of words, in f64."""
    return (bits >> np.uint32(8)).astype(np.float64) * 2.0**-24


def normal(seed: int, stream: int, iteration: int, count: int) -> np.ndarray:
    """The contract's normal numbers, in f64."""
    bits = words(seed, stream, iteration, -(-count // 4) * 4).reshape(-1, 2)
    first = ((bits[:, 0] >> np.uint32(8)).astype(np.float64) + 1) * 2.0**-24
    radius, angle = np.sqrt(-2 * np.log(first)), 2 * math.pi * uniform(bits[:, 1])
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1)[:count]
