"""Sorting by one or several keys, and the largest elements of each row."""

from __future__ import annotations

from core_compiler.frontends.stablehlo.ops.elementwise import ordered_bits
from core_compiler.frontends.stablehlo.regions import sort_keys
from core_compiler.frontends.stablehlo.table import NotSupported, call, op


@op("sort")
def sort(b, *xs):
    axis = int(b.attr("dimension", -1))
    axis += xs[0].type.rank if axis < 0 else 0
    keys = sort_keys(b.operation.regions[0])
    if keys is None:
        raise NotSupported("a comparator other than a lexicographic comparison of the operands")
    if len(xs) == len(keys) == 1 and not keys[0].total:
        return b.sort(xs[0], axis=axis, descending=keys[0].descending)
    place = None
    for key in reversed(keys):  # each sort is stable, so the most significant key comes last
        values = xs[key.operand]
        if key.total and values.type.dtype.is_float:
            values = ordered_bits(b, values)
        if place is not None:
            values = b.take_along(values, place, axis=axis)
        order = b.argsort(values, axis=axis, descending=key.descending)
        place = order if place is None else b.take_along(place, order, axis=axis)
    return tuple(b.take_along(x, place, axis=axis) for x in xs)


@op("chlo.top_k")
def top_k(b, x):
    """Return the largest elements in the total order, as XLA computes it."""
    _values, places = b.results
    axis = x.type.rank - 1
    keys = ordered_bits(b, x) if x.type.dtype.is_float else x
    found = b.topk(keys, axis=axis, k=int(b.attr("k")))
    values = found[0] if keys is x else b.take_along(x, found[1], axis=axis)
    return values, b.to(found[1], places.dtype)


@call("ApproxTopK", "PartialReduce")
def approximate_top_k(b, x, counted, _start, _first):
    """Return the exact top k, which satisfies every recall."""
    how = b.attr("mhlo.backend_config")
    axis, k = int(how["reduction_dim"]), int(how["top_k"])
    if b.results[0].shape[axis] != k:
        raise NotSupported("candidates that are not aggregated (aggregate_to_topk)")
    (comparator,) = b.attr("called_computations")
    word = b.importer.comparison(comparator)
    if word is None:
        raise NotSupported("a comparator other than a comparison")
    place = b.topk(x, axis=axis, k=k, largest=word == "GT")[1]
    return b.take_along(x, place, axis=axis), b.take_along(counted, place, axis=axis)
