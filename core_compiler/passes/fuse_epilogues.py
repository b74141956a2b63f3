"""Apply the elementwise ops that follow a product or a convolution on its output tile."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ops.typed import ConvWeightGradient
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import FAMILY_WORDS, Fusion, family, flattened, looks_up


def kind_refusal(producer: Op, consumer: Op) -> Refusal | None:
    """Return a refusal unless elementwise ops follow a product or convolution."""
    kinds = family(producer), family(consumer)
    if kinds == ("contraction", "map"):
        return _turning_refusal(producer, consumer) or _lookup_refusal(producer, consumer)
    first, second = (FAMILY_WORDS[kind] for kind in kinds)
    return refuse(
        "a product and its epilogue",
        "{0} is {1} and {2} is {3}; an epilogue is elementwise ops on a product's result",
        producer,
        first,
        consumer,
        second,
    )


def _turning_refusal(producer: Op, consumer: Op) -> Refusal | None:
    """Return a refusal if adjacent taps of a weight gradient would be computed in another order."""
    products = [found for op in flattened(producer) if (found := ConvWeightGradient.match(op))]
    turned = any(map(_turns, flattened(consumer)))
    if not turned or not any(found.x.type.shape[1] == 1 for found in products):
        return None
    return refuse(
        "taps in order",
        "{0} reorders the adjacent taps of {1}, whose only channel is a row of pixels",
        consumer,
        producer,
    )


def _lookup_refusal(producer: Op, consumer: Op) -> Refusal | None:
    """Return a refusal if a table would be read at positions that the product's tile has."""
    reader = looks_up(consumer, producer.results)
    if reader is None:
        return None
    return refuse("known positions", "{0} reads at positions that {1} computes", reader, producer)


def _turns(op: Op) -> bool:
    """Return whether an elementwise op reads an operand in another order than its result's."""
    if op.kind == "core.transpose":
        return True
    shape = op.results[0].type.shape
    same = [v.type for v in op.operands if v.type.shape == shape]
    return any(kind.order != op.results[0].type.order for kind in same)


FUSION = Fusion("epilogue on the output tile", kind_refusal)


@dataclass(frozen=True)
class FuseEpilogues(Pass):
    """Applies the elementwise ops that follow a product or a convolution on its output tile."""

    half = "implementation"
    requires = frozenset({"no_composites", "tensor_ops"})

    @override
    def fusion(self):
        return FUSION
