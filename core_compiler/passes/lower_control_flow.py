"""Lower control flow: a conditional becomes both branches and a selection of their results.

Loops stay: their regions become launches like everything else, which the device repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Block, Op, Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class LowerControlFlow(Pass):
    """Replace a conditional by both of its branches and select their results.

    Ops are pure and total, so the branch that is not taken costs time and changes no bit.  An
    exception is a loop with a data-dependent trip count in that branch, which then runs no
    iteration.
    """

    half = "implementation"
    mandatory = True
    requires = frozenset({"tensor_ops"})
    ensures = frozenset({"no_branches"})

    @override
    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                if op.kind == "core.if" and not context.claims(op):
                    self._select(rw.now(op), rw)

        return context.rewrite(module, edit)

    def _select(self, op: Op, rw) -> None:
        condition, *captures = op.operands
        builder = Builder()
        then_region, else_region = op.regions
        loops = any(map(_has_dynamic_trip_count, else_region.walk()))
        then = _inline(then_region, captures, builder, condition)
        otherwise = builder.not_(condition) if loops else condition
        other = _inline(else_region, captures, builder, otherwise)
        values = {}
        for result, yes, no in zip(op.results, then, other, strict=True):
            chosen = builder.select(builder.expand(condition, result.type.shape), yes, no)
            values[result] = chosen
        rw.replace(op, builder.ops, values, rule="core.if => both branches and select")


def _has_dynamic_trip_count(op: Op) -> bool:
    loop = typed.While.match(op)
    return loop is not None and loop.trips is None


def _guard_loops(op: Op, taken: Value) -> Op:
    """Return ``op`` with loops that run no iteration if the branch is not ``taken``.

    This includes nested loops.  Outside the branch their conditions might never become false.
    """
    if not op.regions:
        return op
    regions = [
        r.with_(ops=tuple(_guard_loops(inner, taken) for inner in r.ops)) for r in op.regions
    ]
    if _has_dynamic_trip_count(op):
        builder, (condition,) = Builder(), regions[0].outputs
        both = builder.and_(condition, taken)
        regions[0] = regions[0].with_(ops=(*regions[0].ops, *builder.ops), outputs=(both,))
    return op.with_(regions=tuple(regions))


def _inline(region: Block, captures, builder: Builder, taken: Value) -> tuple[Value, ...]:
    """Emit the region's ops into the builder with new values, and return its outputs.

    New values are needed because a block may serve two branches.
    """
    known = dict(zip(region.arguments, captures, strict=True))
    for op in region.ops:
        fresh = tuple(Value(v.type, v.name) for v in op.results)
        builder.ops.append(_guard_loops(op.substitute(known).with_(results=fresh), taken))
        known.update(zip(op.results, fresh, strict=True))
    return tuple(known.get(v, v) for v in region.outputs)
