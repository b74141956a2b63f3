"""Symbolic sizes of exported programs, bound to numbers at import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core_compiler.frontends.pytorch.aten.table import NotSupported
from core_compiler.frontends.random_numbers import Draws
from core_compiler.support.errors import UserError


def is_symbolic(value: Any) -> bool:
    """Return whether a value is a symbolic number of torch (a size, or computed from sizes)."""
    return type(value).__name__ in ("SymInt", "SymFloat", "SymBool")


@dataclass(frozen=True)
class Symbols:
    """The values of symbols, and their ranges ``(low, high)``, with high -1 if unbounded."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: Data-dependent symbols, with their largest possible values.
    largest: dict[str, int] = field(default_factory=dict)
    #: Data-dependent symbols that have one value in every call that is not refused.
    fixed: dict[str, int] = field(default_factory=dict)
    #: The random ops of the program.
    draws: Draws = field(default_factory=Draws)

    @property
    def training(self) -> bool:
        return bool(self.draws.given)

    @staticmethod
    def of(program, sizes: Mapping[str, int], where: str, draws: Draws) -> Symbols:
        """Bind the symbols in the shapes of the program's inputs.

        They take ``sizes`` (by their names, or as ``INPUT.AXIS``), else the example inputs' sizes.
        Raise UserError for an unknown name or a size out of its range.
        """
        hints: dict[str, int | None] = {}
        sizes = {_symbol(program, name): size for name, size in sizes.items()}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                _collect(node.meta.get("val"), hints)
        ranges = {str(s): _bounds(r) for s, r in program.range_constraints.items()}
        # A range from 2 on is torch's default: its programs take 0 and 1 too.
        ranges |= {s: (0, ranges[s][1]) for s in hints if s in ranges and ranges[s][0] == 2}
        unknown = [s for s in sizes if s not in hints]
        if unknown:
            raise UserError(
                f"unknown size {unknown[0]!r}",
                where,
                f"sizes of the program: {', '.join(_places(program) or hints) or 'none'}",
            )
        bound = {}
        for name, hint in hints.items():
            size = sizes.get(name, hint)
            if size is None:
                raise UserError(
                    f"size {name} is unknown", where, "pass it, or export with example inputs"
                )
            low, high = ranges.get(name, (0, -1))
            if size < low or (high >= 0 and size > high):
                limit = high if high >= 0 else "infinity"
                raise UserError(
                    f"size {name} = {size} is not in {low}..{limit}", where, "pass a size in range"
                )
            bound[name] = int(size)
        return Symbols(bound, {**dict.fromkeys(bound, (0, -1)), **ranges}, draws=draws)

    def number(self, value: Any) -> Any:
        """Return ``value`` with symbols bound; other values are returned unchanged.

        A data-dependent symbol is its largest possible value; raise NotSupported if that is
        unknown.
        """
        if not is_symbolic(value):
            return value
        expression = value.node.expr
        free = sorted(str(s) for s in getattr(expression, "free_symbols", ()))
        known = {**self.largest, **self.fixed, **self.sizes}
        unbound = [name for name in free if name not in known]
        if unbound:
            raise NotSupported(f"a size that depends on data ({unbound[0]})")
        made = expression
        if free:
            made = expression.xreplace(
                {s: _integer(known[str(s)]) for s in expression.free_symbols}
            )
        kind = {"SymInt": int, "SymFloat": float, "SymBool": bool}[type(value).__name__]
        return kind(made)

    def depends_on_data(self, value: Any) -> bool:
        """Return whether a symbolic number is computed from a data-dependent size."""
        return any(str(s) in self.largest for s in value.node.expr.free_symbols)

    def facts(self) -> dict[str, dict[str, int]]:
        return {
            name: {"size": size, "low": self.ranges[name][0], "high": self.ranges[name][1]}
            for name, size in self.sizes.items()
        }


def _open_axes(program) -> dict[str, str]:
    """Return the symbol of each axis of an input that is one, by ``INPUT.AXIS``."""
    nodes = {node.name: node.meta.get("val") for node in program.graph.nodes}
    return {
        f"{name}.{axis}": str(size)
        for name in program.graph_signature.user_inputs
        for axis, size in enumerate(getattr(nodes.get(name), "shape", ()))
        if is_symbolic(size) and str(size).isidentifier()
    }


def _symbol(program, name: str) -> str:
    return _open_axes(program).get(name, name)


def _places(program) -> list[str]:
    """Return one name for each symbol: the first axis that is it."""
    first: dict[str, str] = {}
    for place, symbol in _open_axes(program).items():
        first.setdefault(symbol, place)
    return list(first.values())


def _collect(value: Any, hints: dict[str, int | None]) -> None:
    """Record the plain symbols of a placeholder's value with the example's sizes."""
    parts = value.shape if hasattr(value, "shape") else [value]
    for part in parts:
        if not is_symbolic(part):
            continue
        for symbol in sorted(part.node.expr.free_symbols, key=str):
            known = hints.setdefault(str(symbol), None)
            if known is None:
                hints[str(symbol)] = _hint(part, symbol)


def _hint(part: Any, symbol) -> int | None:
    """Return the example's size of a symbol, from the shape environment of the trace."""
    if part.node.expr == symbol and part.node.has_hint():
        return int(part.node.hint)
    env = part.node.shape_env
    for table in ("backed_var_to_val", "var_to_val"):
        found = getattr(env, table, {}).get(symbol)
        if found is not None:
            return int(found)
    return None


def _bounds(allowed) -> tuple[int, int]:
    def number(bound, otherwise: int) -> int:
        try:
            return int(bound)
        except (TypeError, ValueError, OverflowError, AttributeError):  # sympy's infinities
            return otherwise

    low, high = number(allowed.lower, 0), number(allowed.upper, -1)
    return max(low, 0), high if 0 <= high < 1 << 60 else -1


def _integer(number: int):
    import sympy

    return sympy.Integer(number)
