"""Dead node elimination: nodes and initializers whose results are unused."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.onnx_level.dialect import LEVEL
from core_compiler.passes.base import Pass
from core_compiler.passes.eliminate_dead_code import erase_unread, still_read


@dataclass(frozen=True)
class EliminateDeadNodes(Pass):
    """Remove nodes and initializers whose results are never used."""

    half = "source"
    asks = 1
    requires = frozenset({"onnx_nodes"})

    @override
    def run(self, module, context):
        return context.rewrite(module, erase_unread, LEVEL)

    @override
    def refusal(self, ops, scene):
        return still_read(ops[0], scene.rewriter)
