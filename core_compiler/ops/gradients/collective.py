"""Gradients of what shards have in common: each of the two ops is the other's."""

from __future__ import annotations

from core_compiler.ops.gradients.table import of_one


@of_one("all_reduce")
def _all_reduce(b, op, dy):
    """Every shard's part counts once; the cotangent of a common value is the same for all."""
    return b.distribute(dy, shards=op["shards"])


@of_one("distribute")
def _distribute(b, op, dy):
    return b.all_reduce(dy, shards=op["shards"])
