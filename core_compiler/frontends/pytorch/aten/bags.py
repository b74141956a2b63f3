"""Embedding bags of ATen: rows of a table, summed, averaged or their maximum."""

from __future__ import annotations

import numpy as np

from core_compiler.frontends.pytorch.aten.table import I64, NotSupported, aten

SUM, MEAN, MAX = range(3)


@aten("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    b,
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=SUM,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=-1,
):
    """Reduce the rows of each bag.

    ``offsets`` are the positions in ``indices`` where the bags start; a row at ``padding_idx`` is
    ignored.
    """
    b.only_first("offset2bag, bag_size or max_indices")
    if indices.type.rank != 1:
        raise NotSupported(f"indices of rank {indices.type.rank}")
    count, width = indices.type.shape[0], weight.type.shape[1]
    bags = offsets.type.shape[0] - bool(include_last_offset)
    rows = b.in_range(b.take(weight, indices, axis=0))
    if per_sample_weights is not None:
        rows = b.mul(rows, b.broadcast(per_sample_weights, shape=rows.type.shape, dims=(0,)))
    # The bag of a row is the number of bags that start at it or before it, minus one.
    starts = b.cast(offsets, dtype=I64)
    if include_last_offset:
        starts = b.slice(starts, starts=(0,), limits=(bags,), strides=(1,))
    has_started = b.le(
        b.broadcast(starts, shape=(count, bags), dims=(1,)),
        b.iota(shape=(count, bags), dtype=I64, axis=0),
    )
    bag_index = b.sub(
        b.reduce_sum(b.cast(has_started, dtype=I64), axes=(1,)),
        b.expand(b.constant(np.int64(1)), (count,)),
    )
    if padding_idx is not None and padding_idx >= 0:  # assigned to no bag
        padding = b.eq(
            b.cast(indices, dtype=I64), b.expand(b.constant(np.int64(padding_idx)), (count,))
        )
        bag_index = b.select(padding, b.expand(b.constant(np.int64(bags)), (count,)), bag_index)
    place = b.reshape(bag_index, shape=(count, 1))
    ones = b.expand(b.constant(np.int64(1)), (count,))
    sizes = b.scatter_nd(b.expand(b.constant(np.int64(0)), (bags,)), place, ones, mode="add")
    shape = (bags, width)
    if mode == MAX:
        low = b.expand(b.constant(-np.inf, rows.type.dtype), shape)
        made = b.scatter_nd(low, place, rows, mode="max")
        empty = b.eq(sizes, b.expand(b.constant(np.int64(0)), (bags,)))
        zeros = b.expand(b.constant(0, rows.type.dtype), shape)
        return b.select(b.broadcast(empty, shape=shape, dims=(0,)), zeros, made), None, None, None
    made = b.scatter_nd(b.expand(b.constant(0, rows.type.dtype), shape), place, rows, mode="add")
    if mode == MEAN:
        number = b.max(sizes, b.expand(b.constant(np.int64(1)), (bags,)))
        number = b.cast(number, dtype=rows.type.dtype)
        made = b.div(made, b.broadcast(number, shape=shape, dims=(0,)))
    return made, None, None, None
