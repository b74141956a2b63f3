"""The translation of main to the text of a Python file: one traversal, one statement per op.

Broadcasts and constants are written at their uses, because NumPy broadcasts implicitly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.exporters import base
from core_compiler.exporters.base import Names, archived, is_uniform, short
from core_compiler.exporters.expansion import Expansion, Vocabulary
from core_compiler.exporters.numpy_source import ops  # noqa: F401  (fills the table)
from core_compiler.exporters.numpy_source.table import TABLE
from core_compiler.exporters.numpy_source.text import (
    Statement,
    dtype_text,
    identifier,
    is_native,
    literal,
    plain,
    quoted,
    reserved_names,
    sequence,
    small_array,
    typed,
)
from core_compiler.ir import Block, DType, Module, Op, Resource, Value, as_array, dtype
from core_compiler.ops.base import view
from core_compiler.ops.builder import broadcast_shape
from core_compiler.ops.traits import has_trait
from core_compiler.ops.typed import Broadcast, Iota
from core_compiler.ops.typed import Constant as ConstantOp
from core_compiler.support.errors import InternalError

#: The maximum length of a list that is written inline.
INLINE = 6


@dataclass(frozen=True, eq=False)
class Text:
    """A value represented by an expression: a name, a call or an index."""

    expression: str
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant; ``key`` identifies its contents."""

    array: np.ndarray
    name: str
    key: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@dataclass(frozen=True, eq=False)
class Spread:
    """A ``core.broadcast``: axis i of ``source`` is axis ``dims[i]``."""

    source: Text | Constant
    shape: tuple[int, ...]
    dims: tuple[int, ...]


Represented = Text | Constant | Spread


