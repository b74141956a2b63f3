"""Concatenations of many parts: one shared kernel writes each part into its position."""

from __future__ import annotations

import numpy as np

from core_compiler.ir import Op, Rewriter, WeightStore
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.passes.rules import reuse_results

#: Maximum number of parts that one kernel concatenates: it has loops for each. For more of them
#: than a schedule splits (``interior.MOST``) it would test for each element to which it belongs.
MOST_PARTS = 24
#: Parts of a small tensor (its bytes) are written part by part from fewer of them on: that is as
#: fast (the steps of a recurrent layer write their own part), and compiles in a fifth of the time.
FEW_PARTS, SMALL = 8, 1 << 16


def has_many_parts(op: Op) -> bool:
    if op.kind != "core.concat":
        return False
    most = FEW_PARTS if op.result.type.bytes <= SMALL else MOST_PARTS
    return len(op.operands) > most


def write_parts(op: Op, rewriter: Rewriter, weights: WeightStore) -> None:
    """Replace a concatenation by writes of its parts, one after another, into one tensor."""
    b, kind, axis = Builder(weights), op.result.type, typed.Concat.of(op).axis
    made, start = b.expand(b.constant(0, kind.dtype), kind.shape), 0
    zero = b.constant(np.int64(0))
    for part in op.operands:
        if part.type.elements:
            index = b.constant(np.int64(start))
            starts = [index if a == axis else zero for a in range(kind.rank)]
            made = b.dynamic_update_slice(made, part, *starts)
        start += part.type.shape[axis]
    new, values = reuse_results(op, (made,), b.ops)
    rewriter.replace(op, new, values, rule="concat of many parts => each written into its place")
