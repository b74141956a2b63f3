"""Ops of exported mixtures of experts: histograms for counting, products by groups of rows."""

from __future__ import annotations

import numpy as np

from core_compiler.frontends.pytorch.aten.table import I64, TABLE, NotSupported, aten


@aten("histc")
def histc(b, x, bins=100, low=0, high=0):
    """Count the elements in each of ``bins`` equal parts of [low, high]; ignore those outside."""
    low, high = float(low), float(high)
    if low == high:
        raise NotSupported("a histogram whose range depends on data; pass min and max")
    flat = b.reshape(x, shape=(x.type.elements,))
    shape = (x.type.elements, bins)
    place = b.mul(b.sub(flat, b.scalar_like(low, flat)), b.scalar_like(bins, flat))
    place = b.cast(b.div(place, b.scalar_like(high - low, flat)), dtype=I64)
    place = b.min(place, b.scalar_like(bins - 1, place))
    inside = b.and_(b.ge(flat, b.scalar_like(low, flat)), b.le(flat, b.scalar_like(high, flat)))
    place = b.select(inside, place, b.scalar_like(-1, place))
    found = b.eq(b.broadcast(place, shape=shape, dims=(0,)), b.iota(shape=shape, dtype=I64, axis=1))
    return b.reduce_sum(b.cast(found, dtype=x.type.dtype), axes=(0,))


@aten("_grouped_mm")
def grouped_mm(b, x, w, offs=None, bias=None, out_dtype=None):
    """Multiply groups of rows of ``x`` by a matrix of ``w`` each.

    ``offs`` are the ends of the groups; rows after the last group are zero.  The matrix of a row is
    only known at run time: each row is multiplied by all matrices, and one result is selected.
    """
    if x.type.rank != 2 or w.type.rank != 3 or offs is None or bias is not None:
        raise NotSupported("anything but a 2-D by 3-D product with offs and without a bias")
    rows, groups, width = x.type.shape[0], *(w.type.shape[i] for i in (0, 2))
    every = b.contract(x, w, contract_a=(1,), contract_b=(1,))  # rows, groups, width
    ended = b.le(
        b.broadcast(b.cast(offs, dtype=I64), shape=(rows, groups), dims=(1,)),
        b.iota(shape=(rows, groups), dtype=I64, axis=0),
    )
    group = b.reduce_sum(b.cast(ended, dtype=I64), axes=(1,))
    last = b.expand(b.constant(np.int64(groups - 1)), (rows,))
    place = b.broadcast(b.min(group, last), shape=(rows, 1, width), dims=(0,))
    made = b.reshape(b.take_along(every, place, axis=1), shape=(rows, width))
    none = b.broadcast(b.gt(group, last), shape=(rows, width), dims=(0,))
    return b.to(b.select(none, b.scalar_like(0, made), made), b.dtype)


TABLE["transformers.grouped_mm_fallback"] = lambda b, x, w, offs: grouped_mm(b, x, w, offs)
