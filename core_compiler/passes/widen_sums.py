"""Widen sums: where a sum or difference may cancel, what it adds is computed in f64.

Rounding an operand to f32 loses digits that come to the front when the leading ones cancel (Higham,
"Accuracy and Stability of Numerical Algorithms", section 1.7): only operands that were never
rounded help.  So the arithmetic that makes the operands is done again in f64, back to what it
reads.  It stands in no pipeline: insert it where that is worth its time.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Rewriter, Value
from core_compiler.ops.builder import Builder
from core_compiler.ops.rules import F32, F64
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import MOVES, adopt
from core_compiler.support.errors import UserError

#: What may cancel.
SUMS = frozenset({"core.add", "core.sub"})
#: Averages, which are done again in f64 as elementwise arithmetic is; what makes other values (a
#: product of matrices, an input) hands them over as they are.
AVERAGES = frozenset({"core.reduce_sum", "core.mean"})


@dataclass(frozen=True)
class WidenSums(Pass):
    """Computes sums and differences, with the arithmetic that makes their operands, in f64.

    ``lines`` lists the lines of the model that are meant, comma separated (``model.py:12``), none
    of them: all; ``depth``: how many ops back from the sum are done again.
    """

    exact = False
    tolerance = "the digits that cancelled come back: as much as the result may change"

    lines: str = ""
    depth: int = 8

    @override
    def run(self, module, context):
        if self.depth < 1:
            raise UserError(f"expected depth to be 1 or more, got {self.depth}",
                            f"pass {self.name()}", "pass 1 or more")  # fmt: skip
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
        new, values = adopt(op, [builder.cast(total, dtype=F32)], builder.ops)
        # Where digits cancelled the result may change by as much as it is.
        rw.replace(op, new, values, rule="x + y => f32(f64(x) + f64(y))", tolerance=1.0,
                   except_for=("infinities", "largest"))  # fmt: skip

    def _wide(self, b: Builder, value: Value, rw: Rewriter, made, depth: int) -> Value:
        """``value`` in f64, from as far back as ``depth`` allows."""
        if value not in made:
            op = rw.producer(value)
            if op is None or not depth or not _is_arithmetic(op):
                made[value] = b.cast(value, dtype=F64)
            else:
                operands = [self._wide(b, v, rw, made, depth - 1) for v in op.operands]
                made[value] = b.op(op.kind, operands, **op.attributes)
        return made[value]


def lines_of(op: Op) -> frozenset[str]:
    """``model.py:12``, for each line of the model that an op comes from."""
    nodes = () if op.origin is None else op.origin.nodes()
    return frozenset(f"{n.file.replace(chr(92), '/').rpartition('/')[2]}:{n.line}"
                     for n in nodes if n.file)  # fmt: skip


def can_widen(op: Op, producer) -> bool:
    """Whether a sum gains by it: one of its operands was rounded to f32 by arithmetic before it.
    ``producer``: value -> the op that makes it, or None."""
    if op.kind not in SUMS or op.result.type.dtype is not F32:
        return False
    makers = [producer(v) for v in op.operands]
    while any(m is not None and m.kind in MOVES for m in makers):
        makers = [producer(m.operands[0]) if m is not None and m.kind in MOVES else m
                  for m in makers]  # fmt: skip
    return any(m is not None and _is_arithmetic(m) for m in makers)


def _is_arithmetic(op: Op) -> bool:
    """All its operands and its result are f32."""
    arithmetic = op.kind in AVERAGES or has_trait(op, "elementwise", "shape_only")
    return arithmetic and op.kind != "core.cast" and all(
        v.type.dtype is F32 for v in (*op.operands, *op.results)
    )  # fmt: skip
