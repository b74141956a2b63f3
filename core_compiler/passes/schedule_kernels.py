"""Schedule kernels: each kernel's plain loops are tiled, packed, vectorised and made parallel."""
from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ir import Rewrite
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class ScheduleKernels(Pass):
    """Tiles, packs, vectorises, unrolls and parallelises every kernel, step by named step.

    Each step is a kernel of its own that runs in the interpreter and gives the same bits as the
    step before; accumulation orders are never touched.  Kernels may share *cores* (a packed
    product's register tile), which are then functions of the module too.
    """

    half = "implementation"
    mandatory = True
    requires = frozenset({"buffers"})
    ensures = frozenset({"schedules"})

    def run(self, module, context):
        kernels = [f for f in module.functions.values() if f.level == "kernel"]
        schedules = {}
        functions = dict(module.functions)
        for done, kernel in enumerate(kernels):
            context.progress(f"schedule {kernel.name}", done, len(kernels))
            scheduled = context.target.schedule(kernel, context.options)
            schedules[kernel.name] = scheduled
            functions[kernel.name] = scheduled.function
            for name, core in scheduled.cores.items():
                functions.setdefault(name, core)
            for step in scheduled.steps[1:]:
                context.rewrites.append(
                    Rewrite(step.name, "", (), (), {}, step.kernel, None, f"kernel {step.kernel}")
                )
        context.facts["schedules"] = schedules
        return module.with_(functions=functions)
