"""Lower control flow: a conditional becomes both branches and a choice between their results.

Loops stay: their regions become launches like everything else, which the device repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ir import Block, Op, Value
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class LowerControlFlow(Pass):
    """Puts both branches of a conditional in its place and selects their results.

    Ops are pure and total, so the branch that is not taken costs its time and changes no bit.  A
    loop whose end depends on data is refused: the target executes none.
    """

    half = "implementation"
    mandatory = True
    requires = frozenset({"tensor_ops"})

    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                if op.kind == "core.if" and not context.claims(op):
                    self._select(op, rw)

        return context.rewrite(module, edit)

    def _select(self, op: Op, rw) -> None:
        condition, *captures = op.operands
        builder = Builder()
        then, other = (_inlined(region, captures, builder) for region in op.regions)
        values = {}
        for result, yes, no in zip(op.results, then, other, strict=True):
            chosen = builder.select(builder.expand(condition, result.type.shape), yes, no)
            values[result] = chosen
        rw.replace(op, builder.ops, values, rule="core.if => both branches and select")


def _inlined(region: Block, captures, builder: Builder) -> tuple[Value, ...]:
    """The region's ops in the builder, with values of their own (a block may serve two branches);
    returns its outputs."""
    known = dict(zip(region.arguments, captures, strict=True))
    for op in region.ops:
        fresh = tuple(Value(v.type, v.name) for v in op.results)
        builder.ops.append(op.substitute(known).with_(results=fresh))
        known.update(zip(op.results, fresh, strict=True))
    return tuple(known.get(v, v) for v in region.outputs)
