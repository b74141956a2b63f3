"""Share repeated operands: a product with a matrix that batches repeat becomes one of more rows.

Grouped queries (Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models", 2023)
repeat the keys and values of a group for each of its heads. Their rows together are the rows of one
product with the keys as they are, which then are neither repeated in memory nor copied twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ops import typed
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import Match, Rule, apply_rules, op


def _is_repeated(m: Match) -> str | None:
    """Check that the last batch axis of the matrix is one of x and, inside it, repeats."""
    wide, merged = typed.Broadcast.of(m.named["wide"]), m.named["merged"].result.type.shape
    x, shape, a = m["x"].type.shape, wide.result.type.shape, m["a"].type.shape
    place = len(shape) - 3  # the repeats, before the rows and columns of each matrix
    kept = [axis for axis in range(len(shape)) if axis != place]
    if place < 1 or tuple(wide.dims) != tuple(kept) or x != tuple(shape[k] for k in kept):
        return "the broadcast does more than repeat the matrices of the last batch axis"
    joined = (*shape[: place - 1], shape[place - 1] * shape[place], *shape[place + 1 :])
    if merged != joined:
        return "the reshape does more than join the repeats with the last batch axis"
    if a[:-2] != merged[:-2]:
        return "the batch axes of the two operands differ"
    if "turned" in m.named:
        rank = len(merged)
        permutation = typed.Transpose.of(m.named["turned"]).permutation
        if permutation != (*range(rank - 2), rank - 1, rank - 2):
            return "the transpose moves batch axes"
    return None


def _shared(b, m: Match):
    x, a = m["x"], m["a"]
    *batch, rows, width = a.type.shape
    repeats = batch[-1] // x.type.shape[-3]
    together = b.reshape(a, shape=(*x.type.shape[:-2], repeats * rows, width))
    if "turned" in m.named:
        rank = x.type.rank
        x = b.transpose(x, permutation=(*range(rank - 2), rank - 1, rank - 2))
    made = b.matmul(together, x, **m.root.attributes)
    return b.reshape(made, shape=m.root.result.type.shape)


_REPEATED = op("reshape", op("broadcast", "x", name="wide"), name="merged")
RULES = (
    Rule(
        "matmul(a, repeated x) => matmul(rows of a together, x)",
        op("matmul", "a", _REPEATED),
        _shared,
        check=_is_repeated,
    ),
    Rule(
        "matmul(a, transpose(repeated x)) => matmul(rows of a together, transpose(x))",
        op("matmul", "a", op("transpose", _REPEATED, name="turned")),
        _shared,
        check=_is_repeated,
    ),
)


@dataclass(frozen=True)
class ShareRepeatedOperands(Pass):
    """Multiply the rows of all batches that repeat a matrix by that matrix, at once.

    Each element is the same sum of the same products in the same order: exact.
    """

    half = "implementation"

    @override
    def table(self):
        return RULES

    @override
    def run(self, module, context):
        return context.rewrite(module, lambda rw: apply_rules(rw, RULES, module.weights))
