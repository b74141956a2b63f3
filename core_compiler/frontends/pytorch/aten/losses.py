"""Losses of ATen whose gradient differs from that of torch's decomposition."""

from __future__ import annotations

from core_compiler.frontends.pytorch.aten.table import aten

NONE, MEAN, SUM = range(3)


@aten("binary_cross_entropy")
def binary_cross_entropy(b, x, y, weight=None, reduction=MEAN):
    """Compute the loss of probabilities; it and its gradient are finite for 0 and 1."""
    x, y = b.pair(x, y, b.dtype)
    made = b.binary_cross_entropy(x, y)
    if weight is not None:
        made = b.mul(*b.pair(made, weight, b.dtype))
    axes = tuple(range(made.type.rank))
    if reduction == NONE or not axes:
        return made
    return b.mean(made, axes=axes) if reduction == MEAN else b.reduce_sum(made, axes=axes)
