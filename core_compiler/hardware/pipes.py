"""The pipes of a GPU's multiprocessor: which one an instruction uses, its rate and its latency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from core_compiler.hardware.machine import Machine
from core_compiler.hardware.occupancy import WARP

FP32, FP64, IMAD, INT, SPECIAL = "fp32", "fp64", "imad", "int", "special"
MEMORY, UNIFORM, BRANCH, BARRIER = "memory", "uniform", "branch", "barrier"
#: An asynchronous copy from global to shared memory, and waiting for all of them.
COPY, WAIT = "LDGSTS", "DEPBAR"
#: Parts of a multiprocessor that issue on their own, one instruction a cycle each.
SCHEDULERS = 4

_PIPES = {
    FP32: "FFMA FADD FMUL",
    FP64: "DFMA DADD DMUL DSETP DMNMX",
    SPECIAL: "MUFU I2F F2I F2F I2I FRND POPC FLO",
    MEMORY: "LDG STG LDS STS LDL STL LD ST LDC ATOM ATOMG ATOMS RED SHFL S2R LDSM LDGSTS",
    BRANCH: "BRA BRX EXIT BSSY BSYNC CALL RET WARPSYNC YIELD",
    BARRIER: "BAR",
}
_BY_OPCODE = {opcode: pipe for pipe, opcodes in _PIPES.items() for opcode in opcodes.split()}


def pipe_of(opcode: str, form: str = "") -> str:
    """Return the pipe of an opcode; moves written as ``IMAD.MOV`` use the multiplier too."""
    if opcode in _BY_OPCODE:
        return _BY_OPCODE[opcode]
    if opcode.startswith("IMAD"):
        return IMAD
    if opcode.startswith("U") or opcode in ("R2UR", "S2UR", "CS2R"):
        return UNIFORM
    return INT


@dataclass(frozen=True)
class Pipes:
    """Rates and latencies of a multiprocessor.

    ``lanes``: results per cycle by pipe.  ``latency``: cycles until a result can be used, by pipe
    and by memory (``shared``, ``l1``, ``l2``, ``dram``); ``seconds``: latencies in seconds.
    """

    lanes: Mapping[str, float]
    latency: Mapping[str, float]
    seconds: Mapping[str, float]

    @staticmethod
    def of(machine: Machine) -> Pipes | None:
        """Return the figures ``lanes_*`` and ``latency_*`` of a machine; None if it has none.

        Latencies in cycles remain so; those in seconds wait for :meth:`at`.
        """
        found: dict[str, dict[str, float]] = {"lanes": {}, "latency": {}, "seconds": {}}
        for name, figure in machine.figures.items():
            kind, _, what = name.partition("_")
            if kind == "latency" and figure.unit != "cycles":
                found["seconds"][what] = figure.base
            elif kind in found:
                found[kind][what] = figure.base
        return Pipes(**found) if found["lanes"] and found["latency"] else None

    def at(self, clock: float) -> Pipes:
        """Return the pipes at a clock (Hz): caches and memory beside the chip have their own."""
        cycles = {name: seconds * clock for name, seconds in self.seconds.items()}
        return replace(self, latency={**self.latency, **cycles}, seconds={})

    def interval(self, pipe: str) -> float:
        """Return the cycles between two instructions of one scheduler on a pipe."""
        lanes = self.lanes.get(pipe)
        return max(1.0, WARP * SCHEDULERS / lanes) if lanes else 1.0

    def result_cycles(self, opcode: str, form: str) -> float:
        """Return the cycles from an instruction's issue to its result, except of global loads."""
        if opcode in ("LDS", "LDSM", "SHFL"):
            return self.latency["shared"]
        if opcode in ("LDL", "LD"):
            return self.latency["l1"]
        if opcode in ("LDC", "S2R", "S2UR", "ULDC"):
            return self.latency["constant"]
        return self.latency[pipe_of(opcode, form)]
