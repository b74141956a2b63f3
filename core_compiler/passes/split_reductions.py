"""Split reductions: a sum over images and their pixels becomes sums of pixels, then of images."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from typing_extensions import override

from core_compiler.ir.refusal import refuse
from core_compiler.numerics.reference.reduction import groups_of_axes
from core_compiler.ops.typed import ReduceSum
from core_compiler.passes.replacement import ReplaceOps

#: More results are enough work for all threads; fewer terms are little work for another launch.
MOST_RESULTS, LEAST_TERMS = 2048, 150


@dataclass(frozen=True)
class SplitReductions(ReplaceOps):
    """Sum over the last group of adjacent axes first, and its results over the others.

    That is the contract's order, so the bits are the same.  One launch has as many independent sums
    as results: the channels of a batch normalisation, which threads share as narrow columns.  Two
    have those of each image.
    """

    half = "implementation"

    @override
    def refused(self, op):
        found = ReduceSum.match(op)
        if found is None:
            return refuse("a sum", "{0} is none", op)
        kind = found.x.type
        if not kind.dtype.is_float or kind.dtype.bits < 32:
            return refuse("a sum of f32 or f64", "{0} sums {1}", op, kind.dtype)
        groups = groups_of_axes(kind.shape, found.axes)
        if len(groups) < 2:
            return refuse("axes that are not adjacent", "{0} has one group of axes", op)
        terms = prod(kind.shape[axis] for axis in groups[-1][0])
        if terms < LEAST_TERMS:
            return refuse("long sums", "{0} adds {1} terms of the last axes", op, terms)
        results = prod(op.result.type.shape)
        if results > MOST_RESULTS:
            return refuse("few sums", "{0} has {1} results", op, results)
        return None

    @override
    def replacement(self, b, op):
        found = ReduceSum.match(op)
        assert found is not None
        groups = groups_of_axes(found.x.type.shape, found.axes)
        orders = tuple(found.orders) or tuple(order for _, order in groups)
        last = set(groups[-1][0])
        inner = b.reduce_sum(found.x, axes=tuple(sorted(last)), orders=orders[-1:])
        kept = [axis for axis in range(found.x.type.rank) if axis not in last]
        rest = tuple(n for n, axis in enumerate(kept) if axis in found.axes)
        return b.reduce_sum(inner, axes=rest, orders=orders[:-1])

    @override
    def rule(self, op):
        return "a sum over images after one over pixels"
