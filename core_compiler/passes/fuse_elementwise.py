"""Fuse chains of elementwise ops and index maps into one loop nest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import FAMILY_WORDS, Fusion, family, flattened, is_copied
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
    if not any(op.kind == "core.pad" for op in flattened(consumer)):
        return None
    if not _changes_order(flattened(producer)):
        return None
    return refuse(
        "rows in order", "{0} pads rows of which {1} changes the order", consumer, producer
    )


def _changes_order(ops: Sequence[Op]) -> bool:
    """Return whether a result has its elements in another order in memory than an operand."""
    spread = {v for op in ops if is_copied(op) for v in op.results}
    for op in ops:
        if op.kind in VIEWS:
            if not is_free_view(op):
                return True
        elif op.results[0] not in spread:
            made = op.results[0].type
            alike = (v for v in op.operands if v.type.shape == made.shape and v not in spread)
            if any(v.type.order != made.order for v in alike):
                return True
    return False


FUSION = Fusion("elementwise ops share one loop nest", kind_refusal)


@dataclass(frozen=True)
class FuseElementwise(Pass):
    """Fuses chains of elementwise ops and index maps into one loop nest."""

    half = "implementation"
    requires = frozenset({"no_composites", "tensor_ops"})

    @override
    def fusion(self):
        return FUSION
