"""Gradients of pooling in gather form, so that no two outputs share memory."""

from __future__ import annotations

from math import prod

from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.gradients.table import of_each, of_one

_GEOMETRY = ("window", "strides", "low", "high", "dilations")


@of_one("max_pool")
def _max_pool(b, op: typed.MaxPool, dy):
    (x,) = op.operands
    geometry = op.pick(*_GEOMETRY)
    places = b.max_pool_positions(x, **geometry)
    return b.max_pool_gradient(places, dy, shape=x.type.shape, **geometry)


@of_one("avg_pool")
def _avg_pool(b, op: typed.AvgPool, dy):
    geometry = op.pick(*_GEOMETRY, "count_padding")
    return b.avg_pool_gradient(dy, shape=op.x.type.shape, **geometry)


@of_one("avg_pool_gradient")
def _avg_pool_gradient(b, op: typed.AvgPoolGradient, dy):
    return b.avg_pool(dy, **op.pick(*_GEOMETRY, "count_padding"))


@of_each("max_pool_gradient")
def _max_pool_gradient(b, op, dy):
    places, given = op.operands

    def of_given() -> Value:
        lead, size = given.type.shape[:2], prod(given.type.shape[2:])
        flat = b.reshape(dy, shape=(*lead, prod(dy.type.shape[2:])))
        where = b.reshape(places, shape=(*lead, size))
        found = b.take_along(flat, where, axis=2)
        empty = b.lt(where, b.scalar_like(0, where))
        found = b.select(empty, b.scalar_like(0, found), found)
        return b.reshape(found, shape=given.type.shape)

    return None, of_given
