"""Drop gradients: do not return gradients that are not requested."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Module
from core_compiler.passes.base import Pass, PassContext
from core_compiler.training.graph.roles import Roles


@dataclass(frozen=True)
class DropGradients(Pass):
    """Remove the gradients from the results of the step, so that they need no memory of their own.

    The optimiser reads them where they are computed. ``Training(keep_gradients=True)`` leaves this
    pass out; the meaning of the step is the same (the numerics identity, all bits).
    """

    half = "implementation"
    requires = frozenset()

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        main = module.main
        roles = Roles.of(main)
        rows = [
            (row, v)
            for row, v in zip(roles.results, main.outputs, strict=True)
            if row[0] != "gradient"
        ]
        if len(rows) == len(main.outputs):
            return module
        context.note("note", f"{len(main.outputs) - len(rows)} gradients are no longer results")
        return context.with_function(module, roles.applied(main, rows), rule="roles of results")
