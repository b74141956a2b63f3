"""Predicted times of GPU kernels: how long a launch takes, and what bounds it.

A launch takes the launch latency and then the longest of: the busiest multiprocessor's blocks, its
traffic to the second cache, its traffic to memory.  A multiprocessor runs its blocks in rounds of
those that are resident; a round takes as long as one block alone (dependent instructions), or as
all of them need on the busiest pipe.  Compute and latency overlap fully (Volkov, "Understanding
latency hiding on GPUs", UC Berkeley 2016), so this is no bound, but on the optimistic side.

``docs/cuda.md`` describes the model, its sources and its errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from core_compiler.hardware.machine import Machine
from core_compiler.hardware.occupancy import WARP, resident_blocks
from core_compiler.hardware.pipes import FP32, FP64, IMAD, INT, SCHEDULERS, SPECIAL, Pipes

#: What can bound a launch, in words; the keys of ``Prediction.terms``.
BOUNDS = {
    "launch": "launch latency",
    "latency": "dependent latency",
    "issue": "instruction issue",
    FP32: "FP32 arithmetic",
    FP64: "FP64 arithmetic",
    IMAD: "integer multiplies",
    INT: "integer arithmetic",
    SPECIAL: "special functions",
    "shared": "shared memory",
    "l1": "first cache",
    "l2": "second cache",
    "dram": "memory",
}
#: Bytes of a sector: a request to the second cache.
SECTOR = 32


@dataclass(frozen=True)
class WarpWork:
    """The execution of one warp.

    ``cycles`` of a block alone on its multiprocessor; ``instructions`` by pipe; cycles that its
    requests occupy shared memory and the first cache; ``sectors`` that leave the multiprocessor.
    """

    cycles: float
    instructions: Mapping[str, float]
    shared_cycles: float = 0.0
    first_cache_cycles: float = 0.0
    sectors: float = 0.0


@dataclass(frozen=True)
class LaunchShape:
    """A launch: blocks, threads of each, registers of a thread, shared bytes of a block.

    ``bytes``: those that it must move (:func:`core_compiler.hardware.costs.kernel_cost`), from
    memory if ``cold``, else from the second cache.
    """

    blocks: int
    threads: int
    registers: int
    shared: int
    bytes: int = 0
    cold: bool = False

    @property
    def warps(self) -> int:
        return -(-self.threads // WARP)


@dataclass(frozen=True)
class Prediction:
    """A predicted launch in microseconds, with the key of what bounds it in :data:`BOUNDS`.

    ``terms``: microseconds that each resource needs by itself.  ``resident`` blocks of at most
    ``rounds`` rounds run on a multiprocessor at a time.  ``note``: what is not known, or "".
    """

    us: float
    bound: str
    terms: Mapping[str, float] = field(default_factory=dict)
    resident: int = 0
    rounds: int = 0
    note: str = ""

    @property
    def bound_by(self) -> str:
        return BOUNDS[self.bound]

    def to_json(self) -> dict[str, Any]:
        """Return what a recording holds of it, to the nanosecond; resources of 0 are left out."""
        terms = {name: round(us, 3) for name, us in self.terms.items() if us >= 0.0005}
        return {**asdict(self), "us": round(self.us, 3), "terms": terms, "bound_by": self.bound_by}


def total(predictions: Iterable[tuple[Prediction, int]]) -> tuple[float, str]:
    """Return the microseconds of launches, each with how often it runs, and what bounds most.

    Launches follow one another on one stream.
    """
    bounds: dict[str, float] = {}
    for each, runs in predictions:
        bounds[each.bound_by] = bounds.get(each.bound_by, 0.0) + runs * each.us
    return sum(bounds.values()), max(bounds, key=lambda name: bounds[name], default="")


@dataclass(frozen=True)
class GPUModel:
    """The figures of a machine that the prediction needs; rates in units per second."""

    name: str
    capability: tuple[int, int]
    processors: int
    clock: float
    pipes: Pipes
    launch: float
    cache_bytes: float
    cache_bandwidth: float
    bandwidth: float

    @staticmethod
    def of(machine: Machine) -> GPUModel | None:
        """Return the model of a machine; None if its description lacks a figure."""
        figures, pipes = machine.figures, Pipes.of(machine)
        unit, bandwidth = machine.units[0], machine.tiers[-1].bandwidth
        cache = next((t for t in machine.tiers if t.name == "l2"), None)
        if pipes is None or not {"launch", "capability"} <= figures.keys():
            return None
        if cache is None or cache.capacity is None or cache.bandwidth is None:
            return None
        if unit.clock is None or bandwidth is None:
            return None
        major, minor = divmod(round(10 * figures["capability"].value), 10)
        return GPUModel(
            machine.name,
            (major, minor),
            int(unit.count.value),
            unit.clock.base,
            pipes.at(unit.clock.base),
            figures["launch"].base,
            cache.capacity.base,
            cache.bandwidth.base,
            bandwidth.base,
        )

    def predict(self, warp: WarpWork, launch: LaunchShape, note: str = "") -> Prediction:
        """Return the predicted time of a launch whose warps all do the same work."""
        if not launch.blocks:
            return Prediction(0.0, "launch", {"launch": 0.0}, note="no blocks: not launched")
        resident, _ = resident_blocks(
            self.capability, launch.threads, launch.registers, launch.shared
        )
        resident = max(resident, 1)
        each = -(-launch.blocks // self.processors)
        full, rest = divmod(each, resident)
        terms = self._round(warp, launch, min(each, resident))
        worst = max(terms, key=lambda name: terms[name])
        rounds = full + bool(rest)
        cycles = full * max(terms.values())
        if rest:
            cycles += max(self._round(warp, launch, rest).values())
        moved = SECTOR * warp.sectors * launch.warps * launch.blocks
        us = {name: 1e6 * rounds * n / self.clock for name, n in terms.items()}
        us[worst] = 1e6 * cycles / self.clock
        us["l2"] = 1e6 * max(moved, 0 if launch.cold else launch.bytes) / self.cache_bandwidth
        us["dram"] = 1e6 * launch.bytes / self.bandwidth if launch.cold else 0.0
        bound = max(us, key=lambda name: us[name])
        start = 1e6 * self.launch
        total = start + us[bound]
        us["launch"] = start
        bound = "launch" if start > us[bound] else bound
        return Prediction(total, bound, us, resident, rounds, note)

    def _round(self, warp: WarpWork, launch: LaunchShape, blocks: int) -> dict[str, float]:
        """Return the cycles of resident ``blocks`` of a multiprocessor, by what they need."""
        warps = blocks * launch.warps
        turns = -(-warps // SCHEDULERS)
        found = {"latency": warp.cycles, "issue": turns * sum(warp.instructions.values())}
        for pipe in (FP32, FP64, IMAD, INT, SPECIAL):
            found[pipe] = turns * warp.instructions.get(pipe, 0.0) * self.pipes.interval(pipe)
        found["shared"] = warps * warp.shared_cycles
        found["l1"] = warps * warp.first_cache_cycles
        return found
