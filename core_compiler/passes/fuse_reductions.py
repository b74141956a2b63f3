"""Fuse reductions over the same rows, with what feeds and follows them, into row programs."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import FAMILY_WORDS, Fusion, family


def kind_refusal(producer: Op, consumer: Op) -> Refusal | None:
    """Return a refusal unless there is a reduction, and only reductions and elementwise ops."""
    units = {producer: family(producer), consumer: family(consumer)}
    for unit, kind in units.items():
        if kind not in ("reduction", "map"):
            return refuse(
                "reductions",
                "{0} is {1}; a row program has reductions and elementwise ops only",
                unit,
                FAMILY_WORDS[kind],
            )
    if "reduction" in units.values():
        return None
    return refuse("reductions", "neither of {0} and {1} is a reduction", producer, consumer)


FUSION = Fusion("reductions over the same rows share one kernel", kind_refusal)


@dataclass(frozen=True)
class FuseReductions(Pass):
    """Fuses reductions over the same rows, with what feeds and follows them, into row programs."""

    half = "implementation"
    requires = frozenset({"no_composites", "tensor_ops"})

    @override
    def fusion(self):
        return FUSION

    @override
    def run(self, module, context):
        return context.rewrite(module, lambda rw: FUSION.apply(rw, context.claims))
