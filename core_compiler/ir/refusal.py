"""Refusals: the reasons of failed conditions of a pass, as data.

A condition returns None if it holds, else a :class:`Refusal`, so the code that decides also
explains. The sentence is only formatted when it is read, so refusals cost a compile no text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from typing_extensions import override

from core_compiler.ir.core import Op, Value

#: Prints a value's name (``%12``).
Names = Callable[[Value], str]
#: Number of ops of a list that a sentence names, and of characters of an attribute.
_LISTED, _LONGEST = 3, 60


@dataclass(slots=True)
class Refusal:
    """A condition that does not hold.

    ``condition``  the condition in a few words, the same words wherever it is checked.
    ``text``       the sentence, a format string over ``about``: ops, values, lists of them, plain
                   numbers and words.  ``{0}`` is ``%12 (core.exp)`` of an op; ``{0:value}``,
                   ``{0:kind}``, ``{0:shape}``, ``{0:reduces}`` and ``{0:attributes}`` print one
                   property of it.
    ``code_location``      the location of the condition: code and instruction, or ``file:line``.
    ``depth``      for a pattern: the depth of the refused operand.
    ``matched``    for a pattern: the ops that had matched, root first.
    """

    condition: str
    text: str
    about: tuple[Any, ...] = ()
    code_location: tuple[CodeType, int] | str = ""
    depth: int = 0
    matched: tuple[Op, ...] | list[Op] = ()

    @property
    def op(self) -> Op | None:
        """The op that the refusal is about."""
        return next((a for a in self.about if isinstance(a, Op)), None)

    @property
    def ops(self) -> tuple[Op, ...]:
        """All ops that the refusal is about."""
        found: dict[Op, None] = {}
        for a in self.about:
            found |= dict.fromkeys(
                o for o in (a if isinstance(a, tuple) else (a,)) if isinstance(o, Op)
            )
        return tuple(found)

    @property
    def location(self) -> str:
        """The location ``file:line`` of the condition, relative to the package."""
        if isinstance(self.code_location, str):
            return self.code_location
        code, instruction = self.code_location
        lines = (n for start, end, n in code.co_lines() if start <= instruction < end)
        return source_location(code, next(lines, None))

    @property
    def reason(self) -> str:
        """The sentence, with values by their current names."""
        return self.sentence(lambda value: f"%{value.name}" if value.name else UNNAMED)

    def sentence(self, names: Names) -> str:
        return self.text.format(*(_Shown(a, names) for a in self.about))

    @override
    def __str__(self) -> str:
        return self.reason

    def renamed(self, ops: Mapping[Value, Op]) -> Refusal:
        """Return this refusal for other ops: the ones of ``ops`` for their first results."""

        def other(thing):
            if isinstance(thing, tuple):
                return tuple(map(other, thing))
            known = isinstance(thing, Op) and thing.results
            return ops.get(thing.results[0], thing) if known else thing

        return Refusal(
            self.condition,
            self.text,
            tuple(map(other, self.about)),
            self.code_location,
            self.depth,
            self.matched,
        )


def refuse(condition: str, text: str, *about: Any) -> Refusal:
    """Return a refusal with the line of the caller."""
    frame = sys._getframe(1)
    return Refusal(condition, text, about, (frame.f_code, frame.f_lasti))


def source_location(code: CodeType, line: int | None = None) -> str:
    """Return ``file:line`` of a code object (by default its first line) within the package."""
    path = code.co_filename.replace("\\", "/")
    _, package, inside = path.rpartition("core_compiler/")
    return f"{package}{inside}:{line or code.co_firstlineno}"


#: The name of a value without one; an op is called by its kind then.
UNNAMED = "%?"


class _Shown:
    """A part of a sentence, formatted on demand."""

    __slots__ = ("names", "thing")

    def __init__(self, thing: Any, names: Names):
        self.thing, self.names = thing, names

    @override
    def __format__(self, what: str) -> str:
        if isinstance(self.thing, Op):
            return _SAYS[what](self.thing, self.names)
        if isinstance(self.thing, Value):
            return str(self.thing.type) if what == "type" else self.names(self.thing)
        if isinstance(self.thing, tuple) and any(isinstance(t, Op) for t in self.thing):
            shown = [_Shown(t, self.names).__format__(what) for t in self.thing[:_LISTED]]
            more = len(self.thing) - _LISTED
            if more > 0:
                return f"{', '.join(shown)} and {more} more"
            return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
        return format(self.thing, what)


def _value(op: Op, names: Names) -> str:
    name = names(op.results[0]) if op.results else UNNAMED
    return op.kind if name == UNNAMED else name


def _named(op: Op, names: Names) -> str:
    name = names(op.results[0]) if op.results else UNNAMED
    return _what(op) if name == UNNAMED else f"{name} ({_what(op)})"


def _what(op: Op) -> str:
    """Return the kind of an op; for a group the kinds of its computing members."""
    if op.kind != "core.group":
        return op.kind
    kinds = dict.fromkeys(o.kind.partition(".")[2] for o in op.regions[0].ops)
    computing = [k for k in kinds if k not in ("constant", "broadcast")] or list(kinds)
    return f"group of {', '.join(computing[:_LISTED])}{', ...' if len(computing) > _LISTED else ''}"


def _shape(value: Value) -> str:
    shape = getattr(value.type, "shape", ())
    return "x".join(map(str, shape)) or "one element"


def _reduces(op: Op, names: Names) -> str:
    """Describe the loops of an op with a reduction."""
    shapes = " by ".join(map(_shape, op.operands))
    axes = op.get("axes", op.get("axis"))
    if axes is None:
        return shapes
    axes = list(axes) if isinstance(axes, tuple) else [axes]
    return f"{'axis' if len(axes) == 1 else 'axes'} {axes} of {shapes}"


def _attributes(op: Op, names: Names) -> str:
    from core_compiler.ir.text import print_attribute

    printed = {k: print_attribute(v) for k, v in op.attributes.items()}
    short = {k: v if len(v) <= _LONGEST else f"{v[:_LONGEST]}..." for k, v in printed.items()}
    return ", ".join(f"{k} = {v}" for k, v in short.items()) or "no attributes"


_SAYS: dict[str, Callable[[Op, Names], str]] = {
    "": _named,
    "value": _value,
    "kind": lambda op, names: op.kind,
    "shape": lambda op, names: " and ".join(map(_shape, op.results)),
    "reduces": _reduces,
    "attributes": _attributes,
    "type": lambda op, names: ", ".join(str(v.type) for v in op.results),
}
