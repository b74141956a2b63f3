"""softmax, the only composite with a linalg op."""

from __future__ import annotations

from core_compiler.exporters.compositions.normalization import softmax_or_zero
from core_compiler.exporters.mlir.linalg.context import F32, Linalg, op
from core_compiler.exporters.mlir.linalg.reduction import rounded
from core_compiler.exporters.mlir.literals import type_text
from core_compiler.exporters.mlir.text import Ref
from core_compiler.ops import typed


@op("softmax")
def softmax(b: Linalg, op: typed.Softmax, x: Ref) -> Ref:
    """Apply the same formula: maximum, difference, exponential, sum, division."""
    if op.empty_rows == "zero":
        return b.core(lambda c, v: softmax_or_zero(c, v, op.axis), x)
    kind = x.type.dtype
    wide = rounded(b, x, F32) if kind.bits < 32 else x
    text = type_text(wide.type)
    made = b.writer.line(
        f"linalg.softmax dimension({op.axis}) ins({wide} : {text}) outs({b.empty(wide.type)} : "
        f"{text}) -> {text}",
        wide.type,
    )
    return rounded(b, made, kind)
