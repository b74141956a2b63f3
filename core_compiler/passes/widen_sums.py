"""Widen sums: the operands of a sum or difference that may cancel are computed in f64.

Rounding an operand to f32 loses digits that become significant when the leading ones cancel
(Higham, "Accuracy and Stability of Numerical Algorithms", section 1.7): only operands that were
never rounded help.  The arithmetic that computes the operands is therefore repeated in f64, back to
its inputs.  The pass is in no default pipeline: insert it where that is worth its time.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Rewriter, Value
from core_compiler.ops.builder import Builder
from core_compiler.ops.rules import F32, F64
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import MOVES, reuse_results
from core_compiler.support.errors import UserError

#: Ops whose operands may cancel.
SUMS = frozenset({"core.add", "core.sub"})
#: Averages, which are repeated in f64 like elementwise arithmetic; the results of other ops (a
#: matrix product, an input) are used unchanged.
AVERAGES = frozenset({"core.reduce_sum", "core.mean"})


@dataclass(frozen=True)
class WidenSums(Pass):
    """Compute sums and differences, with the arithmetic that makes their operands, in f64.

    ``lines`` lists lines of the model, separated by commas (``model.py:12``); empty: all.
    ``depth``: the number of ops before the sum that are repeated.
    """

    exact = False
    tolerance = "recovers the digits lost to cancellation: the result may change by its own size"

    lines: str = ""
    depth: int = 8

    @override
    def run(self, module, context):
        if self.depth < 1:
            raise UserError(
                f"expected depth to be 1 or more, got {self.depth}",
                f"pass {self.name()}",
                "pass 1 or more",
            )
        wanted = frozenset(line.strip() for line in self.lines.split(",") if line.strip())

        def edit(rw: Rewriter) -> None:
            for op in tuple(rw.ops):
                if op in rw and op.kind in SUMS and (not wanted or wanted & lines_of(op)):
                    self._widen(op, rw, module.weights)

        return context.rewrite(module, edit)

    def _widen(self, op: Op, rw: Rewriter, weights) -> None:
        if not can_widen(op, rw.producer):
            return
        builder = Builder(weights)
        made: dict[Value, Value] = {}
        operands = [self._wide(builder, v, rw, made, self.depth) for v in op.operands]
        total = builder.op(op.kind, operands, **op.attributes)
        new, values = reuse_results(op, [builder.cast(total, dtype=F32)], builder.ops)
        # If digits cancelled, the result may change by as much as its own size.
        rw.replace(
            op,
            new,
            values,
            rule="x + y => f32(f64(x) + f64(y))",
            tolerance=1.0,
            except_for=("infinities", "largest"),
        )

    def _wide(self, b: Builder, value: Value, rw: Rewriter, made, depth: int) -> Value:
        """Return ``value`` in f64, from as far back as ``depth`` allows."""
        if value not in made:
            op = rw.producer(value)
            if op is None or not depth or not _is_arithmetic(op):
                made[value] = b.cast(value, dtype=F64)
            else:
                operands = [self._wide(b, v, rw, made, depth - 1) for v in op.operands]
                made[value] = b.op(op.kind, operands, **op.attributes)
        return made[value]


def lines_of(op: Op) -> frozenset[str]:
    """Return ``model.py:12`` for each line of the model that an op comes from."""
    nodes = () if op.origin is None else op.origin.nodes()
    return frozenset(
        f"{n.file.replace(chr(92), '/').rpartition('/')[2]}:{n.line}" for n in nodes if n.file
    )


def can_widen(op: Op, producer) -> bool:
    """Return whether a sum benefits: an operand was rounded to f32 by earlier arithmetic.

    ``producer``: value -> the op that defines it, or None.
    """
    if op.kind not in SUMS or op.result.type.dtype is not F32:
        return False
    producers = [producer(v) for v in op.operands]
    while any(m is not None and m.kind in MOVES for m in producers):
        producers = [
            producer(m.operands[0]) if m is not None and m.kind in MOVES else m for m in producers
        ]
    return any(m is not None and _is_arithmetic(m) for m in producers)


def _is_arithmetic(op: Op) -> bool:
    """Return whether all operands and the result of an op are f32."""
    arithmetic = op.kind in AVERAGES or has_trait(op, "elementwise", "shape_only")
    return (
        arithmetic
        and "dtype" not in op.attributes
        and all(v.type.dtype is F32 for v in (*op.operands, *op.results))
    )
