"""Fold constants: ops whose operands are all constant are evaluated at compile time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Op, TensorType, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ir.types import is_empty
from core_compiler.ops import typed
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array, evaluate
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import CONTROL_FLOW, Pass, has_only_empty_results
from core_compiler.passes.layouts import VIEWS, Order, order_over

#: Copying a larger constant has no benefit where a view of its memory serves.
_SMALL = 4096


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Evaluate ops whose operands are all constants, with the contract's own reference.

    Empty results are constants, whatever they are computed from.  ``growth`` bounds the ratio of a
    result's size to its operands' (broadcasting a scalar to a large shape costs nothing as an op
    and megabytes as a constant); a result of at most ``small`` bytes may be larger than them.
    Views of large constants (transposes, and reshapes that need no copy) stay too.
    Elementwise ops of such broadcasts are folded before they are broadcast.
    Random ops are never folded.
    """

    refusal_arity = 1
    growth: float = 1.0
    small: int = 256

    @override
    def run(self, module, context):
        def edit(rw):
            known = _Known(rw, module.weights)
            for op in rw.ops:
                if self._refused(op, known) is not None:
                    narrow = known.before_broadcast(op)
                    if narrow is None:
                        continue
                    new = [_constant(narrow[0], known), narrow[1]]
                else:
                    new = [_constant(v, known) for v in op.results]
                for made in rw.replace(op, new, rule=f"fold {op.kind}", note="evaluated"):
                    known.producers[made.result] = made

        return context.rewrite(module, edit)

    @override
    def refusal(self, ops, context):
        (wanted,) = ops
        known = _Known(context.rewriter, context.module.weights)
        for op in context.rewriter.ops:
            refused = self._refused(op, known)
            if op is wanted:
                return refused
        return refuse("constant operands", "{0} is not in the block", wanted)

    def _refused(self, op: Op, known: _Known) -> Refusal | None:
        if op.kind == "core.constant":
            return refuse("constant operands", "{0} is already a constant", op)
        return known.learn(op) or self._refuse_if_too_large(op, known)

    def _refuse_if_too_large(self, op: Op, known: _Known) -> Refusal | None:
        """Return a refusal if the constant would be much larger than those it is computed from."""
        if has_only_empty_results(op):
            return None
        after = sum(v.type.bytes for v in op.results)
        if after > _SMALL and known.is_view(op):
            text = "{0} becomes a view of its operand's memory; a copy of {1} bytes gains nothing"
            return refuse("worth a constant", text, op, after)
        before = sum(known.source_bytes(v) for v in op.operands)
        if after <= max(self.small, self.growth * before):
            return None
        return refuse(
            "worth a constant",
            "{0} would be a constant of {1} bytes, computed from constants of {2} bytes",
            op,
            after,
            before,
        )


def _constant(value: Value, known: _Known) -> Op:
    """Return the constant that a known value is."""
    held = {"value": known.weights.add(known.array(value))}
    return Op("core.constant", (), (value,), held)


class _Known:
    """The values that do not depend on inputs.

    Those not worth a constant of their own (a broadcast) stay ops, and are evaluated when an op on
    them is folded.
    """

    def __init__(self, rw, weights):
        self.weights = weights
        self.producers: dict = {}
        self.arrays: dict = {}
        for op in rw.ops:
            if op.kind == "core.constant":
                self.producers[op.result] = op

    def learn(self, op: Op) -> Refusal | None:
        """Record ``op``'s results as known, or return why they are not.

        Results of random ops and control flow are never known.
        """
        if op.kind not in CONTROL_FLOW and not op.regions and has_only_empty_results(op):
            self.producers.update(dict.fromkeys(op.results, op))
            return None
        unknown = next((v for v in op.operands if v not in self.producers), None)
        if unknown is not None:
            return refuse(
                "constant operands", "{0} reads {1}, which is not a constant", op, unknown
            )
        if op.regions or op.kind in CONTROL_FLOW:
            return refuse("one result always", "{0} has regions or is control flow", op)
        if "random" in definition(op).traits:
            return refuse("one result always", "{0} draws random numbers", op)
        if not all(isinstance(v.type, TensorType) and v.type.is_static for v in op.results):
            return refuse("static shapes", "{0} has an unknown size", op)
        self.producers.update(dict.fromkeys(op.results, op))
        return None

    def before_broadcast(self, op: Op) -> tuple[Value, Op] | None:
        """Return what an elementwise op of broadcasts computes once, and the broadcast of it.

        None if it is another op, or one of its operands is as large as its result.
        """
        if op.results[0] not in self.producers or not has_trait(op, "elementwise"):
            return None
        sources = [typed.Broadcast.match(self.producers[v]) for v in op.operands]
        known = [s for s in sources if s is not None]
        if len(op.results) != 1 or not known or len(known) < len(sources):
            return None
        shape = op.result.type.shape
        widest = max(known, key=lambda s: s.x.type.elements)
        dims = tuple(widest.dims)
        if widest.x.type.elements * 2 > op.result.type.elements or any(
            not set(s.dims) <= set(dims) or s.x.type.shape != tuple(shape[d] for d in s.dims)
            for s in known
        ):
            return None
        b = Builder(self.weights)
        small = tuple(shape[d] for d in dims)
        operands = [
            s.x
            if tuple(s.dims) == dims
            else b.broadcast(s.x, shape=small, dims=tuple(dims.index(d) for d in s.dims))
            for s in known
        ]
        made = b.op(op.kind, operands, **op.attributes)
        self.producers.update((v, each) for each in b.ops for v in each.results)
        spread = {"shape": shape, "dims": dims}
        return made, Op("core.broadcast", (made,), op.results, spread)

    def array(self, value):
        op = self.producers[value]
        if op.kind == "core.constant":
            return constant_array(op, self.weights)
        if is_empty(value.type):
            return np.empty(value.type.shape, value.type.dtype.numpy)
        if value not in self.arrays:
            arrays = [self.array(v) for v in op.operands]
            self.arrays.update(zip(op.results, evaluate(op, arrays, self.weights), strict=True))
        return self.arrays[value]

    def is_view(self, op: Op) -> bool:
        """Return whether ``op`` is a view of its operand's memory: no copy, once layouts are."""
        return op.kind in VIEWS and order_over(op, self._order(op.operands[0]))[0]

    def _order(self, value: Value) -> Order:
        """Return the order of the memory that ``value`` is if no view is copied."""
        op = self.producers[value]
        if op.kind not in VIEWS:
            return value.type.order
        return order_over(op, self._order(op.operands[0]))[1]

    def source_bytes(self, value) -> int:
        """Return the bytes of the constants that a value is computed from."""
        if is_empty(value.type):
            return 0
        op = self.producers[value]
        if op.kind == "core.constant":
            return value.type.bytes
        return sum(self.source_bytes(v) for v in op.operands)
