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

    asks = 1

    @override
    def run(self, module, context):
        return context.rewrite(module, erase_unread)

    @override
    def refusal(self, ops, scene):
        return still_read(ops[0], scene.rewriter)


def erase_unread(rewriter: Rewriter) -> None:
    """Remove the ops of a block whose results are not used."""
    for op in reversed(rewriter.ops):
        if still_read(op, rewriter) is None:
            rewriter.erase(op, rule=f"unused {op.kind}")


def still_read(op: Op, rewriter: Rewriter) -> Refusal | None:
    """Return a refusal if an op's results are used."""
    for value in op.results:
        if rewriter.users(value):
            return refuse("unused", "{0} is read by {1}", op, rewriter.users(value))
        if rewriter.is_output(value):
            return refuse("unused", "{0} is a result of the model", op)
    return None
