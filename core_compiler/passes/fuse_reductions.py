"""Fuses reductions over the same rows, with what feeds and follows them, into row programs."""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ir import Op
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import family, fuse


@dataclass(frozen=True)
class FuseReductions(Pass):
    """Fuses reductions over the same rows, with what feeds and follows them, into row programs."""

    half = "implementation"
    requires = frozenset({"no_composites"})

    def run(self, module, context):
        rule = "reductions over the same rows share one kernel"
        return context.rewrite(module, lambda rw: fuse(rw, rule, wanted, context.claims))


def wanted(producer: Op, consumer: Op) -> bool:
    """At least one reduction, and nothing but reductions and elementwise ops."""
    both = {family(producer), family(consumer)}
    return "reduction" in both and both <= {"reduction", "map"}
