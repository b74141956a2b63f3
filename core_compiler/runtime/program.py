"""A compiled program as plain data: the result of the compiler's last pass, for a device.

A program names its kernels by cache key and its constants by digest, and lists its launches with
every address as a :class:`Ref`.  It serialises to JSON, so a compiled model comes out of the cache
and runs without any pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from math import prod

import numpy as np
from typing_extensions import override

from core_compiler.ir.types import dtype as find_dtype
from core_compiler.support.errors import InternalError, UserError

VERSION = 4
#: The spaces of references.  ``index`` is the number of the constant, packed buffer, input or
#: output; the arena is one block, and only ``offset`` counts there.
SPACES = ("arena", "constant", "packed", "input", "output")
#: The key of kernels that are part of the runtime (``cw_copy``: to, from, bytes; ``cw_zero``: to,
#: bytes; one work item is ``driver.COPY_CHUNK`` bytes).
BUILTIN = "builtin"


@dataclass(frozen=True, slots=True)
class Ref:
    """A buffer operand: ``offset`` bytes into buffer ``index`` of a space."""

    space: str
    index: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class KernelRef:
    """A kernel by its cache key and the symbol in its object file; ``name`` is for the user."""

    name: str
    key: str
    symbol: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant by the digest of its type and bytes (``ir.weights.array_digest``)."""

    digest: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * find_dtype(self.dtype).bytes


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or output; ``alias`` (outputs only) is the input whose memory it may reuse."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    alias: int = -1

    @property
    def bytes(self) -> int:
        return prod(self.shape) * find_dtype(self.dtype).bytes

    @property
    def numpy(self) -> np.dtype:
        return find_dtype(self.dtype).numpy

    @override
    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype}"


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel over ``work_items`` items; each thread gets an equal slice of them.

    ``kernel`` is a :class:`KernelRef` name; ``buffers`` then ``indices`` are its argument block.
    ``callees`` are kernels that this one invokes: their addresses follow the indices in the block.
    ``scratch_bytes`` are per thread; ``max_threads`` 0 means all.  ``flops`` and ``bytes`` (read
    and written once each) are its compulsory work, for the profiler.
    """

    name: str
    kernel: str
    buffers: tuple[Ref, ...]
    indices: tuple[int, ...] = ()
    work_items: int = 1
    scratch_bytes: int = 0
    max_threads: int = 0
    flops: int = 0
    bytes: int = 0
    callees: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of launches.

    Those from ``start`` up to ``test`` write the byte ``flag``; while it is not 0, those from
    ``test`` up to ``end`` follow, and the loop repeats.  A loop with a known trip count (``trips``)
    has no flag: all its launches run that often.
    """

    start: int
    test: int
    end: int
    flag: Ref | None
    trips: int | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A launch that the shards of a batch execute together.

    ``target`` becomes the sum over all shards of ``source`` (``elements`` of ``dtype`` each); the
    kernel computes it for a single shard.
    """

    launch: int
    source: Ref
    target: Ref
    dtype: str
    elements: int


@dataclass(frozen=True)
class Program:
    """Everything that a device needs to execute a program.

    ``packed`` are buffers (bytes) that the ``prepack`` launches fill once, when the program is
    loaded.  ``loops`` are ordered by start, outer ones before those inside; a launch outside of
    loops runs once.  ``exchanges`` are in the order of their launches, outside of loops.  ``facts``
    are JSON values for reports.
    """

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    kernels: tuple[KernelRef, ...]
    launches: tuple[Launch, ...]
    arena_bytes: int = 0
    constants: tuple[Constant, ...] = ()
    packed: tuple[int, ...] = ()
    prepack: tuple[Launch, ...] = ()
    loops: tuple[Loop, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    facts: dict = field(default_factory=dict)

    def to_json(self) -> str:
        """Return one line of JSON; ``from_json`` returns an equal program."""
        return json.dumps({"version": VERSION, **asdict(self)}, sort_keys=True)

    @staticmethod
    def from_json(text: str | bytes, where: str = "compiled program") -> Program:
        """Return the program of a JSON text; UserError if it is damaged or of another version."""
        try:
            data = json.loads(text)
            version = data.pop("version")
            if version != VERSION:
                raise UserError(
                    f"made by a different runtime version ({version})",
                    where,
                    "compile the model again",
                )
            program = Program(
                name=data["name"],
                inputs=_arguments(data["inputs"]),
                outputs=_arguments(data["outputs"]),
                kernels=tuple(KernelRef(**k) for k in data["kernels"]),
                launches=_launches(data["launches"]),
                arena_bytes=data["arena_bytes"],
                constants=tuple(
                    Constant(c["digest"], c["dtype"], tuple(c["shape"])) for c in data["constants"]
                ),
                packed=tuple(data["packed"]),
                prepack=_launches(data["prepack"]),
                loops=tuple(
                    Loop(**{**x, "flag": None if x["flag"] is None else Ref(**x["flag"])})
                    for x in data["loops"]
                ),
                exchanges=tuple(
                    Exchange(**{**x, **{n: Ref(**x[n]) for n in ("source", "target")}})
                    for x in data["exchanges"]
                ),
                facts=data["facts"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"not a compiled program ({error})", where, "compile the model again"
            ) from None
        program.check()
        return program

    def check(self) -> None:
        """Raise InternalError if a reference exceeds its buffer's space or a kernel is unknown."""
        if len({k.name for k in self.kernels}) != len(self.kernels):
            raise InternalError(f"{self.name}: duplicate kernel name")
        sizes = self.space_sizes()
        names = {k.name for k in self.kernels}
        for launch in (*self.prepack, *self.launches):
            for kernel in (launch.kernel, *launch.callees):
                if kernel not in names:
                    raise InternalError(f"{self.name}: {launch.name} launches unknown {kernel!r}")
            if launch.work_items < 0 or launch.scratch_bytes < 0 or launch.max_threads < 0:
                raise InternalError(f"{self.name}: {launch.name} has a negative size")
            for ref in launch.buffers:
                known = sizes.get(ref.space, [])
                if not (0 <= ref.index < len(known) and 0 <= ref.offset <= known[ref.index]):
                    raise InternalError(f"{self.name}: {launch.name} reads out of bounds: {ref}")
        for loop in self.loops:
            if not 0 <= loop.start <= loop.test <= loop.end <= len(self.launches):
                raise InternalError(f"{self.name}: {loop} has launches out of range")
            if loop.flag is None:
                if loop.trips is None or loop.trips < 0 or loop.test != loop.start:
                    raise InternalError(f"{self.name}: {loop} has neither a flag nor a trip count")
                continue
            known = sizes.get(loop.flag.space, [])
            inside = 0 <= loop.flag.index < len(known)
            if not (inside and 0 <= loop.flag.offset < known[loop.flag.index]):
                raise InternalError(f"{self.name}: {loop} reads its flag out of bounds")
        for exchange in self.exchanges:
            at = exchange.launch
            if not 0 <= at < len(self.launches) or any(x.start <= at < x.end for x in self.loops):
                raise InternalError(
                    f"{self.name}: launch {at} of an exchange is out of range or in a loop"
                )
        for launch in self.prepack:
            if any(r.space not in ("constant", "packed") for r in launch.buffers):
                raise InternalError(
                    f"{self.name}: {launch.name} packs a value that is not a constant"
                )

    def rounds(self) -> list[tuple[Exchange, ...]]:
        """Return the exchanges, grouping those of consecutive launches."""
        made: list[list[Exchange]] = []
        for exchange in self.exchanges:
            if made and made[-1][-1].launch + 1 == exchange.launch:
                made[-1].append(exchange)
            else:
                made.append([exchange])
        return [tuple(one) for one in made]

    def execute(
        self,
        run: Callable[[int, int, int], None],
        holds: Callable[[Ref], bool],
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """Call ``run(start, end, trips)`` for the launches from ``first`` up to ``last`` (all).

        They run in order, ``trips`` times; a loop without a trip count runs while ``holds(flag)``.
        """

        def part(start: int, end: int, loops: Sequence[Loop]) -> None:
            while loops:
                outer = loops[0]
                inner = [x for x in loops[1:] if x.start < outer.end and x.end <= outer.end]
                loops = loops[1 + len(inner) :]
                if start < outer.start:
                    run(start, outer.start, 1)
                if outer.flag is None:
                    trips = outer.trips or 0
                    if not inner:
                        run(outer.start, outer.end, trips)
                    else:
                        for _ in range(trips):
                            part(outer.start, outer.end, inner)
                    start = outer.end
                    continue
                tested = [x for x in inner if x.end <= outer.test]
                rest = inner[len(tested) :]
                while True:
                    part(outer.start, outer.test, tested)
                    if not holds(outer.flag):
                        break
                    part(outer.test, outer.end, rest)
                start = outer.end
            if start < end:
                run(start, end, 1)

        last = len(self.launches) if last is None else last
        part(first, last, [x for x in self.loops if first <= x.start and x.end <= last])

    def space_sizes(self) -> dict[str, list[int]]:
        """Return the bytes of each buffer by space."""
        return {
            "arena": [self.arena_bytes],
            "constant": [c.bytes for c in self.constants],
            "packed": list(self.packed),
            "input": [a.bytes for a in self.inputs],
            "output": [a.bytes for a in self.outputs],
        }

    def memory_bytes(self, threads: int, constants: bool = True) -> int:
        """Return the bytes that loading allocates: arena, scratch, packed and raw constants.

        Without ``constants``, the last two are not counted.
        """
        sizes = self.space_sizes()
        held = sum(sizes["constant"]) + sum(sizes["packed"]) if constants else 0
        scratch = threads * scratch_stride((*self.launches, *self.prepack))
        return self.arena_bytes + held + scratch


def scratch_stride(launches: Sequence[Launch]) -> int:
    """Return the bytes between two threads' scratch blocks: the largest need, in cache lines."""
    return max((-(-launch.scratch_bytes // 64) * 64 for launch in launches), default=0)


def _arguments(items) -> tuple[Argument, ...]:
    return tuple(Argument(a["name"], a["dtype"], tuple(a["shape"]), a["alias"]) for a in items)


def _launches(items) -> tuple[Launch, ...]:
    def launch(item):
        item["buffers"] = tuple(Ref(**r) for r in item["buffers"])
        item["indices"] = tuple(item["indices"])
        item["callees"] = tuple(item["callees"])
        return Launch(**item)

    return tuple(map(launch, items))