class Writer:
    """The state of an export: its statements, the ``helpers`` they call, the ``weights`` they read.

    ``reserved`` are names that no variable may have.
    """

    def __init__(self, module: Module, reserved: Iterable[str]):
        self.module = module
        self.expansion = Expansion(Vocabulary(_lacks), module.weights)
        self.statements: list[Statement] = []
        self.weights: dict[str, np.ndarray] = {}
        self.helpers: dict[str, None] = {}
        self.names = Names({*reserved_names(), *reserved}, identifier)
        self.env: dict[Value, Represented] = {}
        self.depth = 1
        self.op: Op | None = None
        self._keys: dict[Any, str] = {}
        self._weight_names = Names(spell=archived)
        self._groups = 0
        self._last_location = ("", "")
        self._pending_comment = ""

    def function(self, body: Block, inputs: Sequence[str]) -> list[str]:
        """Write the statements of a function; return the names of its arguments."""
        arguments = []
        for value, given in zip(body.arguments, inputs, strict=True):
            arguments.append(self.names.fresh(given))
            self.env[value] = Text(arguments[-1], value.type.shape)
        body = self.expansion.block(body)
        if self.expansion.missing:
            raise InternalError(f"{self.expansion.missing[0].op.kind} is not supported in NumPy")
        self.block(body)
        results = [self.text(v) for v in body.outputs]
        self.write(f"return {', '.join(results) if len(results) > 1 else sequence(results)}")
        return arguments

    # -- for the handlers --------------------------------------------------------------------------

    def use(self, helper: str) -> str:
        """Return the name of a helper function, which is copied into the file."""
        self.helpers.setdefault(helper)
        return helper

    def call(self, helper: str, *arguments: Any, **options: Any) -> str:
        """Return a call of a helper function."""
        given = [*map(str, arguments), *(f"{name}={value}" for name, value in options.items())]
        return f"{self.use(helper)}({', '.join(given)})"

    def like(self, number: float, op: Op) -> str:
        """Return a literal for use with an operand of the op's dtype."""
        kind: DType = op.result.type.dtype
        return literal(number, kind) if is_native(kind) else typed(number, kind)

    # -- ops ---------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.visit(op)

    def visit(self, op: Op) -> None:
        outer, self.op = self.op, self.expansion.of.get(op, op)
        self._translate(op)
        self.op = outer

    def _translate(self, op: Op) -> None:
        special = _SPECIAL.get(op.kind)
        if special is not None:
            special(self, op)
            return
        if _is_empty(op):
            for value in op.results:
                empty = f"np.zeros({sequence(value.type.shape)}, {dtype_text(value.type.dtype)})"
                self.env[value] = Text(empty, value.type.shape)
            return
        shape = None
        if has_trait(op, "elementwise"):
            operands, shape = self._before_broadcasts(op)
        else:
            operands = [self.text(v) for v in op.operands]
        self._assign(op, TABLE[short(op)](self, view(op), *operands), shape)

    def _assign(self, op: Op, expression: str, shape: tuple[int, ...] | None) -> None:
        """Assign the op's results; ``shape`` is that of a single result before it is broadcast."""
        if len(op.results) > 1 or not expression.isidentifier():
            self._note_location()
            made = [self._named(v, short(op)) for v in op.results]
            self.write(expression, ", ".join(made))
        else:
            made = [expression]
        whole = op.results[0].type.shape
        if len(op.results) == 1:
            text = Text(made[0], whole if shape is None else shape)
            lead = len(whole) - len(text.shape)
            spread = Spread(text, whole, tuple(range(lead, len(whole))))
            self.env[op.result] = text if text.shape == whole else spread

    def _named(self, value: Value, otherwise: str) -> str:
        """Return the variable for a value."""
        name = self.names.fresh(value.name or otherwise)
        self.env[value] = Text(name, value.type.shape)
        return name

    def write(self, expression: str, targets: str = "") -> None:
        comment, self._pending_comment = self._pending_comment, ""
        self.statements.append(Statement(expression, targets, self.depth, comment))

    def _note_location(self) -> None:
        """Emit the module path as a comment and note the model's line, if they changed."""
        if self.op is None:
            return
        scope, line = plain(base.scope(self.op)), plain(_short_line(base.line(self.op)))
        if scope != self._last_location[0] and scope:
            self.statements.append(Statement(f"# {scope}", depth=self.depth))
        self._pending_comment = line if line != self._last_location[1] else ""
        self._last_location = scope, line

    # -- values ------------------------------------------------------------------------------------

    def _before_broadcasts(self, op: Op) -> tuple[list[str], tuple[int, ...]]:
        """Return the operands before NumPy's implicit broadcasting, and their common shape.

        Scalars next to an array of their dtype are literals.
        """
        held = [self._compact(v) for v in op.operands]
        made = []
        for place, (source, _) in enumerate(held):
            kind = op.operands[place].type.dtype
            others = [
                h
                for i, (h, _) in enumerate(held)
                if i != place and op.operands[i].type.dtype is kind
            ]
            is_next_to_array = any(isinstance(o, Text) or o.array.ndim for o in others)
            made.append(self._expression_of(source, is_next_to_array and is_native(kind)))
        return made, broadcast_shape(*(shape for _, shape in held))

    def typed(self, value: Value) -> str:
        """Return the expression of a value before it is broadcast, in its dtype."""
        return self._expression_of(self._compact(value)[0], False)

    def text(self, value: Value) -> str:
        """Return the expression of a value with its full shape and dtype."""
        held = self.env[value]
        if not isinstance(held, Spread):
            return self._expression_of(held, False)
        source, _ = self._compact(value)
        return f"np.broadcast_to({self._expression_of(source, False)}, {sequence(held.shape)})"

    def _expression_of(self, held: Text | Constant, as_literal: bool) -> str:
        if isinstance(held, Text):
            return held.expression
        array, kind = held.array, dtype(held.array.dtype)
        if array.ndim == 0:
            return literal(array[()], kind) if as_literal else typed(array[()], kind)
        if array.ndim == 1 and array.size <= INLINE and not held.name:
            return small_array(array)
        return self._weight(held)

    def _weight(self, held: Constant) -> str:
        name = self._keys.get(held.key)
        if name is None:
            name = self._keys[held.key] = self._weight_names.fresh(held.name or "constant")
            self.weights[name] = held.array
        return f"W[{quoted(name)}]"

    def _compact(self, value: Value) -> tuple[Text | Constant, tuple[int, ...]]:
        """Return an operand that broadcasts implicitly to the value, and its shape."""
        held = self.env[value]
        if not isinstance(held, Spread):
            return held, held.shape
        lead = min(held.dims, default=len(held.shape))
        places = range(lead, len(held.shape))
        sizes = dict(zip(held.dims, held.source.shape, strict=True))
        shape = tuple(sizes.get(axis, 1) for axis in places)
        if len(held.dims) == len(places):
            return held.source, shape
        parts = [":" if axis in sizes else "None" for axis in places]
        while parts[-1:] == [":"]:
            parts.pop()
        return Text(f"{self._expression_of(held.source, False)}[{', '.join(parts)}]", shape), shape

    def constant(self, op: Op) -> None:
        held = ConstantOp.of(op).value
        array = as_array(held, self.module.weights)
        key = held.digest if isinstance(held, Resource) else (held.type, held.data)
        made: Represented = Constant(array, op.result.name or "", key)
        if not op.result.name and is_uniform(array):
            made = Spread(Constant(array.reshape(-1)[0], "", key), array.shape, ())
        self.env[op.result] = made

    def broadcast(self, op: Op) -> None:
        given = Broadcast.of(op)
        shape, dims, held = op.result.type.shape, given.dims, self.env[given.x]
        if isinstance(held, Spread):
            made = Spread(held.source, shape, tuple(dims[d] for d in held.dims))
        else:
            made = Spread(held, shape, dims)
        same = made.source.shape == shape
        self.env[op.result] = made.source if same else made

    def iota(self, op: Op) -> None:
        shape, axis, kind = op.result.type.shape, Iota.of(op).axis, op.result.type.dtype
        counted = f"np.arange({shape[axis]})"
        counted += "" if kind.name == "i64" else f".astype({dtype_text(kind)})"
        source = Text(counted, (shape[axis],))
        self.env[op.result] = source if len(shape) == 1 else Spread(source, shape, (axis,))

    # -- regions -----------------------------------------------------------------------------------

    def group(self, op: Op) -> None:
        self._groups += 1
        (region,) = op.regions
        for argument, value in zip(region.arguments, op.operands, strict=True):
            self.env[argument] = self.env[value]
        title = plain(str(op.get("name") or f"group {self._groups}"))
        self.statements.append(Statement(f"# -- {title} --", depth=self.depth))
        self.block(region)
        for value, made in zip(op.results, region.outputs, strict=True):
            self.env[value] = self.env[made]

    @contextmanager
    def _indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def branch(self, op: Op) -> None:
        """Write a conditional: both branches assign the same variables."""
        condition, *captures = op.operands
        self._note_location()
        chosen, outer_env = self.text(condition), dict(self.env)
        names = [self.names.fresh(v.name or "chosen") for v in op.results]
        for word, region in zip((f"if {chosen}:", "else:"), op.regions, strict=True):
            self.write(word)
            self.env = dict(outer_env)
            for argument, value in zip(region.arguments, captures, strict=True):
                self.env[argument] = outer_env[value]
            with self._indented():
                self.block(region)
                made = ", ".join(map(self.text, region.outputs))
                self.write(made, ", ".join(names))
        self.env = outer_env
        for value, name in zip(op.results, names, strict=True):
            self.env[value] = Text(name, value.type.shape)

    def loop(self, op: Op) -> None:
        """Write a loop; the condition is in its header if it is a single expression."""
        condition, body = op.regions
        self._note_location()
        start = ", ".join(map(self.text, op.operands))
        names = [self.names.fresh(v.name or "carried") for v in op.results]
        self.write(start, ", ".join(names))
        for values in (op.results, condition.arguments, body.arguments):
            for value, name in zip(values, names, strict=True):
                self.env[value] = Text(name, value.type.shape)
        outer, self.statements = self.statements, []
        with self._indented():
            self.block(condition)
        test, self.statements = self.statements, outer
        condition_text = self.text(condition.outputs[0])
        if len(test) == 1 and test[0].targets == condition_text:
            self.write(f"while {test[0].expression}:")
        else:
            self.write("while True:")
            self.statements += test
            with self._indented():
                self.write(f"if not {condition_text}:")
                with self._indented():
                    self.write("break")
        with self._indented():
            self.block(body)
            made = ", ".join(map(self.text, body.outputs))
            self.write(made, ", ".join(names))


_SPECIAL = {
    "core.constant": Writer.constant,
    "core.broadcast": Writer.broadcast,
    "core.iota": Writer.iota,
    "core.group": Writer.group,
    "core.if": Writer.branch,
    "core.while": Writer.loop,
}


def _short_line(place: str) -> str:
    """Shorten a long path to ``model.py:12``."""
    return place.replace("\\", "/").rpartition("/")[2]


def _lacks(op: Op) -> str:
    known = op.kind in _SPECIAL or short(op) in TABLE or _is_empty(op)
    return "" if known else "no translation"


def _is_empty(op: Op) -> bool:
    return all(v.type.elements == 0 for v in op.results)
