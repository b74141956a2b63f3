"""Models whose arguments and results are the integers that they are quantised to.

What quantises an argument and dequantises a result stays outside: a module of a quantised compile
becomes one without floats, for formats and devices that have integers only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from core_compiler.exporters.expansion import needed
from core_compiler.ir import Block, DType, Module, Op, Value, as_array
from core_compiler.ir.types import quoted
from core_compiler.ir.verifier import where_of
from core_compiler.ops import typed
from core_compiler.ops.traits import has_trait
from core_compiler.support.errors import UserError


@dataclass(frozen=True)
class Border:
    """An argument or result that is integers ``q`` now, for the numbers ``(q - zero) * scale``."""

    name: str
    dtype: DType
    scale: float
    zero: int

    @override
    def __str__(self) -> str:
        less = f"(q {'+' if self.zero < 0 else '-'} {abs(self.zero)})" if self.zero else "q"
        return f"{quoted(self.name)}: {self.dtype}, {less} * {self.scale:.9g}"


def with_integer_borders(
    module: Module, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[Module, list[Border], list[Border]]:
    """Return the module with integers in place of floats at main's borders, and what they mean.

    ``inputs`` and ``outputs`` are the names of main's arguments and results; the two lists describe
    those that were floats. Raises UserError for an argument that is not quantised with one scale,
    and for a result that is not dequantised with one.
    """
    borders = _Borders(module)
    body = module.main.body
    given = [borders.argument(v, n) for v, n in zip(body.arguments, inputs, strict=True)]
    made = [borders.result(v, n) for v, n in zip(body.outputs, outputs, strict=True)]
    results = tuple(v for v, _ in made)
    ops = [*borders.first, *(op.substitute(borders.renamed) for op in body.ops), *borders.last]
    block = Block(tuple(v for v, _ in given), tuple(needed(ops, results)), results)
    described, described_results = (
        [border for _, border in pairs if border is not None] for pairs in (given, made)
    )
    return module.with_main(block), described, described_results


@dataclass
class _Borders:
    """The state: ops added before and after those of the body, and values that replace others."""

    module: Module
    first: list[Op] = field(default_factory=list)
    last: list[Op] = field(default_factory=list)
    renamed: dict[Value, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        body = self.module.main.body
        self._users, self._makers = body.users(), body.producers()
        self._outputs = set(body.outputs)

    def argument(self, value: Value, name: str) -> tuple[Value, Border | None]:
        """Return an argument of integers, and what they mean; one of integers is returned."""
        if not value.type.dtype.is_float:
            return value, None
        found = list(self._quantised(value, name))
        borders = {border for _, _, border in found}
        if len(borders) != 1:
            raise _refusal(f"input {name}", "is quantised with several scales" if found else _FLOAT)
        (border,) = borders
        made = Value(value.type.with_(dtype=border.dtype), value.name)
        for result, views, _ in found:
            self.renamed[result] = self._viewed(made, views, self.first)
        return made, border

    def _quantised(self, value: Value, name: str) -> Iterator[tuple[Value, list[Op], Border]]:
        """Yield each quantised value that an argument becomes, the views before it, its border."""
        if value in self._outputs:
            raise _refusal(f"input {name}", _FLOAT)
        for op in self._users.get(value, ()):
            quantize = typed.Quantize.match(op)
            if quantize is not None:
                border = self._border(op, name, op.result.type.dtype, quantize.axis)
                yield op.result, [], border
            elif has_trait(op, "view") and len(op.operands) == 1:
                for result, views, border in self._quantised(op.result, name):
                    yield result, [op, *views], border
            else:
                where = where_of(op)
                reader = f"{op.kind} ({where})" if where else op.kind
                raise _refusal(f"input {name}", f"is read in floats by {reader}")

    def result(self, value: Value, name: str) -> tuple[Value, Border | None]:
        """Return the integers that a result is dequantised from, and what they mean."""
        if not value.type.dtype.is_float:
            return self.renamed.get(value, value), None
        views: list[Op] = []
        op = self._makers.get(value)
        while op is not None and has_trait(op, "view") and len(op.operands) == 1:
            views.insert(0, op)
            op = self._makers.get(op.operands[0])
        found = typed.Dequantize.match(op)
        if op is None or found is None:
            raise _refusal(f"output {name}", _FLOAT)
        border = self._border(op, name, found.q.type.dtype, found.axis)
        made = self._viewed(self.renamed.get(found.q, found.q), views, self.last)
        return made, border

    def _border(self, op: Op, name: str, kind: DType, axis: int | None) -> Border:
        makers = [self._makers.get(v) for v in op.operands[1:]]
        if axis is not None or any(m is None or m.kind != "core.constant" for m in makers):
            raise _refusal(name, "does not have one constant scale")
        arrays = [as_array(typed.Constant.of(m).value, self.module.weights) for m in makers if m]
        return Border(name, kind, float(arrays[0]), int(arrays[1]) if len(arrays) > 1 else 0)

    def _viewed(self, value: Value, views: Sequence[Op], ops: list[Op]) -> Value:
        """Return ``value`` after views, which are added to ``ops``."""
        for view in views:
            made = Value(view.result.type.with_(dtype=value.type.dtype), view.result.name)
            ops.append(view.with_(operands=(value,), results=(made,)))
            value = made
        return value


_FLOAT = "is not quantised"


def _refusal(what: str, reason: str) -> UserError:
    return UserError(
        f"{what} {reason}",
        "export in integers",
        "quantise it (--quantize int8), or export floats",
    )
