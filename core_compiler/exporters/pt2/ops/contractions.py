"""Products of matrices."""

from __future__ import annotations

from core_compiler.exporters.pt2.table import I32, Emitter, Node, core
from core_compiler.ir import DType
from core_compiler.ops import typed


def in_result_dtype(g: Emitter, kind: DType, *operands: Node) -> list[Node]:
    """Return operands in the dtype of a product if that is wider: the sums are."""
    return [g.cast(x, kind) for x in operands]


@core("matmul")
def matmul(g, op: typed.Matmul, a, b):
    kind = op.result.type.dtype
    wide = kind if kind.is_float or kind.bits >= 32 else I32
    return g.call("matmul", *in_result_dtype(g, g.dtype(a) if kind.bits == 64 else wide, a, b))


@core("linear")
def linear(g, op: typed.Linear, x, weight, *bias):
    """Emit a linear layer, which reads its weights as [outputs, inputs]."""
    maker = typed.Transpose.match(g.producer(op.w))
    if maker is not None and maker.permutation == (1, 0):
        weight = g.node(maker.x)
    else:
        weight = g.permute(weight, (1, 0))
    return g.call("linear", x, weight, *bias)
