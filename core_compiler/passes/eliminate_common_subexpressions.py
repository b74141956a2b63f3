"""Common subexpressions: equal ops on equal values become one op whose origin names both."""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ops.base import definition
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """Merges equal ops on the same operands; the merged op keeps the origins of both.

    Random ops differ in their ``stream`` and so are never merged.
    """

    def run(self, module, context):
        def edit(rw):
            seen: dict = {}
            for op in rw.ops:
                if op not in rw or op.regions or not op.results:
                    op = rw.producer(op.results[0]) if op.results else None
                    if op is None or op.regions:
                        continue
                operands = op.operands
                if "commutative" in definition(op).traits:
                    operands = tuple(sorted(operands, key=id))
                types = tuple(v.type for v in op.results)
                key = (op.kind, operands, tuple(op.attributes.items()), types)
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
