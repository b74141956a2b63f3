"""Generate code: scheduled kernels become machine code, main becomes a program for the device."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class GenerateCode(Pass):
    """Compile every distinct kernel once, in parallel and through the kernel cache.

    The launches, with their addresses, form a program.
    """

    half = "implementation"
    mandatory = True
    requires = frozenset({"plan", "schedules"})
    ensures = frozenset({"program"})

    @override
    def run(self, module, context):
        kernels = {f.name: f for f in module.functions.values() if f.level == "kernel"}
        compiled = context.target.compile(kernels, context.options, context.progress)
        context.facts["compiled"] = compiled
        context.facts["program"] = context.target.link(module, context.facts, context.options)
        return module
