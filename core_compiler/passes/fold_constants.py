"""Fold constants: ops whose operands are all constant are evaluated now, by the reference."""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ir import Op, TensorType, as_array
from core_compiler.ops.base import definition, evaluate
from core_compiler.passes.base import CONTROL_FLOW, Pass

#: Ops that become views of their operand's memory: a copy of a large constant would gain nothing.
_FREE_VIEWS = frozenset({"core.transpose", "core.reshape"})
_SMALL = 4096


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Evaluates ops whose operands are all constants, with the contract's own reference.

    ``growth`` bounds how much larger a result may be than its operands (a broadcast of one number
    to a large shape costs nothing as an op and megabytes as a constant).  Transposes and reshapes
    of large constants stay too: they become views of the same memory.  Random ops never fold.
    """

    growth: float = 1.0

    def run(self, module, context):
        def edit(rw):
            known = _Known(rw, module.weights)
            for op in rw.ops:
                if op.kind == "core.constant" or not known.learn(op):
                    continue
                if not self._worth(op, known):
                    continue
                new = [
                    Op("core.constant", (), (v,), {"value": module.weights.add(known.array(v))})
                    for v in op.results
                ]
                for made in rw.replace(op, new, rule=f"fold {op.kind}", note="evaluated"):
                    known.settle(made)

        return context.rewrite(module, edit)

    def _worth(self, op: Op, known: _Known) -> bool:
        """Whether the constant would not be much larger than those it is made of."""
        after = sum(v.type.bytes for v in op.results)
        if op.kind in _FREE_VIEWS and after > _SMALL:
            return False
        return after <= max(256, self.growth * sum(known.roots(v) for v in op.operands))


class _Known:
    """Values that do not depend on inputs.  Those not worth a constant of their own (a broadcast)
    stay ops, and are evaluated where an op on them folds."""

    def __init__(self, rw, weights):
        self.weights = weights
        self.makers: dict = {}
        self.arrays: dict = {}
        for op in rw.ops:
            if op.kind == "core.constant":
                self.settle(op)

    def settle(self, op: Op) -> None:
        """``op`` is a constant in the module."""
        self.makers[op.result] = op

    def learn(self, op: Op) -> bool:
        """Whether ``op``'s results are known; random ops and control flow never are."""
        if op.regions or not all(v in self.makers for v in op.operands):
            return False
        if op.kind in CONTROL_FLOW or "random" in definition(op).traits:
            return False
        if not all(isinstance(v.type, TensorType) and v.type.is_static for v in op.results):
            return False
        self.makers.update(dict.fromkeys(op.results, op))
        return True

    def array(self, value):
        op = self.makers[value]
        if op.kind == "core.constant":
            return as_array(op["value"], self.weights)
        if value not in self.arrays:
            arrays = [self.array(v) for v in op.operands]
            self.arrays.update(zip(op.results, evaluate(op, arrays, self.weights), strict=True))
        return self.arrays[value]

    def roots(self, value) -> int:
        """Bytes of the constants that a value is made of."""
        op = self.makers[value]
        if op.kind == "core.constant":
            return value.type.bytes
        return sum(self.roots(v) for v in op.operands)
