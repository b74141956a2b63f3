"""Fold constants: ops whose operands are all constant are evaluated now, by the reference."""
from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ir import Op, as_array
from core_compiler.ops.base import definition, evaluate
from core_compiler.passes.base import CONTROL_FLOW, Pass


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Evaluates ops whose operands are all constants, with the contract's own reference.

    ``growth`` bounds how much larger a result may be than its operands (a broadcast of one number
    to a large shape costs nothing as an op and megabytes as a constant).  Random ops never fold.
    """

    growth: float = 1.0

    def run(self, module, context):
        def edit(rw):
            constants = {v: op for op in rw.ops if op.kind == "core.constant" for v in op.results}
            for op in rw.ops:
                if not op.operands and op.kind != "core.iota":
                    continue
                if not all(v in constants for v in op.operands) or self._refuse(op, rw):
                    continue
                arrays = [as_array(constants[v]["value"], module.weights) for v in op.operands]
                new = [
                    Op("core.constant", (), (v,), {"value": module.weights.add(a)})
                    for v, a in zip(op.results, evaluate(op, arrays, module.weights), strict=True)
                ]
                for made in rw.replace(op, new, rule=f"fold {op.kind}", note="evaluated"):
                    constants[made.result] = made

        return context.rewrite(module, edit)

    def _refuse(self, op: Op, rw) -> bool:
        """Whether folding ``op`` is forbidden (random, control flow) or only wastes memory."""
        if op.kind in CONTROL_FLOW or "random" in definition(op).traits:
            return True
        if not all(v.type.is_static for v in op.results):
            return True
        before = sum(v.type.bytes for v in op.operands)
        after = sum(v.type.bytes for v in op.results)
        return after > max(256, self.growth * before)
