"""MLIR text under construction: lines that refer to one another, so that unused ones are dropped.

A line is text with marks for values and regions; values are named and regions indented when a
function is printed.  All lines except terminators are pure: those whose results are unused are
omitted, so a handler may emit more than it turns out to need.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from typing_extensions import override

from core_compiler.ir import Origin
from core_compiler.ir.literals import value_name

# The marks of values and regions in a line's text are characters of the private use area, which
# quoted strings contain only in escaped form.
_VALUE, _REGION, _END = "\ue000", "\ue001", "\ue002"
_MARK = re.compile(f"([{_VALUE}{_REGION}])(\\d+){_END}")
_COUNTER = count()


class Ref:
    """An SSA value of the text: ``type`` is its type, ``name`` the model's name for it.

    Formatting it in an f-string inserts its mark.
    """

    __slots__ = ("name", "number", "type")

    def __init__(self, type_: Any, name: str | None = None, number: int | None = None):
        self.type, self.name = type_, name
        self.number = next(_COUNTER) if number is None else number

    def read_as(self, type_: Any) -> Ref:
        """Return the same value under another type with the same MLIR text (another sign)."""
        return Ref(type_, self.name, self.number)

    @override
    def __format__(self, spec: str) -> str:
        return f"{_VALUE}{self.number}{_END}"

    @override
    def __repr__(self) -> str:
        return f"<%{self.name or self.number}: {self.type}>"


class Region:
    """Lines in braces.

    ``header``: whether a line ``^bb0(...)`` names the arguments; otherwise the op's own text does,
    or there are none.
    """

    __slots__ = ("arguments", "header", "lines", "number")

    def __init__(self, arguments: Sequence[Ref] = (), header: bool = True):
        self.arguments, self.header = tuple(arguments), header
        self.lines: list[Line] = []
        self.number = next(_COUNTER)

    @override
    def __format__(self, spec: str) -> str:
        return f"{_REGION}{self.number}{_END}"


@dataclass(slots=True)
class Line:
    """An op: ``text`` without results and location; ``kept`` if it is emitted without uses."""

    text: str
    results: tuple[Ref, ...] = ()
    regions: tuple[Region, ...] = ()
    kept: bool = False
    origin: Origin | None = None


@dataclass
class Writer:
    """A builder of a function's lines: ``body`` in program order, ``constants`` before it.

    Each constant is written once per function, for all of its uses.
    """

    body: Region = field(default_factory=lambda: Region(header=False))
    constants: Region = field(default_factory=lambda: Region(header=False))
    origin: Origin | None = None
    #: Whether the region being written can only access its arguments.
    is_isolated: bool = False
    _known: dict[tuple[str, Any], Ref] = field(default_factory=dict)

    def line(
        self, text: str, type_: Any, name: str | None = None, regions: Sequence[Region] = ()
    ) -> Ref:
        """Append an op with one result of a type."""
        return self.lines(text, (type_,), (name,), regions)[0]

    def lines(
        self,
        text: str,
        types: Sequence[Any],
        names: Sequence[str | None] = (),
        regions: Sequence[Region] = (),
    ) -> tuple[Ref, ...]:
        """Append an op with any number of results."""
        names = (*names, *(None,) * (len(types) - len(names)))
        results = tuple(Ref(t, n) for t, n in zip(types, names, strict=True))
        self.body.lines.append(Line(text, results, tuple(regions), False, self.origin))
        return results

    def end(self, text: str) -> None:
        """Append the terminator of a block."""
        self.body.lines.append(Line(text, kept=True, origin=self.origin))

    def constant(self, text: str, type_: Any, name: str | None = None) -> Ref:
        """Append an op without operands at the start of the function."""
        found = self._known.get((text, type_))
        if found is None:
            found = self._known[text, type_] = Ref(type_, name)
            self.constants.lines.append(Line(text, (found,)))
        return found

    @contextmanager
    def region(self, types: Sequence[Any] = (), names: Sequence[str] = (), header: bool = True):
        """Open a region that receives the lines while the context lasts."""
        names = names or ("",) * len(types)
        made = Region(tuple(Ref(t, n) for t, n in zip(types, names, strict=True)), header)
        outer, self.body = self.body, made
        try:
            yield made
        finally:
            self.body = outer

    @contextmanager
    def isolated(self, types: Sequence[Any]):
        """Open a region that can only access its arguments; its constants are at its own start."""
        outer = self.constants, self._known, self.is_isolated
        self.constants, self._known, self.is_isolated = Region(header=False), {}, True
        try:
            with self.region(types) as made:
                yield made
            made.lines[:0] = self.constants.lines
        finally:
            self.constants, self._known, self.is_isolated = outer


# -- printing --------------------------------------------------------------------------------------


def printed(
    lines: Sequence[Line],
    names: Names,
    indent: str,
    type_text: Callable[[Any], str],
    location: Callable[[Origin], str],
) -> Iterator[str]:
    """Yield the lines of text for ``lines`` (ending in a terminator) and their regions."""
    live = _live_values(lines, set())
    return _Printer(names, live, type_text, location).block(lines, indent, names)


@dataclass(slots=True)
class _Printer:
    names: Names
    live: set[int]
    type_text: Callable[[Any], str]
    location: Callable[[Origin], str]

    def block(self, lines: Sequence[Line], indent: str, scope: Names) -> Iterator[str]:
        for line in lines:
            if line.kept or any(r.number in self.live for r in line.results):
                yield from self._line(line, indent, scope)

    def _line(self, line: Line, indent: str, scope: Names) -> Iterator[str]:
        head = ", ".join([scope.define(r) for r in line.results])
        inner = {region.number: (region, scope.inner(region)) for region in line.regions}
        text = indent + (f"{head} = " if head else "")
        place = 0
        for mark in _MARK.finditer(line.text):
            text += line.text[place : mark.start()]
            place = mark.end()
            number = int(mark[2])
            if mark[1] == _VALUE:
                text += scope.of(number)
                continue
            region, within = inner[number]
            yield text + "{"
            if region.header and region.arguments:
                arguments = ", ".join(
                    f"{within.of(r.number)}: {self.type_text(r.type)}" for r in region.arguments
                )
                yield f"{indent}^bb0({arguments}):"
            yield from self.block(region.lines, indent + "  ", within)
            text = indent + "}"
        where = f" loc({self.location(line.origin)})" if line.origin is not None else ""
        yield text + line.text[place:] + where


class Names:
    """The names of the values in a scope.

    A value keeps its own name, with ``$2`` appended to a repeated one, or gets a number.  As in
    MLIR, names defined in a region are discarded after it.
    """

    def __init__(self, outer: Names | None = None):
        self._outer = outer
        self._texts: dict[int, str] = outer._texts if outer else {}
        self._taken: set[str] = set()
        self._next: int = outer._next if outer else 0

    def inner(self, region: Region) -> Names:
        """Return the scope of a region, with its arguments named."""
        made = Names(self)
        for argument in region.arguments:
            made.define(argument)
        return made

    def define(self, value: Ref) -> str:
        if value.name:
            plain = name = value_name(value.name)
            for repeat in count(2):
                if not self._is_taken(name):
                    break
                name = f"{plain}${repeat}"
            self._taken.add(name)
        else:
            name = f"%{self._next}"
            self._next += 1
        self._texts[value.number] = name
        return name

    def of(self, number: int) -> str:
        return self._texts[number]

    def _is_taken(self, name: str) -> bool:
        scope: Names | None = self
        while scope is not None:
            if name in scope._taken:
                return True
            scope = scope._outer
        return False


def _live_values(lines: Sequence[Line], live: set[int]) -> set[int]:
    """Return the numbers of the values that a terminator uses, directly or indirectly."""
    for line in reversed(lines):
        if not line.kept and not any(r.number in live for r in line.results):
            continue
        live.update(int(m[2]) for m in _MARK.finditer(line.text) if m[1] == _VALUE)
        for region in line.regions:
            _live_values(region.lines, live)
    return live
