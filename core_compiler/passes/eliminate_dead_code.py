"""Dead code elimination: ops whose results are not used are removed."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Rewriter
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Remove ops whose results are never used (the tensor level is pure)."""

    refusal_arity = 1

    @override
    def run(self, module, context):
        return context.rewrite(module, erase_unused)

    @override
    def refusal(self, ops, context):
        return refuse_if_used(ops[0], context.rewriter)


def erase_unused(rewriter: Rewriter) -> None:
    """Remove the ops of a block whose results are not used."""
    for op in reversed(rewriter.ops):
        if refuse_if_used(op, rewriter) is None:
            rewriter.erase(op, rule=f"unused {op.kind}")


def refuse_if_used(op: Op, rewriter: Rewriter) -> Refusal | None:
    """Return a refusal if an op's results are used."""
    for value in op.results:
        if rewriter.users(value):
            return refuse("unused", "{0} is read by {1}", op, rewriter.users(value))
        if rewriter.is_output(value):
            return refuse("unused", "{0} is a result of the model", op)
    return None
