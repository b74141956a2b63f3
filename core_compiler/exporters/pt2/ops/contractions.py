"""Products of matrices."""

from __future__ import annotations

from core_compiler.exporters.pt2 import dtypes
from core_compiler.exporters.pt2.table import core
from core_compiler.ops import typed


@core("matmul")
def matmul(g, op: typed.Matmul, a, b):
    """Multiply in the dtype of the sums, which is the result's."""
    kind = dtypes.carrier(op.result.type.dtype)
    return g.call("matmul", g.cast(a, kind), g.cast(b, kind))


@core("linear")
def linear(g, op: typed.Linear, x, weight, *bias):
    """Emit a linear layer, which reads its weights as [outputs, inputs]."""
    maker = typed.Transpose.match(g.producer(op.w))
    if maker is not None and maker.permutation == (1, 0):
        weight = g.cast(g.node(maker.x), g.dtype(weight))
    else:
        weight = g.permute(weight, (1, 0))
    return g.call("linear", x, weight, *bias)
