"""Lower composites: those that the target does not claim become primitives, with the same bits."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ir.refusal import Refusal
from core_compiler.passes.base import Pass
from core_compiler.passes.concatenations import has_many_parts, write_parts
from core_compiler.passes.decompose import expand, not_composite
from core_compiler.passes.grouping import not_claimed


@dataclass(frozen=True)
class LowerComposites(Pass):
    """Expand every composite that the target does not claim whole into its decomposition.

    Concatenations of more parts than one kernel can hold are expanded too.
    """

    half = "implementation"
    mandatory = True
    refusal_arity = 1
    ensures = frozenset({"no_composites"})

    @override
    def run(self, module, context):
        def edit(rw):
            work = list(rw.ops)
            while work:
                op = work.pop(0)
                if op not in rw or refused(op, context.claims) is not None:
                    continue
                before = len(rw.events)
                (write_parts if has_many_parts(op) else expand)(op, rw, module.weights)
                work[:0] = rw.events[before].new

        return context.rewrite(module, edit)

    @override
    def refusal(self, ops, context):
        return refused(ops[0], context.claims)


def refused(op: Op, claims) -> Refusal | None:
    """Return why ``op`` is not expanded, or None."""
    whole = None if has_many_parts(op) else not_composite(op)
    return whole or not_claimed(op, claims)
