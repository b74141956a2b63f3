"""Resampling along one axis: each output position is a weighted sum of a few gathered slices.

Positions and weights only depend on sizes and are computed here, in float64.
"""

from __future__ import annotations

import numpy as np

from core_compiler.ir import Value
from core_compiler.ops.builder import Builder


def triangle(x: np.ndarray) -> np.ndarray:
    """Evaluate the kernel of linear interpolation."""
    return np.clip(1 - np.abs(x), 0, 1)


def cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Evaluate Keys' cubic convolution kernel (1981)."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def lanczos(x: np.ndarray) -> np.ndarray:
    """Evaluate the windowed sinc of three lobes (Duchon, 1979)."""
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


def weighted_sum(
    b: Builder, x: Value, axis: int, positions: np.ndarray, weights: np.ndarray
) -> Value:
    """Sum ``weights[i]`` times the slices of ``x`` at ``positions[i]``, both [taps, out]."""
    total = None
    for at, factors in zip(positions, weights, strict=True):
        if not np.any(factors):
            continue
        part = b.take(x, b.constant(at.astype(np.int64)), axis=axis)
        factor = b.constant(factors.astype(x.type.dtype.numpy))
        part = b.mul(part, b.broadcast(factor, shape=part.type.shape, dims=(axis,)))
        total = part if total is None else b.add(total, part)
    assert total is not None  # weights add up to 1
    return total


def weighted_sum_in_fixed_point(
    b: Builder, x: Value, axis: int, positions: np.ndarray, weights: np.ndarray
) -> Value:
    """Compute :func:`weighted_sum` on bytes as Pillow and ATen do: 16-bit weights, rounded once."""
    digits = _fraction_bits(float(weights.max()))
    factors = np.trunc(weights * 2.0**digits + np.where(weights < 0, -0.5, 0.5))
    total = weighted_sum(b, b.cast(x, dtype="i32"), axis, positions, factors)
    total = b.shr(
        b.add(total, b.scalar_like(1 << digits >> 1, total)), b.scalar_like(digits, total)
    )
    total = b.min(b.max(total, b.scalar_like(0, total)), b.scalar_like(255, total))
    return b.cast(total, dtype=x.type.dtype)


def _fraction_bits(largest: float) -> int:
    """Return the number of binary digits after the point that fit into 16 bits (at most 22)."""
    digits = 0
    while digits < 22 and int(0.5 + largest * (1 << (digits + 1))) < 1 << 15:
        digits += 1
    return digits
