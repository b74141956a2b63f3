"""Initializers: constants become initializers, and equal ones are merged."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Value
from core_compiler.onnx_level.dialect import INITIALIZER, LEVEL, OVERRIDABLE, constant
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class CleanInitializers(Pass):
    """Turn Constant nodes into initializers, merge equal ones and make all of them constant.

    ``keep_overridable``: keep initializers that are also inputs overridable.
    """

    keep_overridable: bool = False

    half = "source"
    requires = frozenset({"onnx_nodes"})

    @override
    def run(self, module, context):
        results = set(module.main.outputs)

        def edit(rewriter):
            seen: dict = {}
            for op in rewriter.ops:
                held = constant(op)
                if held is None or (op.get(OVERRIDABLE) and self.keep_overridable):
                    continue
                if op.kind != INITIALIZER:
                    op = self._lift(op, rewriter)
                elif op.get(OVERRIDABLE):
                    fixed = op.with_(attributes={"value": held}, origin=None)
                    (op,) = rewriter.replace(op, fixed, rule="fix an initializer")
                first = seen.setdefault(held, op)
                if first is not op and op.result not in results:
                    self._merge(first, op, rewriter, seen, held)

        return context.rewrite(module, edit, LEVEL)

    def _lift(self, op: Op, rewriter) -> Op:
        held = op["value"]
        made = Op(INITIALIZER, (), (Value(held.type, op.result.name),), {"value": held})
        if made.result.type is op.result.type:
            made = made.with_(results=op.results)
        (placed,) = rewriter.replace(
            op, made, {op.result: made.result}, rule="Constant => initializer"
        )
        return placed

    def _merge(self, first: Op, op: Op, rewriter, seen: dict, held) -> None:
        merged = first.with_(origin=None)
        (seen[held],) = rewriter.replace(
            (first, op),
            merged,
            {op.result: first.result},
            rule="merge equal initializers",
            at=first,
        )
