"""Fuse reductions over the same rows, with what feeds and follows them, into row programs."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import FAMILY_WORDS, Fusion, family

#: A kernel's own launch costs nothing beside so many elements; so many times more are no rows.
LARGE, MOST_GROWTH = 1 << 15, 8


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
    if "reduction" not in units.values():
        return refuse("reductions", "neither of {0} and {1} is a reduction", producer, consumer)
    return _size_refusal(producer, consumer) if units[producer] == "reduction" else None


def _size_refusal(producer: Op, consumer: Op) -> Refusal | None:
    """Return a refusal if the consumer computes far more elements than the reduction reads.

    They share no element then, and as one kernel the few sums would bound the work items and their
    order: the images of a batch normalisation would be written in narrow columns.
    """
    read = max(v.type.elements for v in producer.operands)
    made = max(v.type.elements for v in consumer.results)
    if made < LARGE or made <= MOST_GROWTH * read:
        return None
    return refuse(
        "sizes alike",
        "{1} computes {2:,} elements, {0} reads {3:,}: they share none",
        producer,
        consumer,
        made,
        read,
    )


FUSION = Fusion("reductions over the same rows share one kernel", kind_refusal)


@dataclass(frozen=True)
class FuseReductions(Pass):
    """Fuses reductions over the same rows, with what feeds and follows them, into row programs."""

    half = "implementation"
    requires = frozenset({"no_composites", "tensor_ops"})

    @override
    def fusion(self):
        return FUSION
