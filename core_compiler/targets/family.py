"""Programs of one model at many sizes, from compiles at four of them.

A size of the inputs (a batch, a sequence's length) often changes nothing in a program but numbers:
shapes, the sizes of launches, offsets.  A :class:`Family` is made of compiles at the sizes ``low``,
``low + 1``, one in the middle, and ``high``; it has the program of every size between, without a
pass.  It exists only if

- the four programs are equal but for numbers: the same launches of the same machine code on the
  same constants, and the same lifetimes;
- each number is a polynomial of the size of degree 2 through three of them, and has the fourth's
  value;
- no buffer shrinks as the size grows: then the largest size's memory plan holds for all.

Why the sizes between have this program too: passes and schedules decide by comparing numbers that
are polynomials of the size.  An equality that holds at three sizes holds at all; a bound that holds
at both ends of a growing number holds between; a divisor of two neighbouring numbers of a line
divides all.  Code relies on a divisor only of numbers that are in it, and it is the same at all
sizes: those that vary are index arguments, for which it is right whatever they are.  Passing over a
simplification that only some size between permits changes no bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core_compiler.ir import Module
from core_compiler.ir.target import LAUNCH
from core_compiler.ir.target import Launch as LaunchOp
from core_compiler.runtime.program import Launch, Program, Ref
from core_compiler.support.polynomial import NotPolynomial, Polynomial
from core_compiler.targets.link import COPY, ModuleNeeds, copy_items


class NoFamily(Exception):
    """The programs of these sizes differ by more than numbers; the message says in what."""


@dataclass(frozen=True)
class Member:
    """A compile at one size."""

    size: int
    module: Module
    facts: Mapping[str, Any]

    @property
    def program(self) -> Program:
        return self.facts["program"][0]

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """The constants of the program, by digest."""
        return self.facts["program"][1]

    def launch_sizes(self) -> list[tuple[int, ...]]:
        """Return the sizes of each launch, before its schedule adds to them."""
        return [
            LaunchOp(op).sizes if op.kind == LAUNCH else launch.indices
            for op, launch in zip(self.facts["program"][2], self.program.launches, strict=True)
        ]

    def argument_numbers(self) -> list[list[int]]:
        """Return the numbers of each input and output that may differ from size to size."""
        return [list(a.shape) for a in (*self.program.inputs, *self.program.outputs)]

    def launch_numbers(self) -> list[list[int]]:
        """Return those of each launch: sizes, offsets of buffers."""
        return [
            [*sizes, *(r.offset for r in n.buffers if r.space != "arena")]
            for sizes, n in zip(self.launch_sizes(), self.program.launches, strict=True)
        ]

    def loop_numbers(self) -> list[list[int]]:
        return [[] if loop.trips is None else [loop.trips] for loop in self.program.loops]

    def form(self) -> tuple:
        """Return everything but those numbers, the arena's offsets, and what follows from sizes."""
        program = self.program
        return (
            [(a.name, a.dtype, len(a.shape), a.alias) for a in program.inputs],
            [(a.name, a.dtype, len(a.shape), a.alias) for a in program.outputs],
            set(program.kernels),
            [
                (n.kernel, len(sizes), [_without_offset(r) for r in n.buffers], n.max_threads)
                for n, sizes in zip(program.launches, self.launch_sizes(), strict=True)
            ],
            program.constants,
            program.packed,
            program.prepack,
            [replace(loop, trips=None if loop.trips is None else 0) for loop in program.loops],
            program.facts,
            [
                (i.start, i.end, i.space, i.index)
                for i, _ in self.facts["lifetimes"]
                if i.space == "arena"
            ],
        )

    def buffer_sizes(self) -> list[int]:
        return [i.size for i, _ in self.facts["lifetimes"] if i.space == "arena"]


def _without_offset(ref: Ref) -> Ref:
    return replace(ref, offset=0)


#: The parts of :meth:`Member.form`.
_PARTS = (
    "inputs",
    "outputs",
    "kernels",
    "launches",
    "constants",
    "packed constants",
    "packing launches",
    "loops",
    "facts",
    "lifetimes",
)


def need_equal_forms(members: Sequence[Member]) -> None:
    """Raise NoFamily if the programs of members differ by more than numbers."""
    forms = [m.form() for m in members]
    for part, values in zip(_PARTS, zip(*forms, strict=True), strict=True):
        if any(value != values[0] for value in values):
            raise NoFamily(f"the {part} differ")


