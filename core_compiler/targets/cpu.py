"""The CPU target: Numba kernels, one arena, our own thread team."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from core_compiler.ir import Function, Module
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.support.errors import UserError
from core_compiler.targets import Target
from core_compiler.targets.native import implementation


class CPU(Target):
    """This machine's processor, through Numba and LLVM."""

    name = "cpu"
    summary = "Numba kernels on this machine's processor"
    runs_in_subprocess = True
    options = MappingProxyType(
        {
            "vector_width": "lanes of a vector, 16 or 8; not given: as many as this processor has",
            "tiles": "register and cache tiles, default or small",
        }
    )

    @property
    @override
    def defaults(self) -> Mapping[str, Any]:
        return {"vector_width": own_width(), "tiles": "default"}

    @cached_property
    @override
    def machine(self):
        from core_compiler.hardware import host

        return host.machine()

    @override
    def prepare(self) -> None:
        """Start the compile workers, so that their imports overlap with the passes."""
        self.cache.warm()

    @override
    def pipeline(self, options: Mapping[str, Any]) -> Sequence:
        self._tiling(options)  # report a wrong option before the compile starts
        return implementation(in_vectors=True)

    @override
    def schedule(self, kernel: Function, options: Mapping[str, Any], launches=()) -> Scheduled:
        from core_compiler.scheduling.schedules.library import schedule

        width, tiles = self._tiling(options)
        return schedule(kernel, width, launches, tiles)

    def _tiling(self, options: Mapping[str, Any]) -> tuple[int, str]:
        """Return the options ``vector_width`` (lanes) and ``tiles``; UserError if unsupported.

        A width that this processor does not have is still compiled (LLVM uses two registers per
        vector, and spills a register tile): tests of bits use it.
        """
        from core_compiler.scheduling.schedules.library import TILINGS, WIDTHS

        taken = {**self.defaults, **options}
        width, tiles = taken["vector_width"], taken["tiles"]
        if str(width) not in map(str, WIDTHS):
            raise UserError(
                f"unsupported vector width {width}",
                "option vector_width",
                f"choose {' or '.join(map(str, WIDTHS))}",
            )
        if tiles not in TILINGS:
            raise UserError(
                f"unknown tiling {tiles!r}", "option tiles", f"choose {' or '.join(TILINGS)}"
            )
        return int(width), tiles

    @cached_property
    def cache(self):
        from core_compiler.runtime.kernel_cache import KernelCache

        return KernelCache()

    @override
    def compile(
        self, kernels: Mapping[str, Function], options: Mapping[str, Any], progress
    ) -> Mapping[str, Any]:
        from core_compiler.codegen.cpu import generate
        from core_compiler.runtime.kernel_cache import KernelSource

        entries = {name: generate(f) for name, f in kernels.items()}
        sources = [KernelSource(n, s.text, s.symbol, s.lines) for n, s in entries.items()]
        made = self.cache.compile(
            sources, lambda done, total, name: progress(f"compile {name}", done, total)
        )
        return dict(zip(entries, made, strict=True))

    @override
    def link(self, module: Module, facts: Mapping[str, Any], options: Mapping[str, Any]):
        from core_compiler.runtime.team import default_threads
        from core_compiler.targets.link import Linker

        linker = Linker(module, facts, str(options.get("name", "model")))
        program = linker.link(int(options.get("threads", 0)) or default_threads())
        return program, linker.arrays, linker.launch_ops

    @override
    def load(self, module: Module, facts: Mapping[str, Any], threads: int = 0):
        program, arrays, _ = facts["program"]
        return self.device(threads=threads).load(program, arrays)

    @override
    def device(self, threads: int = 0, **options):
        from core_compiler.runtime.cpu import CpuDevice

        return CpuDevice(threads or None, self.cache)


@cache
def own_width() -> int:
    """Return the f32 lanes of this processor's vector registers, among widths with tiles."""
    from core_compiler.hardware import host
    from core_compiler.scheduling.schedules.library import WIDTHS

    lanes = host.detect().vector_bytes // 4
    return next((width for width in WIDTHS if width <= lanes), WIDTHS[-1])
