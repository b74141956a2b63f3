"""Lower composites: what the target does not claim whole becomes primitives, with the same bits."""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ops.base import definition
from core_compiler.passes.base import Pass
from core_compiler.passes.decompose import expand


@dataclass(frozen=True)
class LowerComposites(Pass):
    """Expands every composite that the target does not claim whole as its declaration says."""

    half = "implementation"
    mandatory = True
    ensures = frozenset({"no_composites"})

    def run(self, module, context):
        def edit(rw):
            work = list(rw.ops)
            while work:
                op = work.pop(0)
                if op not in rw or definition(op).decompose is None or context.claims(op):
                    continue
                before = len(rw.events)
                expand(op, rw, module.weights)
                work[:0] = rw.events[before].new

        return context.rewrite(module, edit)
