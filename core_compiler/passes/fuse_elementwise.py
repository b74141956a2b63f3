"""Fuse chains of elementwise ops and index maps into one loop nest."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import FAMILY_WORDS, Fusion, family


def kind_refusal(producer: Op, consumer: Op) -> Refusal | None:
    """Return a refusal unless both are elementwise ops or index maps."""
    for unit in (producer, consumer):
        kind = family(unit)
        if kind != "map":
            return refuse(
                "elementwise ops",
                "{0} is {1}; this pass joins elementwise ops and index maps",
                unit,
                FAMILY_WORDS[kind],
            )
    return None


FUSION = Fusion("elementwise ops share one loop nest", kind_refusal)


@dataclass(frozen=True)
class FuseElementwise(Pass):
    """Fuses chains of elementwise ops and index maps into one loop nest."""

    half = "implementation"
    requires = frozenset({"no_composites", "tensor_ops"})

    @override
    def fusion(self):
        return FUSION

    @override
    def run(self, module, context):
        return context.rewrite(module, lambda rw: FUSION.apply(rw, context.claims))
