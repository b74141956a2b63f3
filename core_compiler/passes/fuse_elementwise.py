"""Fuse chains of elementwise ops and index maps into one loop nest."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import FAMILY_WORDS, Fusion, family, flattened
from core_compiler.passes.layouts import VIEWS, is_free_view


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
    return _turning_refusal(producer, consumer)


def _turning_refusal(producer: Op, consumer: Op) -> Refusal | None:
    """Return a refusal if elements would be moved one at a time that move as blocks on their own.

    A change of order turns tiles in registers, and padding copies whole rows; both at once neither.
    """
    moved = [op for op in flattened(producer) if op.kind in VIEWS and not is_free_view(op)]
    if not moved or not any(op.kind == "core.pad" for op in flattened(consumer)):
        return None
    return refuse(
        "rows in order", "{0} pads rows of which {1} changes the order", consumer, producer
    )


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
