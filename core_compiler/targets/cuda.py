"""The CUDA target: numba-cuda kernels on one NVIDIA GPU.

It compiles without a GPU and without a driver, down to SASS; only executing needs them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from core_compiler.hardware.prediction import Prediction
from core_compiler.ir import Function, Module, Op
from core_compiler.passes.split_sums import SplitSums
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.support.errors import CANNOT_HERE, UserError
from core_compiler.targets import Target
from core_compiler.targets.native import implementation

#: The architecture that is compiled for if there is no GPU.
ARCHITECTURE = "sm_90"
#: Our files whose text affects the compiled code of a source.
_TOOLCHAIN = (
    "numerics/primitives.py",
    "numerics/functions*.py",
    "numerics/narrow.py",
    "kernel_ir/scalars.py",
    "codegen/*.py",
    "codegen/cuda/*.py",
)


class CUDA(Target):
    """An NVIDIA GPU, through numba-cuda, NVVM and ptxas."""

    name = "cuda"
    summary = "Numba CUDA kernels on an NVIDIA GPU (compiles without one)"
    options = MappingProxyType(
        {
            "architecture": "what to compile for, as sm_90 (default: the machine's)",
            "machine": "GPU whose times are predicted: h200, h100, a100, rtx4090 (default: this "
            "machine's, h200 without one)",
            "tiles": "tiles of products, default or small",
        }
    )

    @cached_property
    @override
    def machine(self):
        from core_compiler.hardware import gpu as machines
        from core_compiler.runtime.cuda_driver import gpu

        found = gpu()
        if found is None:
            return machines.machine()
        return machines.machine(
            found.name,
            found.processors,
            found.clock,
            found.memory,
            found.bandwidth,
            found.shared,
            found.cache,
            found.capability,
        )

    @override
    def machine_of(self, options: Mapping[str, Any]):
        """Return the GPU of the option ``machine``; UserError if it is unknown."""
        from core_compiler.hardware.gpu import NAMES
        from core_compiler.hardware.machine import shipped

        name = options.get("machine")
        if name is None:
            return self.machine
        if name not in NAMES:
            fix = f"choose one of {', '.join(NAMES)}"
            raise UserError(f"unknown machine {name!r}", "option machine", fix)
        return shipped(name)

    @override
    def prepare(self) -> None:
        """Start the compile workers, so that their imports overlap with the passes."""
        kernel_cache(ARCHITECTURE).warm()

    @override
    def pipeline(self, options: Mapping[str, Any]) -> Sequence:
        from core_compiler.codegen.cuda import toolchain

        toolchain.require()  # report this and wrong options before the compile starts
        self._tiles(options)
        self._architecture(options)
        return implementation(products=(self._split_sums(options),))

    def _split_sums(self, options: Mapping[str, Any]) -> SplitSums:
        machine = self.machine_of(options)
        unit, launch = machine.units[0], machine.figures.get("launch")
        if unit.clock is None or launch is None:
            return SplitSums(int(unit.count.value))
        return SplitSums(int(unit.count.value), round(launch.base * unit.clock.base))

    @override
    def schedule(self, kernel: Function, options: Mapping[str, Any], launches=()) -> Scheduled:
        from core_compiler.scheduling.schedules import gpu

        processors = int(self.machine_of(options).units[0].count.value)
        architecture = int(self._architecture(options).removeprefix("sm_"))
        capability = divmod(architecture, 10)
        return gpu.schedule(kernel, launches, processors, self._tiles(options), capability)

    def _tiles(self, options: Mapping[str, Any]) -> str:
        from core_compiler.scheduling.schedules.gpu.product import TILINGS

        tiles = options.get("tiles", "default")
        if tiles not in TILINGS:
            raise UserError(
                f"unknown tiling {tiles!r}", "option tiles", f"choose {' or '.join(TILINGS)}"
            )
        return tiles

    def _architecture(self, options: Mapping[str, Any]) -> str:
        """Return the option ``architecture``; UserError if it is invalid."""
        from core_compiler.runtime.cuda_driver import gpu

        found = gpu()
        default = ARCHITECTURE if found is None else found.architecture
        if "machine" in options:
            capability = self.machine_of(options).figures["capability"].value
            default = f"sm_{round(10 * capability)}"
        wanted = str(options.get("architecture", default))
        if not re.fullmatch(r"sm_\d{2,3}", wanted):
            raise UserError(
                f"invalid architecture {wanted!r}",
                "option architecture",
                "use a name like sm_75, sm_90 or sm_120",
            )
        chosen = "architecture" in options or "machine" in options
        self._check_supported(wanted, None if chosen else found)
        return wanted

    def _check_supported(self, wanted: str, found) -> None:
        """Raise UserError if ptxas does not support the architecture of the GPU or the option."""
        from core_compiler.codegen.cuda import toolchain

        known = toolchain.architectures()
        if wanted in known:
            return
        ptxas = toolchain.versions()["nvidia-cuda-nvcc"]
        if found is None:
            raise UserError(
                f"ptxas {ptxas} does not support {wanted}",
                "option architecture",
                f"choose one of {', '.join(known)}",
            )
        raise UserError(
            f"ptxas {ptxas} does not support its compute capability ({wanted})",
            found.name,
            f"choose -t cpu, or read kernels for another GPU with architecture={known[-1]}",
            CANNOT_HERE,
        )

    @override
    def compile(
        self, kernels: Mapping[str, Function], options: Mapping[str, Any], progress
    ) -> Mapping[str, Any]:
        from core_compiler.codegen.cuda.source import generate
        from core_compiler.runtime.kernel_cache import KernelSource

        entries = {name: generate(f) for name, f in kernels.items()}
        sources = [KernelSource(n, s.text, s.symbol, s.lines) for n, s in entries.items()]
        made = kernel_cache(self._architecture(options)).compile(
            sources, lambda done, total, name: progress(f"compile {name}", done, total)
        )
        return dict(zip(entries, made, strict=True))

    @override
    def link(self, module: Module, facts: Mapping[str, Any], options: Mapping[str, Any]):
        from core_compiler.targets.link import Linker

        linker = Linker(module, facts, str(options.get("name", "model")))
        return linker.link(1), linker.arrays, linker.launch_ops

    @override
    def predict(
        self, module: Module, facts: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Mapping[Op, Prediction]:
        from core_compiler.targets.predict import predict_launches

        return predict_launches(facts, self.machine_of(options))

    @override
    def load(self, module: Module, facts: Mapping[str, Any], threads: int = 0):
        program, arrays, _ = facts["program"]
        return self.device().load(program, arrays)

    @override
    def device(self, **options):
        from core_compiler.runtime.cuda import CudaDevice

        return CudaDevice(kernel_cache(ARCHITECTURE), **options)

    @override
    def available(self) -> str | None:
        from core_compiler.runtime.cuda_driver import missing

        reason = missing()
        return (
            f"{reason}: kernels are compiled and can be read, but not executed" if reason else None
        )


@cache
def kernel_cache(architecture: str):
    """Return the cache of compiled kernels for an architecture."""
    from core_compiler.runtime.kernel_cache import KernelCache

    worker = f"core_compiler.codegen.cuda.worker:{architecture}"
    return KernelCache(compiler=worker, identity=identity)


@cache
def identity() -> str:
    """Return the versions of numba-cuda and NVIDIA's tools, and the digest of our own part."""
    from core_compiler.codegen.cuda import toolchain
    from core_compiler.runtime.kernel_cache import digest_of

    parts = (f"{name} {version}" for name, version in toolchain.versions().items())
    return "; ".join((*parts, digest_of(_TOOLCHAIN)))
