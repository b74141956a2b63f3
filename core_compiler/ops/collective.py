"""Collectives over the shards of one batch.

A module with these ops is the program of one shard, and all shards run it together.

As in Megatron-LM (Shoeybi et al., 2019), the two ops are each other's gradient: a value that is the
same for every shard is *distributed* when it is combined with a shard's own examples, and the
gradients that come back are summed. Evaluated alone, a module behaves as if every shard held the
same values.
"""

from __future__ import annotations

from core_compiler.ir import tensor
from core_compiler.ops import hooks, index_maps
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.composite import as_dtype, widened
from core_compiler.ops.gradients.table import RULES
from core_compiler.ops.precision import SHARDS
from core_compiler.ops.rules import FLOATS, INTEGERS, need, need_dtype
from core_compiler.ops.traits import traits
from core_compiler.support import lazy_module

collective = lazy_module.module("core_compiler.numerics.reference.collective")

#: Maximum number of shards of one batch.
MOST = 1024


def _all_reduce_rule(types, attributes):
    need_dtype("x", types[0], (*FLOATS, *INTEGERS))
    need(1 <= attributes["shards"] <= MOST, f"shards = {attributes['shards']} is not in 1..{MOST}")
    return (tensor(types[0].shape, types[0].dtype),)


def reduce_equal_shards(b, x, shards: int):
    """Return ``all_reduce`` of equal shards as additions: the tree over ``shards`` times ``x``."""
    return collective.pairwise([x] * shards, b.add)


def _expand_all_reduce(b, op):
    return as_dtype(b, reduce_equal_shards(b, widened(b, op.x), op.shards), op.result.type.dtype)


declare(
    OpDef(
        "core.all_reduce",
        "The sum over all shards, equal in each, by a fixed binary tree over the shards' "
        "numbers; without other shards, the sum of equal values",
        ("x",),
        _all_reduce_rule,
        lambda arrays, attributes, types: (
            collective.tree_sum([arrays[0]] * attributes["shards"]),
        ),
        attributes={"shards": Attr(int, doc="the number of shards of the batch")},
        flops=lambda op: (op.shards - 1) * op.result.type.elements,
        traits=traits("multilinear"),
        precision=SHARDS,
        expand=_expand_all_reduce,
        lower=hooks.Custom("all_reduce"),
        gradient=RULES["all_reduce"],
    )
)


declare(
    OpDef(
        "core.distribute",
        "x, read from here on by each shard with its own examples",
        ("x",),
        lambda types, attributes: (tensor(types[0].shape, types[0].dtype),),
        lambda arrays, attributes, types: (arrays[0],),
        attributes={"shards": Attr(int, doc="the number of shards of the batch")},
        traits=traits("view", "multilinear"),
        precision=SHARDS,
        flops=lambda op: 0,
        expand=lambda b, op: op.x,
        lower=hooks.IndexMap(index_maps.same),
        gradient=RULES["distribute"],
    )
)
