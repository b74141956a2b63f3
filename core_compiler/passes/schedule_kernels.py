"""Schedule kernels: each kernel's plain loops are tiled, packed, vectorised and parallelised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from core_compiler.ir import Function, Module
from core_compiler.ir.core import structure_key
from core_compiler.ir.target import Launch
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
        sizes = _launch_sizes(module)
        earlier = context.facts.pop(EARLIER, {})
        schedules = {}
        packers = _Packers()
        functions = dict(module.functions)
        for done, kernel in enumerate(kernels):
            context.progress(f"schedule {kernel.name}", done, len(kernels))
            launches = sizes.get(kernel.name, ())
            scheduled = earlier.get(_key(kernel, launches)) if earlier else None
            if scheduled is None:
                scheduled = context.target.schedule(kernel, context.options, launches)
            schedules[kernel.name] = scheduled
            functions[kernel.name] = scheduled.function
            for name, core in scheduled.cores.items():
                functions.setdefault(name, core)
            packers.enter(kernel.name, scheduled)
        functions.update(packers.functions)
        context.facts["schedules"] = schedules
        context.facts["packers"] = packers.names
        return module.with_(functions=functions)


#: The fact that holds the schedules of the same model at other sizes.
EARLIER = "earlier schedules"


def scheduled_as(module: Module, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schedules of a finished module, for another compile as the fact ``EARLIER``."""
    sizes = _launch_sizes(module)
    return {
        _key(scheduled.steps[0].function, sizes.get(name, ())): scheduled
        for name, scheduled in facts["schedules"].items()
    }


def _launch_sizes(module: Module) -> dict[str, list[tuple[int, ...]]]:
    """Return the sizes of the launches of each kernel."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for op in module.main.body.ops:
        if launch := Launch.match(op):
            found.setdefault(launch.kernel, []).append(launch.sizes)
    return found


def _key(kernel: Function, sizes: Sequence[tuple[int, ...]]) -> str:
    """Return what a kernel's schedule follows from, for one target and its options."""
    return f"{structure_key(Module({kernel.name: kernel}))} {sorted(set(sizes))}"


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
