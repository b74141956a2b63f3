"""A training step as plain data, for workers in other processes or on other machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
from core_compiler.training.run.bound import BoundStep, Shapes, shapes_of
from core_compiler.training.run.step import LossNotFinite, TrainingStep, shard_of


@dataclass(frozen=True)
class PackedProgram:
    """A serialised program for one size of the batch.

    It contains ``program`` as JSON, its constants by digest, and the source of its kernels (name,
    text, symbol). The worker compiles machine code itself or takes it from its cache.
    """

    program: str
    constants: Mapping[str, np.ndarray]
    kernels: tuple[tuple[str, str, str], ...]
    probes: Probes
    positions: Positions | None

    @staticmethod
    def of(bound: BoundStep) -> PackedProgram:
        """Package a program; raise UserError for a target that workers cannot run."""
        compilation = bound.compilation.finish()
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
        return PackedProgram(
            program.to_json(), dict(constants), kernels, bound.probes, bound.positions
        )

    def bound(self, device: CpuDevice) -> BoundStep:
        """Return the program for a device, with its kernels compiled."""
        compiled = device.kernels.compile([KernelSource(*k) for k in self.kernels])
        made = {k.ref.name: k.ref for k in compiled}
        program = Program.from_json(self.program)
        kernels = tuple(made.get(k.name, k) for k in program.kernels)
        program = replace(program, kernels=kernels)
        bound = BoundStep(lambda: device.load(program, self.constants), self.positions)
        bound.probes = self.probes
        return bound


@dataclass(frozen=True)
class _PackedPrograms:
    """The programs of a worker, by the shapes of a shard's batch."""

    programs: Mapping[Shapes, BoundStep]

    def bound(self, batch: Sequence[np.ndarray]) -> BoundStep:
        """Return the program for a batch; UserError if the package has none."""
        if (found := self.programs.get(shapes_of(batch))) is None:
            raise UserError(
                f"workers have no program for a batch of {shapes_of(batch)}",
                "workers",
                "pass examples of one shape, or train without workers",
            )
        return found

    def loaded(self) -> Sequence[BoundStep]:
        return list(self.programs.values())[1:]


@dataclass(frozen=True)
class Package:
    """A serialised step for workers, with its programs by the shapes of a shard's batch.

    The first program is the one for the example.
    """

    programs: Mapping[Shapes, PackedProgram]
    roles: Roles
    rows: tuple[Result, ...]
    shards: int
    identity: str
    seed: int
    names: tuple[NamedValue, ...]
    classes: Classes | None

    @staticmethod
    def of(step: TrainingStep, other: Sequence[np.ndarray] = ()) -> Package:
        """Package a step, also for the batch ``other`` of another size.

        Raise UserError for a target that workers cannot run.
        """
        step.compilation.finish()
        programs = {step.batch_shapes: PackedProgram.of(step.own_bound())}
        if other:
            bound = step.bound(other)
            rows = other if step.shards == 1 else shard_of(other, 0, step.shards)
            programs.setdefault(shapes_of(rows), PackedProgram.of(bound))
        return Package(
            programs,
            step.roles,
            step.rows,
            step.shards,
            step.identity,
            step.seed,
            tuple(step.names),
            step.classes,
        )

    @property
    def rounds(self) -> list[list[int]]:
        """Return the sizes in bytes of the arrays of each round of exchanges, of all programs."""
        from core_compiler.ir.types import dtype

        return [
            [x.elements * dtype(x.dtype).bytes for x in exchanges]
            for packed in self.programs.values()
            for exchanges in Program.from_json(packed.program).rounds()
        ]


class PackedStep(TrainingStep):
    """The step of a package; without a compilation it cannot be explained."""

    def __init__(self, package: Package, state: Sequence[np.ndarray], threads: int = 0):
        super().__init__(package.roles, state, package.shards)
        self.package, self.classes = package, package.classes
        self.names = list(package.names)
        device = CpuDevice(threads or None, KernelCache())
        self.other_batches = _PackedPrograms(
            {shapes: packed.bound(device) for shapes, packed in package.programs.items()}
        )
        self._run = self.other_batches.programs[self.batch_shapes]

    @property
    @override
    def batch_shapes(self) -> Shapes:
        return next(iter(self.package.programs))

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
    def not_finite(self, loss: float, batch: Sequence[np.ndarray]) -> LossNotFinite:
        return LossNotFinite(loss)
