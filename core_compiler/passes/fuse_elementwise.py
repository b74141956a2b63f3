"""Fuses chains of elementwise ops and index maps into one loop nest."""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ir import Op
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import family, fuse


@dataclass(frozen=True)
class FuseElementwise(Pass):
    """Fuses chains of elementwise ops and index maps into one loop nest."""

    half = "implementation"
    requires = frozenset({"no_composites"})

    def run(self, module, context):
        rule = "elementwise ops share one loop nest"
        return context.rewrite(module, lambda rw: fuse(rw, rule, wanted, context.claims))


def wanted(producer: Op, consumer: Op) -> bool:
    """Both are elementwise ops or index maps."""
    return family(producer) == family(consumer) == "map"
