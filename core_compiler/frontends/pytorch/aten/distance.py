"""Distances of ATen, between the rows of two tensors or of one."""

from __future__ import annotations

import numpy as np

from core_compiler.frontends.pytorch.aten.reduction import norm
from core_compiler.frontends.pytorch.aten.table import aten


@aten("_cdist_forward", "cdist")
def cdist(b, x, y, p=2.0, mode=None):
    (*one, rows, width), (*other, columns, _) = x.type.shape, y.type.shape
    x = b.reshape(x, shape=(*one, rows, 1, width))
    y = b.reshape(y, shape=(*other, 1, columns, width))
    return _length(b, b.sub(*b.broadcast_together(x, y)), float(p))


@aten("_pdist_forward", "pdist")
def pdist(b, x, p=2.0):
    first, second = (b.constant(i) for i in np.triu_indices(x.type.shape[0], 1))
    return _length(b, b.sub(b.take(x, first, axis=0), b.take(x, second, axis=0)), float(p))


def _length(b, x, p: float):
    """Return the p-norm over the last axis."""
    if p == float("inf") and x.type.shape[-1] == 0:
        return b.expand(b.constant(0, x.type.dtype), x.type.shape[:-1])
    return norm(b, x, p, (x.type.rank - 1,))
