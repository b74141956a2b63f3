"""Applies the elementwise ops that follow a product or a convolution on its output tile."""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ir import Op
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import family, fuse


@dataclass(frozen=True)
class FuseEpilogues(Pass):
    """Applies the elementwise ops that follow a product or a convolution on its output tile."""

    half = "implementation"
    requires = frozenset({"no_composites"})

    def run(self, module, context):
        rule = "epilogue on the output tile"
        return context.rewrite(module, lambda rw: fuse(rw, rule, wanted, context.claims))


def wanted(producer: Op, consumer: Op) -> bool:
    """A product or convolution, and elementwise ops on its result."""
    return family(producer) == "contraction" and family(consumer) == "map"
