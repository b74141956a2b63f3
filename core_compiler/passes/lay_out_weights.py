"""Lay out weights: constants from which a product's matrix is computed lie in panels of columns.

A quantised matrix is dequantised on the way to a product. With the integers and scales of
neighbouring columns adjacent, the arithmetic runs in vectors, whatever blocks the rows have; and
with the rows of a panel one after another, its memory is read from the first byte to the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Op, Rewriter
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.lowering.planning import MOST_REPEATS
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array
from core_compiler.passes.base import Pass
from core_compiler.passes.computed_weights import ComputedWeight, computed_weights, rows_of
from core_compiler.passes.rules import reuse_results

#: Columns of a panel: two cache lines of bytes, as many sums as a processor's registers hold.
PANEL = 128


@dataclass(frozen=True)
class LayOutWeights(Pass):
    """Store the constants of which arithmetic makes a product's matrix in panels of its columns.

    For products of few rows, which compute the matrix themselves.  If the columns are not a
    multiple of a panel's, all are one panel.  A transpose and a reshape give the constants their
    axes back: exact.
    """

    half = "implementation"
    refusal_arity = 1
    requires = frozenset({"tensor_ops"})

    @override
    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                if context.claims(op) or _refused(op, rw) is not None:
                    continue
                for weight in computed_weights(op, rw):
                    if weight.value.type.rank < 2:
                        continue  # a number for each column
                    new = _in_panels(weight, module.weights)
                    rw.replace(weight.ops, new, rule="constants in panels of columns")

        return context.rewrite(module, edit)

    @override
    def refusal(self, ops, context):
        return _refused(ops[0], context.rewriter)


def _refused(op: Op, rw: Rewriter) -> Refusal | None:
    """Return why the weights of a product stay as they are, or None."""
    product = typed.Matmul.match(op)
    if product is None:
        return refuse("a matrix product", "{0} is none", op)
    if not computed_weights(op, rw):
        return refuse("computed weights", "the matrix of {0} is computed from no constant", op)
    rows = rows_of(product)
    if rows <= MOST_REPEATS:
        return None
    return refuse("few rows", "{0} has {1}: its matrix is computed before", op, rows)


def _in_panels(weight: ComputedWeight, weights) -> list[Op]:
    """Return the constant in its new layout, and the ops that define the same value."""
    kind, axis = weight.value.type, weight.axis
    columns = kind.shape[axis]
    size = PANEL if columns % PANEL == 0 else columns
    cut = (*kind.shape[:axis], columns // size, size, *kind.shape[axis + 1 :])
    axes = (axis, *(i for i in range(kind.rank + 1) if i not in (axis, axis + 1)), axis + 1)
    array = constant_array(weight.ops[0], weights).reshape(cut).transpose(axes)
    b = Builder(weights)
    stored = b.constant(np.ascontiguousarray(array), kind.dtype)
    back = b.transpose(stored, permutation=tuple(axes.index(i) for i in range(kind.rank + 1)))
    made = b.reshape(back, shape=kind.shape)
    new, _ = reuse_results(weight.ops[-1], (made,), b.ops)
    return new
