"""Predicted times of a compiled kernel's launches, from its SASS and the loops of its kernel IR."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core_compiler.codegen.cuda.sass import Region, parse
from core_compiler.codegen.cuda.warp import Warp, WarpExecution
from core_compiler.hardware.accesses import KernelWork
from core_compiler.hardware.prediction import GPUModel, LaunchShape, Prediction, WarpWork
from core_compiler.ir import Function, Op


@dataclass(eq=False)
class CompiledLaunches:
    """A compiled kernel, whose launches are predicted.

    ``sass`` in its loops; ``places``: its lines -> source lines; ``lines``: source lines -> kernel
    ops; ``facts`` as in :class:`~core_compiler.codegen.cuda.compile.CompiledKernel`.
    """

    function: Function
    sass: Region
    places: Mapping[int, int]
    lines: Mapping[int, Op]
    facts: Mapping[str, Any]
    _known: dict[tuple, tuple[WarpWork, str]] = field(default_factory=dict)

    @staticmethod
    def of(
        function: Function,
        assembly: str,
        places: Iterable[tuple[int, int]],
        lines: Iterable[tuple[int, Op]],
        facts: Mapping[str, Any],
    ) -> CompiledLaunches:
        return CompiledLaunches(function, parse(assembly), dict(places), dict(lines), facts)

    def predict(
        self,
        model: GPUModel,
        sizes: Sequence[int],
        blocks: int,
        nbytes: int = 0,
        cold: Collection[int] = (),
    ) -> Prediction:
        """Return the predicted time of a launch.

        ``sizes``: its index arguments; ``blocks`` of its grid; ``nbytes`` that it must move;
        ``cold``: the positions of buffer arguments that are in memory and in no cache.
        """
        threads, registers, shared = (
            int(self.facts[name]) for name in ("threads", "registers", "shared")
        )
        launch = LaunchShape(blocks, threads, registers, shared, nbytes, bool(cold))
        work, note = self._work(model, tuple(sizes), launch.warps, frozenset(cold))
        if self.facts.get("spilled"):
            note = "; ".join(filter(None, (note, "spills are not counted")))
        return model.predict(work, launch, note)

    def _work(
        self, model: GPUModel, sizes: tuple[int, ...], warps: int, cold: frozenset[int]
    ) -> tuple[WarpWork, str]:
        key = model.name, model.clock, sizes, cold
        if key not in self._known:
            kernel = KernelWork(self.function, sizes)
            execution = WarpExecution(self.sass, self.places, self.lines, kernel)
            lost = execution.unknown_loops
            note = f"{lost} loops of the SASS belong to no loop of the kernel" if lost else ""
            self._known[key] = Warp(execution, model.pipes, cold.__contains__).work(warps), note
        return self._known[key]
