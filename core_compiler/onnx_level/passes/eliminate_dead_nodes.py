"""Dead node elimination: nodes and initializers whose results are unused."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.onnx_level.dialect import LEVEL
from core_compiler.passes.base import Pass
from core_compiler.passes.eliminate_dead_code import erase_unused, refuse_if_used


@dataclass(frozen=True)
class EliminateDeadNodes(Pass):
    """Remove nodes and initializers whose results are never used."""

    half = "source"
    refusal_arity = 1
    requires = frozenset({"onnx_nodes"})

    @override
    def run(self, module, context):
        return context.rewrite(module, erase_unused, LEVEL)

    @override
    def refusal(self, ops, context):
        return refuse_if_used(ops[0], context.rewriter)
