"""Locations of a compiled step's values at run time, read by receipts and changed by injections.

The values are those of the module after the meaning half, which is the same for every target and
tiling. A value is numbered by its position among the results of that module's ops. Some values are
in memory when a launch has ended; the others live inside kernels and are observed only through
their consumers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from core_compiler.ir import Module, Op, Origin, Rewrite, Value, dtype
from core_compiler.ir.target import LAUNCH, Launch
from core_compiler.lowering.lower import GROUP
from core_compiler.passes.outline_kernels import OutlineKernels
from core_compiler.runtime.program import Ref
from core_compiler.runtime.shards import ShardWatcher
from core_compiler.support.arrays import strided
from core_compiler.training.graph.roles import Roles


@dataclass(frozen=True)
class NamedValue:
    """A value of the meaning module by its user-visible names.

    These are the op (``core.conv#2`` is the second convolution), the name of the value, and its
    source.
    """

    number: int
    op: str
    name: str
    origin: str


@dataclass(frozen=True)
class Probe:
    """The location ``ref`` of value ``number`` after launch ``launch``.

    ``shape`` and strides are in elements. ``own`` is true if the value differs between shards.
    ``inside`` is true if the launch itself used the value, so that not all of its readers see the
    memory (at least the next iteration reads its initial state from there).
    """

    launch: int
    number: int
    ref: Ref
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kernel: str
    own: bool
    inside: bool = False

    @property
    def bytes(self) -> int:
        """Return the number of bytes that the value spans from ``ref`` on."""
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return 0 if 0 in self.shape else (last + 1) * dtype(self.dtype).numpy.itemsize

    def view(self, memory: np.ndarray) -> np.ndarray:
        """Return the value as a view of its bytes."""
        kind = dtype(self.dtype).numpy
        return strided(memory.view(kind), self.shape, self.strides)


@dataclass(frozen=True)
class Probes:
    """All probes of a program in launch order.

    ``gradients`` maps each parameter name to the number of the gradient that the optimiser
    receives, if it is in memory. ``unseen`` are the parameters whose gradient lives inside a
    kernel. ``results`` are the parameters whose gradient is a result of the program, which nothing
    overwrites before the step has ended.
    """

    probes: tuple[Probe, ...]
    gradients: Mapping[str, int]
    unseen: tuple[str, ...] = ()
    results: frozenset[str] = frozenset()


def meaning_of(compilation: Any) -> Module:
    """Return the module after the meaning half."""
    return [s for s in compilation.stages if s.step is None or s.step.half == "meaning"][-1].module


def names(module: Module) -> list[NamedValue]:
    """Return the values of a meaning module's ops, numbered in program order."""
    counts: Counter[str] = Counter()
    made: list[NamedValue] = []
    for op in module.main.body.ops:
        counts[op.kind] += 1
        for value in op.results:
            label = f"{op.kind}#{counts[op.kind]}"
            made.append(NamedValue(len(made), label, value.name or "", source(op.origin)))
    return made


def source(origin: Origin | None) -> str:
    """Return the source of an op: its line in the model, else the model's node, else the rule."""
    nodes = origin.nodes() if origin is not None else ()
    lines = dict.fromkeys(f"{n.file}:{n.line}" for n in nodes if n.file)
    return (
        ", ".join(lines)
        or ", ".join(dict.fromkeys(n.name for n in nodes if n.name))
        or (origin.rule if origin is not None and origin.rule else "")
    )


def shard_dependent_values(ops: Iterable[Op], arguments: Iterable[Value]) -> set[Value]:
    """Return the values that differ between shards if ``arguments`` do."""
    found = set(arguments)
    for op in ops:
        if op.kind != "core.all_reduce" and not found.isdisjoint(op.uses()):
            found.update(op.results)
    return found


def find_probes(compilation: Any) -> Probes:
    """Return the probes of a finished training compile."""
    module = meaning_of(compilation)
    main = module.main
    numbers = {v: i for i, v in enumerate(v for op in main.body.ops for v in op.results)}
    roles = Roles.of(main)
    varying = shard_dependent_values(
        main.body.ops, [main.arguments[i] for i in roles.numbers("batch", "shard")]
    )
    originals: dict[Value, Value] = {v: v for v in numbers}
    inside: set[Value] = set()
    for before, stage in pairwise(compilation.stages):
        if stage.step is not None and stage.step.half == "implementation":
            if isinstance(stage.step.pass_, OutlineKernels):
                inside = {originals.get(v, v) for v in _read_inside(before.module)}
            _track_replacements(stage.rewrites, originals)
    inside -= {
        v for (role, _), v in zip(roles.results, main.outputs, strict=True) if role == "next"
    }
    program, _, ops = compilation.facts["program"]
    probes = []
    for place, (launch, op) in enumerate(zip(program.launches, ops, strict=True)):
        for value, ref in _written_buffers(op, launch.buffers):
            of = originals.get(value)
            if of in numbers and of.type.shape == value.type.shape:
                type_ = value.type
                probes.append(
                    Probe(
                        place,
                        numbers[of],
                        ref,
                        type_.dtype.name,
                        type_.shape,
                        type_.strides,
                        launch.kernel,
                        of in varying,
                        of in inside,
                    )
                )
    seen = {p.number for p in probes}
    gradients = {
        roles.arguments[of][1]: numbers.get(main.outputs[place], -1)
        for of, place in roles.gradients().items()
    }
    final_roles = Roles.of(compilation.module.main)
    results = frozenset(final_roles.arguments[of][1] for of in final_roles.gradients())
    unseen = tuple(n for n, number in gradients.items() if number not in seen and n not in results)
    return Probes(tuple(probes), {n: i for n, i in gradients.items() if i in seen}, unseen, results)


def _read_inside(module: Module) -> Iterator[Value]:
    """Yield the results of groups that ops of the same group read."""
    for op in module.main.body.walk():
        if op.kind == GROUP:
            region = op.regions[0]
            read = {v for each in region.ops for v in each.uses()}
            yield from (v for v, w in zip(op.results, region.outputs, strict=True) if w in read)


def _track_replacements(rewrites: Sequence[Rewrite], originals: dict[Value, Value]) -> None:
    """Track which value each new value of the implementation half replaces."""
    for rewrite in rewrites:
        for old, new in rewrite.values.items():
            if old in originals and new not in originals:
                originals[new] = originals[old]


def _written_buffers(op: Op, refs: Sequence[Ref]) -> list[tuple[Value, Ref]]:
    """Return the buffers that a launch writes, with their locations."""
    if op.kind != LAUNCH:
        return []
    launch = Launch.of(op)
    return [
        (value, ref)
        for value, ref in zip(launch.buffers, refs, strict=True)
        if value in launch.written
    ]


class Watch:
    """A callback that an executable calls after launches.

    ``on_value`` is called for the probes whose launches have ended. ``writes`` is true if it may
    change the values. ``shard`` is set by the caller that runs the shards.
    """

    def __init__(self, probes: Iterable[Probe], on_value: Any, writes: bool = False):
        self.writes = writes
        self.by_launch: dict[int, list[Probe]] = {}
        for probe in probes:
            self.by_launch.setdefault(probe.launch, []).append(probe)
        self.on_value = on_value
        self.shard = 0

    def stops(self, first: int, last: int) -> list[int]:
        """Return the launches from ``first`` up to ``last`` after which the watch is called."""
        return sorted(n for n in self.by_launch if first <= n < last)

    def after_launch(self, launch: int, memory: Any) -> None:
        """Report the values of a finished launch; ``memory(ref, size)`` returns its bytes."""
        for probe in self.by_launch.get(launch, ()):
            self.on_value(self.shard, probe, probe.view(memory(probe.ref, probe.bytes)))


class CombinedWatch:
    """Several watches of one program, called in order."""

    def __init__(self, watches: Sequence[ShardWatcher]):
        self.watches = watches

    @property
    def writes(self) -> bool:
        return any(watch.writes for watch in self.watches)

    @property
    def shard(self) -> int:
        return self.watches[0].shard

    @shard.setter
    def shard(self, number: int) -> None:
        for watch in self.watches:
            watch.shard = number

    def stops(self, first: int, last: int) -> list[int]:
        return sorted({n for watch in self.watches for n in watch.stops(first, last)})

    def after_launch(self, launch: int, memory: Any) -> None:
        for watch in self.watches:
            watch.after_launch(launch, memory)


def combine_watches(watches: Iterable[ShardWatcher | None]) -> CombinedWatch | None:
    """Combine the given watches into one; return None if there are none."""
    found = [w for w in watches if w is not None]
    return CombinedWatch(found) if found else None
