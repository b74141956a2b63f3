"""Schedule kernels: each kernel's plain loops are tiled, packed, vectorised and parallelised."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Function, Module
from core_compiler.ir.core import structure_key
from core_compiler.ir.target import LAUNCH, Launch
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class ScheduleKernels(Pass):
    """Tile, pack, vectorise, unroll and parallelise every kernel, step by named step.

    Each step is a kernel that runs in the interpreter and has the same bits as the step before;
    accumulation orders never change.  The steps are kept with the kernels; the final one is
    compared with the kernel's region when its code is generated.  Kernels may share *cores* (a
    packed product's register tile), which are then functions of the module too.
    """

    half = "implementation"
    mandatory = True
    requires = frozenset({"buffers", "plain_kernels"})
    ensures = frozenset({"schedules"})
    invalidates = frozenset({"plain_kernels"})

    @override
    def run(self, module, context):
        kernels = [f for f in module.functions.values() if f.level == "kernel"]
        sizes: dict[str, list] = {}
        for op in module.main.body.ops:
            if op.kind == LAUNCH:
                given = Launch.of(op).sizes
                sizes.setdefault(Launch.of(op).kernel, []).append(given)
        schedules = {}
        packers = _Packers()
        functions = dict(module.functions)
        for done, kernel in enumerate(kernels):
            context.progress(f"schedule {kernel.name}", done, len(kernels))
            scheduled = context.target.schedule(kernel, context.options, sizes.get(kernel.name, ()))
            schedules[kernel.name] = scheduled
            functions[kernel.name] = scheduled.function
            for name, core in scheduled.cores.items():
                functions.setdefault(name, core)
            packers.enter(kernel.name, scheduled)
        functions.update(packers.functions)
        context.facts["schedules"] = schedules
        context.facts["packers"] = packers.names
        return module.with_(functions=functions)


class _Packers:
    """The kernels that pack constants for others, each once by structure.

    ``names`` maps (kernel, position of the buffer argument) to the packing kernel's name.
    """

    def __init__(self):
        self.functions: dict[str, Function] = {}
        self.names: dict[tuple[str, int], str] = {}

    def enter(self, kernel: str, scheduled) -> None:
        if scheduled.launch is None:
            return
        for position, function in scheduled.launch.pack.items():
            alike = function.with_(name="pack")
            digest = structure_key(Module({"pack": alike}))[:10]
            name = f"pack_{digest}"
            self.functions[name] = function.with_(name=name)
            self.names[kernel, position] = name
