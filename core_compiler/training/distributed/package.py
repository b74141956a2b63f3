"""A training step as plain data, for workers in other processes or on other machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.ops.positions import Positions
from core_compiler.runtime.cpu import CpuDevice
from core_compiler.runtime.kernel_cache import KernelCache, KernelSource
from core_compiler.runtime.program import BUILTIN, Program
from core_compiler.support.errors import UserError
from core_compiler.training.audit.probes import NamedValue, Probes
from core_compiler.training.graph.losses import Classes
from core_compiler.training.graph.roles import Result, Roles
from core_compiler.training.run.step import LossNotFinite, TrainingStep


@dataclass(frozen=True)
class Package:
    """A serialised program for workers.

    It contains ``program`` as JSON, its constants by digest, and the source of its kernels (name,
    text, symbol). The worker compiles machine code itself or takes it from its cache.
    """

    program: str
    constants: Mapping[str, np.ndarray]
    kernels: tuple[tuple[str, str, str], ...]
    roles: Roles
    rows: tuple[Result, ...]
    shards: int
    identity: str
    seed: int
    names: tuple[NamedValue, ...]
    probes: Probes
    classes: Classes | None
    positions: Positions | None

    @staticmethod
    def of(step: TrainingStep) -> Package:
        """Package a step; raise UserError for a target that workers cannot run."""
        compilation = step.compilation.finish()
        if compilation.target.name != "cpu":
            raise UserError(
                f"workers do not support the target {compilation.target.name}",
                "workers",
                "train on the target cpu, or without workers",
            )
        program, constants, _ = compilation.facts["program"]
        cache = compilation.target.cache
        kernels = tuple(
            (k.name, cache.file(k, "source.py").decode(), k.symbol)
            for k in program.kernels
            if k.key != BUILTIN
        )
        return Package(
            program.to_json(),
            dict(constants),
            kernels,
            step.roles,
            step.rows,
            step.shards,
            step.identity,
            step.seed,
            tuple(step.names),
            step.probes,
            step.classes,
            step.positions,
        )

    @property
    def rounds(self) -> list[list[int]]:
        """Return the sizes in bytes of the arrays of each round of exchanges."""
        from core_compiler.ir.types import dtype

        return [
            [x.elements * dtype(x.dtype).bytes for x in exchanges]
            for exchanges in Program.from_json(self.program).rounds()
        ]


class PackedStep(TrainingStep):
    """The step of a package; without a compilation it cannot be explained."""

    def __init__(self, package: Package, state: Sequence[np.ndarray], threads: int = 0):
        super().__init__(package.roles, state, package.shards)
        self.package = package
        self.classes, self.positions = package.classes, package.positions
        self.names, self.probes = list(package.names), package.probes
        cache = KernelCache()
        sources = [KernelSource(*k) for k in package.kernels]
        made = {k.ref.name: k.ref for k in cache.compile(sources)}
        program = Program.from_json(package.program)
        kernels = tuple(made.get(k.name, k) for k in program.kernels)
        self._program = replace(program, kernels=kernels)
        self._device = CpuDevice(threads or None, cache)

    @property
    @override
    def rows(self) -> tuple[Result, ...]:
        return self.package.rows

    @property
    @override
    def identity(self) -> str:
        return self.package.identity

    @property
    @override
    def seed(self) -> int:
        return self.package.seed

    @override
    def _load(self) -> Any:
        return self._device.load(self._program, self.package.constants)

    @override
    def not_finite(self, loss: float, batch: Sequence[np.ndarray]) -> LossNotFinite:
        return LossNotFinite(loss)
