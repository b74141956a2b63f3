"""Common subexpression elimination: equal ops on equal values are merged.

The origin of the merged op names both.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Value, attributes_key
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ops.base import definition
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """Merge equal ops on the same operands; the merged op keeps the origins of both.

    Random ops differ in their ``stream`` and so are never merged.  Neither are casts that widen a
    narrow float: repeating them costs less than keeping their results.
    """

    refusal_arity = 2

    @override
    def run(self, module, context):
        def edit(rw):
            seen: dict = {}
            for op in map(rw.now, rw.ops):
                if op is None or op.regions or not op.results or widens(op):
                    continue
                key = signature(op)
                first = seen.get(key)
                if first is None:
                    seen[key] = op
                    continue
                merged = first.with_(origin=None)
                values = dict(zip(op.results, first.results, strict=True))
                (seen[key],) = rw.replace(
                    (first, op), merged, values, rule=f"merge equal {op.kind}", at=first
                )

        return context.rewrite(module, edit)

    @override
    def pair(self, one, other):
        return (one, other) if one.kind == other.kind else None

    @override
    def refusal(self, ops, context):
        return signature_difference(*ops)


def widens(op: Op) -> bool:
    """Return whether an op casts a float of at most 16 bits to a wider one.

    If such a cast and the values computed from it were merged, they would be kept in f32 from the
    forward pass of a training step to the backward pass.
    """
    return op.kind == "core.cast" and all(
        v.type.dtype.is_float and (v.type.dtype.bits < 32) is narrow
        for v, narrow in ((op.operands[0], True), (op.result, False))
    )


def signature(op: Op) -> tuple:
    """Return kind, operands, attributes and result types; ops with equal signatures are equal."""
    operands = op.operands
    if "commutative" in definition(op).traits:
        operands = tuple(sorted(operands, key=id))
    types = tuple(v.type for v in op.results)
    return op.kind, operands, attributes_key(op.attributes.items()), types


def signature_difference(first: Op, second: Op) -> Refusal | None:
    """Return the difference of the signatures of two ops, or None if they are equal."""
    held = next((op for op in (first, second) if op.regions or not op.results), None)
    if held is not None:
        return refuse("equal ops", "{0} has regions: it is not compared", held)
    if widens(first):
        return refuse("shared ops", "{0} widens a narrow float: each reader has its own", first)
    kinds, operands, attributes, types = (
        a == b for a, b in zip(signature(first), signature(second), strict=True)
    )
    if not kinds:
        return refuse("equal ops", "{0:kind} and {1:kind} are different ops", first, second)
    if not operands:
        return refuse(
            "equal operands",
            "{0} reads {2} and {1} reads {3}",
            first,
            second,
            _differing_operand(first, second),
            _differing_operand(second, first),
        )
    if not attributes:
        return refuse(
            "equal attributes", "{0} has {0:attributes}, {1} has {1:attributes}", first, second
        )
    if not types:
        return refuse("equal types", "{0} has type {0:type}, {1} has type {1:type}", first, second)
    return None


def _differing_operand(op: Op, than: Op) -> Value:
    """Return the first operand of ``op`` that differs from that of ``than``."""
    pairs = zip(op.operands, (*than.operands, *[None] * len(op.operands)), strict=False)
    return next((a for a, b in pairs if a is not b), op.operands[0])
