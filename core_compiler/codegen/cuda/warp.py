"""A warp's execution of a kernel, from its SASS: instructions by kind, and the time it needs alone.

Counts: each SASS loop belongs to the loop of the kernel IR that its backward branch maps to (SASS,
PTX, source line, op).  NVVM and ptxas unroll loops and leave copies for the rest: how many
iterations a copy has is read from its arithmetic and memory instructions, compared with those of
one iteration in the kernel IR.  The copy with the most iterations runs as often as it fits, the
others take the rest.

Time: instructions issue in order, one a cycle at most, when their operands are ready and their pipe
is free.  A load's result is ready after the latency of the memory that holds its sector.  All
iterations of a loop but the first take what the second one takes.  Sources of the scheme: Volkov,
"Understanding latency hiding on GPUs" (UC Berkeley, 2016); Hong and Kim, "An analytical model for a
GPU architecture" (ISCA 2009).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core_compiler.codegen.cuda.sass import Instruction, Region
from core_compiler.hardware.accesses import Access, KernelWork
from core_compiler.hardware.pipes import BARRIER, BRANCH, COPY, MEMORY, WAIT, Pipes, pipe_of
from core_compiler.hardware.prediction import WarpWork
from core_compiler.ir import Op, VectorType
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.ops import definition, element

#: Kernel ops that become one instruction, and its opcodes: by these, copies of a loop are counted.
_ANCHORS = {
    "kernel.fma": ("FFMA", "DFMA"),
    "kernel.add": ("FADD", "DADD"),
    "kernel.sub": ("FADD", "DADD"),
    "kernel.mul": ("FMUL", "DMUL"),
    "kernel.max": ("FMNMX", "DMNMX"),
    "kernel.min": ("FMNMX", "DMNMX"),
}
_OPCODES = {o for group in _ANCHORS.values() for o in group}


@dataclass(eq=False)
class _Part:
    """Straight code, or a loop (``body``), with how often it runs each time it is reached."""

    times: float
    code: list[Instruction] = field(default_factory=list)
    body: list[_Part] | None = None
    loop: Op | None = None
    #: Iterations of ``loop`` in one pass.
    copies: int = 1


class WarpExecution:
    """A kernel's SASS with the iterations of its loops, for one launch.

    ``lines``: source line -> kernel op; ``places``: SASS line -> source line.
    """

    def __init__(
        self, root: Region, places: Mapping[int, int], lines: Mapping[int, Op], work: KernelWork
    ):
        self.work, self.places, self.lines = work, places, lines
        self.accesses = work.accesses()
        self._statements: dict[Op, list[Op]] = {}
        self._own = set(lines.values())
        self._untaken = work.untaken()
        #: SASS loops that belong to no loop of the kernel: their code is counted once.
        self.unknown_loops = 0
        self.parts = self._plan(root, None)

    # -- from SASS to kernel ops -------------------------------------------------------------------

    def op_of(self, instruction: Instruction) -> Op | None:
        return self.lines.get(self.places.get(instruction.line, 0))

    def _statement(self, op: Op) -> list[Op]:
        """Return the ops of a source line: its op, and those written inside its expression."""
        if op not in self._statements:
            found, pending = [], [op]
            while pending:
                here = pending.pop()
                found.append(here)
                for value in here.operands:
                    inner = self.work.defs.get(value)
                    if inner is not None and inner not in self._own and not inner.regions:
                        pending.append(inner)
            self._statements[op] = found
        return self._statements[op]

    def accesses_of(self, instruction: Instruction) -> list[tuple[Op, Access]]:
        """Return the accesses that an instruction may be: those of its space on its line."""
        opcode = "LDG" if instruction.opcode == COPY else instruction.opcode
        return self._accesses_as(instruction, opcode)

    def stores_of(self, instruction: Instruction) -> list[tuple[Op, Access]]:
        """Return the stores to shared memory of an asynchronous copy."""
        return self._accesses_as(instruction, "STS")

    def _accesses_as(self, instruction: Instruction, opcode: str) -> list[tuple[Op, Access]]:
        spaces = {"LDG": "global", "STG": "global", "LDS": "shared", "STS": "shared"}
        space, op = spaces.get(opcode), self.op_of(instruction)
        loads = opcode.startswith("LD")
        return [
            (each, found)
            for each in (self._statement(op) if space is not None and op is not None else ())
            if (found := self.accesses.get(each)) and (found.space, found.loads) == (space, loads)
        ]

    def _loop_of(self, region: Region) -> Op | None:
        """Return the kernel IR's loop of a SASS loop: its branch's, else the commonest inside."""
        op = self.lines.get(self.places.get(region.branch, 0))
        if op is not None and op in self.work.around and op.kind == "kernel.for":
            return op
        found = Counter(
            loops[-1]
            for i in region.instructions()
            if (op := self.op_of(i)) is not None and (loops := self.work.around.get(op))
        )
        return found.most_common(1)[0][0] if found else None

    def _copies(self, code: Iterable[Instruction], loop: Op) -> int:
        """Return how many iterations of a loop a piece of code contains; 0 if it shows none."""
        counts: dict[int, Counter[str]] = defaultdict(Counter)
        for instruction in code:
            op = self.op_of(instruction)
            if op is not None and self.work.around.get(op, ())[-1:] == (loop,):
                opcode = instruction.opcode
                amount = 1 if opcode in _OPCODES else instruction.bits
                counts[self.places[instruction.line]][opcode] += amount
        best = 0.0
        for line, found in counts.items():
            for opcodes, expected in self._expected(self.lines[line]).items():
                if expected:
                    best = max(best, sum(found[o] for o in opcodes) / expected)
        return round(best)

    def _expected(self, op: Op) -> dict[tuple[str, ...], int]:
        """Return the instructions (bits, for memory) that one execution of a line needs."""
        expected: Counter[tuple[str, ...]] = Counter()
        statement = self._statement(op)
        for each in statement:
            value = (*each.results, *each.operands)[0].type
            lane = element(value)
            wide = value.width if isinstance(value, VectorType) else 1
            found = self.accesses.get(each)
            if found is not None and op.get("asynchronous"):
                expected[COPY,] += 8 * lane.bytes * (not found.loads)
            elif found is not None and (found.space == "global" or not found.loads):
                opcode = {("global", True): "LDG", ("global", False): "STG"}.get(
                    (found.space, found.loads), "STS"
                )
                expected[opcode,] += 8 * lane.bytes * wide
            elif lane is not INDEX and lane.is_float and each.kind in _ANCHORS:
                expected[_ANCHORS[each.kind]] += wide
        if any(definition(each).cost > 1 or each.kind == "kernel.call" for each in statement):
            # The code of a function has the same opcodes.
            expected = Counter({k: n for k, n in expected.items() if k[0] not in _OPCODES})
        return expected

    # -- how often ---------------------------------------------------------------------------------

    def _plan(self, region: Region, loop: Op | None) -> list[_Part]:
        """Return the code and the loops of a region, each with how often it runs per pass."""
        pieces = _pieces(region)
        loops = {r: self._loop_of(r) for r in pieces if isinstance(r, Region)}
        times: dict[int, tuple[Op | None, int, float]] = {}
        for its in dict.fromkeys(loops.values()):
            if its is not None and its is not loop:
                times.update(self._share(pieces, loops, its, loop))
        parts: list[_Part] = []
        for number, piece in enumerate(pieces):
            its, copies, count = times.get(number, (None, 1, 1.0))
            if its is None and self._is_untaken(piece):
                count = 0.0
            if isinstance(piece, Region):
                self.unknown_loops += number not in times
                parts.append(_Part(count, [], self._plan(piece, its), its, copies))
            else:
                parts.append(_Part(count, piece))
        return _joined(parts)

    def _is_untaken(self, piece: Region | list[Instruction]) -> bool:
        """Return whether a piece is a branch that is not taken: all its known ops are."""
        code = piece.every() if isinstance(piece, Region) else piece
        ops = [op for i in code if (op := self.op_of(i)) is not None]
        return bool(ops) and self._untaken.issuperset(ops)

    def _share(
        self,
        pieces: Sequence[Region | list[Instruction]],
        loops: Mapping[Region, Op | None],
        its: Op,
        outer: Op | None,
    ) -> dict[int, tuple[Op | None, int, float]]:
        """Return how often each piece with copies of a loop's body runs, by its number.

        The piece with the most copies takes as many iterations as it can; straight code runs once
        at most.
        """
        found: list[tuple[int, int]] = []
        for number, piece in enumerate(pieces):
            if isinstance(piece, Region):
                if loops[piece] is its:
                    found.append((number, max(1, self._copies(piece.instructions(), its))))
            elif copies := self._copies(piece, its):
                found.append((number, copies))
        left = 0.0 if its in self._untaken else self._iterations(its, outer)
        times: dict[int, tuple[Op | None, int, float]] = {}
        for number, copies in sorted(found, key=lambda pair: -pair[1]):
            repeats = isinstance(pieces[number], Region)
            count = left / copies if repeats and copies == 1 else left // copies
            count = count if repeats else min(count, 1.0)
            times[number] = its, copies, count
            left -= count * copies
        if left > 0 and found:  # iterations that no copy fits: part of the smallest
            number, copies = min(found, key=lambda pair: pair[1])
            times[number] = its, copies, times[number][2] + left / copies
        return times

    def _iterations(self, loop: Op, outer: Op | None) -> float:
        """Return the iterations of a loop in one of an outer one (None: of the kernel)."""
        total = self.work.trips(loop)
        for around in reversed(self.work.around[loop]):
            if around is outer:
                break
            total *= self.work.trips(around)
        return total


def _pieces(region: Region) -> list[Region | list[Instruction]]:
    """Return the loops of a region, and its basic blocks."""
    found: list[Region | list[Instruction]] = []
    block: list[Instruction] = []
    for item in region.items:
        if isinstance(item, Instruction):
            block.append(item)
            continue
        if block:
            found.append(block)
            block = []
        if isinstance(item, Region):
            found.append(item)
    return [*found, block] if block else found


def _joined(parts: Sequence[_Part]) -> list[_Part]:
    """Return the parts with neighbouring code that runs equally often in one."""
    found: list[_Part] = []
    for part in parts:
        if found and part.body is None and found[-1].body is None and found[-1].times == part.times:
            found[-1].code.extend(part.code)
        elif part.times > 0:
            found.append(part)
    return found


# -- the time of a warp ----------------------------------------------------------------------------


class Warp:
    """Adds up a warp's instructions, and simulates its issue among other warps that do the same.

    ``is_cold(argument)``: whether a buffer argument is in memory, and in no cache.
    """

    def __init__(
        self, execution: WarpExecution, pipes: Pipes, is_cold: Callable[[int | None], bool]
    ):
        self.execution, self.pipes, self.is_cold = execution, pipes, is_cold
        self._accesses: dict[Instruction, list[tuple[Op, Access]]] = {}

    def work(self, warps: int) -> WarpWork:
        """Return what a warp of a block of ``warps`` warps issues and moves.

        The warps of a block wait for each other at barriers, so they request the same memory in
        turns; those of other blocks do so when these wait.
        """
        totals = _Totals()
        self._add(self.execution.parts, 1.0, totals)
        cycles, _ = self._run(self.execution.parts, None, 1, warps)
        return WarpWork(cycles, totals.instructions, totals.shared, totals.l1, totals.sectors)

    def _run(
        self, parts: Sequence[_Part], loop: Op | None, copies: int, warps: int
    ) -> tuple[float, float]:
        """Return the cycles of the first pass over the parts and of a later one."""
        durations: dict[_Part, float] = {}
        for part in parts:
            if part.body is not None:
                first, later = self._run(part.body, part.loop, part.copies, warps)
                few = first * part.times if part.times < 1 else 0.0
                durations[part] = few or first + later * (part.times - 1)
        issue = _Issue(self.pipes, warps)
        ends = []
        for _ in range(1 if loop is None else 2):
            seen: Counter[Op] = Counter()
            for part in parts:
                if part.body is not None:
                    issue.skip(durations[part])
                    continue
                start = issue.now
                for instruction in part.code:
                    occupied = self._occupied(instruction)
                    latency = self._latency(instruction, loop, copies, seen)
                    issue.step(instruction, latency + occupied, occupied)
                if part.times < 1:
                    issue.shrink(start, part.times)
            if loop is not None:
                issue.skip(self.pipes.latency[BRANCH])
            ends.append(issue.now)
        return ends[0], ends[-1] - ends[0]

    def _access(self, instruction: Instruction) -> list[tuple[Op, Access]]:
        """Return the accesses that an instruction may be: those of its space on its line."""
        if instruction not in self._accesses:
            self._accesses[instruction] = self.execution.accesses_of(instruction)
        return self._accesses[instruction]

    def _add(self, parts: Sequence[_Part], weight: float, totals: _Totals) -> None:
        for part in parts:
            if part.body is not None:
                self._add(part.body, weight * part.times, totals)
            for instruction in part.code:
                self._count(instruction, weight * part.times, totals)

    def _count(self, instruction: Instruction, weight: float, totals: _Totals) -> None:
        found = self._access(instruction)
        pipe = pipe_of(instruction.opcode, instruction.form)
        totals.instructions[pipe] = totals.instructions.get(pipe, 0.0) + weight
        if instruction.opcode in ("LDS", "STS"):
            totals.shared += weight * self._occupied(instruction)
        elif instruction.opcode in ("LDG", "STG", COPY):
            sectors = _mean([a.sectors for _, a in found] or [instruction.bits / 8])
            missing = _mean([a.misses() for _, a in found] or [1.0])
            totals.l1 += weight * self._occupied(instruction)
            totals.sectors += weight * sectors * (1.0 if instruction.opcode == "STG" else missing)
            if instruction.opcode == COPY:
                stores = self.execution.stores_of(instruction)
                totals.shared += weight * _mean([a.cycles for _, a in stores] or [1.0])

    def _occupied(self, instruction: Instruction) -> float:
        """Return the cycles that a request occupies the multiprocessor's memory."""
        if instruction.opcode not in ("LDG", "STG", "LDS", "STS", COPY):
            return 0.0
        words = max(1, instruction.bits // 32)
        return _mean([a.cycles for _, a in self._access(instruction)] or [words])

    def _latency(self, instruction, loop: Op | None, copies: int, seen: Counter) -> float:
        """Return the cycles until an instruction's result can be used."""
        latency = self.pipes.latency
        if instruction.opcode not in ("LDG", COPY):
            return self.pipes.result_cycles(instruction.opcode, instruction.form)
        found = self._access(instruction)
        slowest = latency["l1"] if found else latency["l2"]
        for op, access in found:
            far = latency["dram"] if self.is_cold(access.argument) else latency["l2"]
            here = access.missing.get(loop, 1.0) if loop is not None else 1.0
            # The copies of an unrolled loop, else those of the loop that this is a body of.
            inside, repeats = (here, copies) if access.unrolled == 1 else (access.unrolled, 2)
            outside = access.misses() / inside if inside else 0.0
            share = _share_missing(inside, repeats, seen[op])
            seen[op] += 1
            slowest = max(slowest, latency["l1"] + share * outside * (far - latency["l1"]))
        return slowest


def _share_missing(inside: float, copies: int, number: int) -> float:
    """Return how often copy ``number`` of a loop's load needs a new sector.

    ``inside``: the share of the loop's iterations that do.  Copies that are too few for a sector
    need one now and then, the first of them.
    """
    if number == 0:
        return min(1.0, inside * copies)
    before, here = (int(inside * n + 1e-9) for n in (number - 1, number))
    return float(inside * copies >= 1 and here > before)


@dataclass
class _Totals:
    instructions: dict[str, float] = field(default_factory=dict)
    shared: float = 0.0
    l1: float = 0.0
    sectors: float = 0.0


class _Issue:
    """The registers and pipes that a warp sees in time, in cycles; ``warps`` take turns."""

    def __init__(self, pipes: Pipes, warps: int):
        self.pipes, self.now = pipes, 0.0
        self._warps = warps
        self._ready: dict[str, float] = {}
        self._free: dict[str, float] = {}
        self._copied = 0.0  # when the last asynchronous copy has taken place

    def step(self, instruction: Instruction, latency: float, occupied: float) -> None:
        pipe = pipe_of(instruction.opcode, instruction.form)
        start = max(self.now + 1, self._free.get(pipe, 0.0))
        for register in (*instruction.reads, *instruction.writes):
            start = max(start, self._ready.get(register, 0.0))
        if pipe == BARRIER:
            start += latency
        if instruction.opcode == WAIT:
            start = max(start, self._copied)
        elif instruction.opcode == COPY:
            self._copied = max(self._copied, start + latency)
        self.now = start
        busy = self._warps * max(1.0, occupied) if pipe == MEMORY else 0.0
        self._free[pipe] = start + (busy or self.pipes.interval(pipe))
        for register in instruction.writes:
            self._ready[register] = start + latency

    def skip(self, cycles: float) -> None:
        self.now += cycles

    def shrink(self, start: float, share: float) -> None:
        """Count only a share of the time since ``start``."""
        self.now = start + (self.now - start) * share
        self._ready = {r: min(t, self.now + (t - self.now) * share) for r, t in self._ready.items()}
        self._copied = min(self._copied, self.now + (self._copied - self.now) * share)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
