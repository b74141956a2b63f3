"""The roles of the arguments and results of a training step's ``main``: facts of the function.

``arguments`` has one row ``(role, name, of)`` per argument. The role is ``batch`` (new in every
iteration), ``shard`` (the part of the whole batch), ``parameter``, ``buffer`` (statistics,
counters: the model's own state), ``slot`` (of an optimiser, for the parameter with number ``of``
among the arguments) or ``scalar`` (of the optimiser as a whole, the iteration, the seed).
``results`` has one row ``(role, of)`` per result: ``loss``, ``metric``, ``gradient`` (as the
optimiser receives it) or ``next`` of an argument; between passes also ``scaled`` (the loss times
its scale) and ``finite`` (true if all gradients are).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core_compiler.ir import Function, Value
from core_compiler.support.errors import InternalError

Argument = tuple[str, str, int]
Result = tuple[str, int]

#: Roles of arguments that the step passes on to the next one.
STATE = ("parameter", "buffer", "slot", "scalar")
ITERATION, SEED, SHARD = "iteration", "seed", "shard"


@dataclass(frozen=True)
class Roles:
    """The roles of a function's arguments and results, to read and to change."""

    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]

    @staticmethod
    def of(function: Function) -> Roles:
        """Return the roles of a function; raise InternalError if it is not a training step."""
        if "arguments" not in function.attributes:
            raise InternalError(f"{function.name} is not a training step")
        return Roles(function.attributes["arguments"], function.attributes["results"])

    def numbers(self, *roles: str) -> list[int]:
        """Return the positions of the arguments with one of these roles."""
        return [i for i, (role, _, _) in enumerate(self.arguments) if role in roles]

    def number(self, role: str, name: str) -> int:
        """Return the position of the argument with this role and name."""
        return next(i for i, a in enumerate(self.arguments) if a[:2] == (role, name))

    def scalars(self, function: Function, names: Iterable[str]) -> dict[str, Value]:
        """Return the scalars of these names among the arguments of ``function``."""
        return {name: function.arguments[self.number("scalar", name)] for name in names}

    def slots(self, parameter: int) -> dict[str, int]:
        """Return the optimiser's state of a parameter: name -> position among the arguments."""
        return {
            name: i
            for i, (role, name, of) in enumerate(self.arguments)
            if role == "slot" and of == parameter
        }

    def result(self, role: str, of: int = -1) -> int | None:
        return next((i for i, r in enumerate(self.results) if r == (role, of)), None)

    def gradients(self) -> dict[int, int]:
        """Return the result position of each gradient by its parameter's argument position."""
        return {of: i for i, (role, of) in enumerate(self.results) if role == "gradient"}

    def applied(self, function: Function, results: Sequence[tuple[Result, Value]]) -> Function:
        """Return ``function`` with these results.

        The next value of an argument may take its memory.
        """
        rows = tuple(row for row, _ in results)
        aliases = tuple((i, of) for i, (role, of) in enumerate(rows) if role == "next")
        body = function.body.with_(outputs=tuple(v for _, v in results))
        attributes = {
            **function.attributes,
            "arguments": self.arguments,
            "results": rows,
            "aliases": aliases,
        }
        return function.with_(body=body, attributes=attributes)
