"""Compute an operand of a product of few rows where the product reads it."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.lowering.planning import MOST_REPEATS
from core_compiler.ops import typed
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass
from core_compiler.passes.computed_weights import rows_of
from core_compiler.passes.grouping import FAMILY_WORDS, Fusion, family, flattened, is_widening


def kind_refusal(producer: Op, consumer: Op) -> Refusal | None:
    """Return a refusal unless elementwise ops on smaller operands feed a product."""
    kind = family(producer)
    product = next(filter(None, map(typed.Matmul.match, flattened(consumer))), None)
    if kind != "map" or product is None:
        return refuse(
            "an operand of a product",
            "{0} is {1}, {2} {3}; this pass joins elementwise ops to the matrix product they feed",
            producer,
            FAMILY_WORDS[kind],
            consumer,
            "is no matrix product" if product is None else "is one",
        )
    if not product.b.type.elements or rows_of(product) > MOST_REPEATS:
        return refuse("few rows", "{0} would run again for each row of {1}", producer, consumer)
    if not any(has_trait(op, "elementwise") and not is_widening(op) for op in flattened(producer)):
        return refuse("arithmetic", "{0} only moves or widens elements", producer)
    read = sum(v.type.bytes for v in producer.operands)
    made = sum(v.type.bytes for v in producer.results)
    if 2 * read <= made:
        return None
    return refuse(
        "smaller operands",
        "{0} reads {1:,} bytes and makes {2:,}: {3} reads them as fast",
        producer,
        read,
        made,
        consumer,
    )


FUSION = Fusion("an operand computed where it is read", kind_refusal)


@dataclass(frozen=True)
class FuseOperands(Pass):
    """Fuses the elementwise ops that make an operand of a product with it, if it has few rows.

    Quantised weights times a row: the integers are read and dequantised in registers, while numbers
    in f32 would be written and read again.
    """

    half = "implementation"
    requires = frozenset({"no_composites", "tensor_ops"})

    @override
    def fusion(self):
        return FUSION
