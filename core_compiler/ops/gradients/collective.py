"""Gradients of collectives: each of the two ops is the gradient of the other."""

from __future__ import annotations

from core_compiler.ops import typed
from core_compiler.ops.gradients.table import of_one


@of_one("all_reduce")
def _all_reduce(b, op: typed.AllReduce, dy):
    """Return the gradient: each shard contributes once, and its cotangent is the same for all."""
    return b.distribute(dy, shards=op.shards)


@of_one("distribute")
def _distribute(b, op: typed.Distribute, dy):
    return b.all_reduce(dy, shards=op.shards)
