"""The parts of a chain of kernels, and which of their sizes are equal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from core_compiler.ir import BufferType, Function
from core_compiler.kernel_ir.abi import buffer_arguments, index_arguments
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms.edit import (
    expect,
    need,
)


@dataclass(frozen=True)
class Part:
    """A kernel of a chain, and the sizes of its launch.

    ``reads``, ``writes``: the positions among its buffer arguments of the values that it has from
    the part before and for the next one (None: there is none).
    """

    scheduled: Scheduled
    sizes: tuple[int, ...]
    reads: int | None
    writes: int | None

    @property
    def plain(self) -> Function:
        return self.scheduled.steps[0].function

    @property
    def between(self) -> tuple[int, ...]:
        """The positions of the buffers that are values of the chain."""
        return tuple(place for place in (self.reads, self.writes) if place is not None)


#: What an index argument of a part is: itself, or the product of others of the chain's base.
Name = tuple[int, str]
Factors = tuple[Name, ...]


@dataclass(frozen=True)
class Chain:
    """The parts and the equalities between their sizes.

    ``rows``: the extents of the values between the parts but the last (batch axes, then rows);
    ``same``: index arguments of parts that are products of others.
    """

    parts: tuple[Part, ...]
    rows: Factors
    same: Mapping[Name, Factors]

    @staticmethod
    def of(parts: Sequence[Part]) -> Chain:
        """Return the chain; raise :class:`Refused` if the parts' values differ in their rows."""
        parts = tuple(parts)
        kinds = [
            (number, buffer_arguments(part.plain)[place].type)
            for number, part in enumerate(parts)
            for place in part.between
        ]
        base, kind = max(kinds, key=lambda found: found[1].rank)
        rows = tuple((base, expect(_named(d), "an axis has a fixed size")) for d in kind.shape[:-1])
        need(len(rows) >= 1, "the value between the parts has one axis")
        same: dict[Name, Factors] = {}
        widths: list[Name] = []

        def bind(name: Name, factors: Factors) -> None:
            if factors != (name,):
                need(same.setdefault(name, factors) == factors, f"{name[1]} is two extents")

        for between in range(len(parts) - 1):
            ends = ((between, parts[between].writes), (between + 1, parts[between + 1].reads))
            for number, place in ends:
                assert place is not None
                found = buffer_arguments(parts[number].plain)[place].type
                dims = [expect(_named(d), "an axis has a fixed size") for d in found.shape]
                *lead, width = ((number, d) for d in dims)
                widths.append(width)
                bind(width, (widths[0],))
                for name, factors in zip(lead, _grouped(rows, len(lead)), strict=True):
                    bind(name, factors)
        for number, place in ((n, p) for n, part in enumerate(parts) for p in part.between):
            found = buffer_arguments(parts[number].plain)[place].type
            names = [(number, str(d)) for d in found.shape]
            for axis, stride in enumerate(found.strides):
                if isinstance(stride, str):
                    later = (same.get(n, (n,)) for n in names[axis + 1 :])
                    bind((number, stride), tuple(itertools.chain.from_iterable(later)))
                else:
                    need(axis == len(names) - 1 and stride == 1, "rows are not adjacent in memory")
        made = Chain(parts, rows, same)
        for name, factors in same.items():
            need(made.value(name) == prod(map(made.value, factors)), f"{name[1]} differs")
        return made

    def value(self, name: Name) -> int:
        """Return the value of an index argument of a part in its launch."""
        number, argument = name
        part = self.parts[number]
        names = [v.name for v in index_arguments(part.plain)]
        return part.sizes[names.index(argument)]

    @property
    def arguments(self) -> list[tuple[int, int]]:
        """The kernel's buffer arguments: numbers of a part and of its buffer argument."""
        return [
            (number, place)
            for number, part in enumerate(self.parts)
            for place in range(len(buffer_arguments(part.plain)))
            if place not in part.between
        ]

    @cached_property
    def sizes(self) -> list[Name]:
        """The kernel's index arguments: those of the parts that are not products of others."""
        names = [
            (number, str(v.name))
            for number, part in enumerate(self.parts)
            for v in index_arguments(part.plain)
        ]
        return [name for name in names if name not in self.same or name in self._typed]

    @cached_property
    def _typed(self) -> set[Name]:
        """The products that types of arguments name."""
        return {
            (number, d)
            for number, place in self.arguments
            for d in _names_of(buffer_arguments(self.parts[number].plain)[place].type)
            if len(self.same.get((number, d), ())) != 1
        }


def _named(extent: int | str) -> str | None:
    return extent if isinstance(extent, str) else None


def _names_of(kind: BufferType) -> list[str]:
    return [d for d in (*kind.shape, *kind.strides, kind.offset) if isinstance(d, str)]


def _grouped(rows: Factors, rank: int) -> list[Factors]:
    """Return the extents of a view of ``rank`` axes of rows: batch axes may be merged."""
    if rank == len(rows):
        return [(name,) for name in rows]
    if rank == 2:
        return [rows[:-1], rows[-1:]]
    need(rank == 1, f"rows have {len(rows)} axes in one part and {rank} in another")
    return [rows]