class Family:
    """The programs of the sizes from ``low`` to ``high``."""

    def __init__(self, members: Sequence[Member]):
        members = sorted(members, key=lambda m: m.size)
        sizes = [m.size for m in members]
        if len(sizes) < 4 or len(set(sizes)) < len(sizes) or sizes[1] != sizes[0] + 1:
            raise ValueError(f"expected two neighbours and two more sizes, got {sizes}")
        self.sizes, self.low, self.high = sizes, sizes[0], sizes[-1]
        self.largest = members[-1]
        if self.largest.program.exchanges:
            raise NoFamily("shards exchange tensors")
        need_equal_forms(members)
        try:
            self._fit(sizes, members)
        except NotPolynomial as error:
            raise NoFamily(str(error)) from None
        last = self.largest
        self._needs = ModuleNeeds(
            last.module, last.facts["schedules"], last.program.facts["threads"]
        )
        self._counts = [len(n) for n in last.launch_sizes()]

    def _fit(self, sizes: Sequence[int], members: Sequence[Member]) -> None:
        self._arguments, self._launches, self._loops = (
            _varying(sizes, [numbers(m) for m in members])
            for numbers in (Member.argument_numbers, Member.launch_numbers, Member.loop_numbers)
        )
        for values in zip(*(m.buffer_sizes() for m in members), strict=True):
            if len(set(values)) > 1 and not Polynomial.through(sizes, values).never_falls(self.low):
                raise NoFamily("a buffer shrinks as the size grows")

    def __contains__(self, size: int) -> bool:
        return self.low <= size <= self.high

    def program(self, size: int) -> Program:
        """Return the program of a size of the family.

        The work of its launches, for reports, is the largest size's.
        """
        if size not in self:
            raise ValueError(f"size {size} is not in {self.low}..{self.high}")
        given = self.largest.program
        arguments = [*given.inputs, *given.outputs]
        for place, shape in _at(self._arguments, size):
            arguments[place] = replace(arguments[place], shape=tuple(shape))
        launches = list(given.launches)
        for place, numbers in _at(self._launches, size):
            launches[place] = self._resized(launches[place], self._counts[place], numbers)
        loops = list(given.loops)
        for place, (trips,) in _at(self._loops, size):
            loops[place] = replace(loops[place], trips=trips)
        count = len(given.inputs)
        return replace(
            given,
            inputs=tuple(arguments[:count]),
            outputs=tuple(arguments[count:]),
            launches=tuple(launches),
            loops=tuple(loops),
        )

    def _resized(self, launch: Launch, count: int, numbers: Sequence[int]) -> Launch:
        sizes, found = tuple(numbers[:count]), iter(numbers[count:])
        buffers = tuple(
            ref if ref.space == "arena" else replace(ref, offset=next(found))
            for ref in launch.buffers
        )
        if launch.kernel == COPY:
            indices, items, scratch = sizes, copy_items(sizes[0]), launch.scratch_bytes
        else:
            indices = self._needs.indices(launch.kernel, sizes)
            items, scratch, _ = self._needs.of(launch.kernel, indices)
        return Launch(
            launch.name,
            launch.kernel,
            buffers,
            indices,
            items,
            scratch,
            launch.max_threads,
            launch.flops,
            launch.bytes,
            launch.callees,
        )


def _varying(
    sizes: Sequence[int], members: Sequence[Sequence[Sequence[int]]]
) -> list[tuple[int, list[int | Polynomial]]]:
    """Return the places whose numbers differ between the members, with their polynomials."""
    found = []
    for place, rows in enumerate(zip(*members, strict=True)):
        if any(row != rows[0] for row in rows):
            columns = list(zip(*rows, strict=True))
            found.append(
                (
                    place,
                    [v[0] if len(set(v)) == 1 else Polynomial.through(sizes, v) for v in columns],
                )
            )
    return found


def _at(
    varying: Sequence[tuple[int, Sequence[int | Polynomial]]], size: int
) -> Iterator[tuple[int, list[int]]]:
    known: dict[Polynomial, int] = {}  # many numbers are the same one
    for place, numbers in varying:
        found = []
        for number in numbers:
            if isinstance(number, Polynomial):
                if number not in known:
                    known[number] = number.at(size)
                number = known[number]
            found.append(number)
        yield place, found
