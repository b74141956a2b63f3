"""Checks of a model's inputs before a call.

They reject positions out of range, if the model's framework rejects them, and changes of values
that its import took from example inputs and compiled in.

The ops here clamp such positions, or drop the update (``ops/indexing.py``), which yields some
value; torch and onnxruntime raise. The values that reach an op as positions are known when a model
is imported: the ops between its inputs and them are kept as a module that returns the positions,
which the reference evaluates. Positions that depend on computed floats, on the model's state, on
sizes known only at run time, or in a branch, are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from core_compiler.ir import Block, Function, Module, Op, Resource, Value, WeightStore, dtype
from core_compiler.ir.parser import parse
from core_compiler.ir.text import print_module
from core_compiler.ops import typed
from core_compiler.ops.base import view
from core_compiler.ops.evaluation import evaluate_block
from core_compiler.support.arrays import numbers
from core_compiler.support.errors import UserError

#: Maximum number of ops from positions back to the inputs.
MAX_DEPTH = 64
#: Maximum size of the module evaluated before a call: elements per element of the inputs, plus a
#: constant.
PER_ELEMENT, ALLOWANCE = 4, 1 << 16
#: Positions, their limits (as in :class:`Read`), and a position that means none.
Limited = tuple[Value, tuple[int, ...], int | None]
#: Ops that preserve the elements and their order.
_SAME_ORDER = ("core.reshape", "core.cast")


@dataclass(frozen=True)
class Read:
    """An op that reads or writes at positions.

    ``limits``: the number of valid positions, or the numbers along several axes, by the last axis
    of the positions. ``input``: the number of the model's input that contains them unchanged
    (``wraps``: negative ones count from the end), or None.
    """

    limits: tuple[int, ...]
    ignored: int | None
    input: int | None
    name: str
    wraps: bool
    by: str
    place: str

    def holds_for(self, inputs: Mapping[int, np.ndarray]) -> bool:
        """Return whether an input's own numbers are all positions, in one pass over them.

        False if that takes more: positions that are computed, or counted from the end.
        """
        if self.input is None or inputs[self.input].dtype.kind not in "iu":
            return False
        held = inputs[self.input]
        unsigned = held.view(f"u{held.itemsize}")  # negative numbers are the largest
        return not held.size or int(unsigned.max()) < min(self.limits)

    def check(self, positions: np.ndarray, inputs: Mapping[int, np.ndarray], row: int) -> None:
        """Raise a UserError that names the first position out of range.

        ``row`` is the number of the inputs' first row.
        """
        if not positions.size:
            return
        limits = np.array(self.limits if len(self.limits) > 1 else self.limits[0])
        if positions.min() >= 0 and positions.max() < min(self.limits):
            return
        wrong = (positions < 0) | (positions >= limits)
        if self.ignored is not None:
            wrong &= positions != self.ignored
        if not wrong.any():
            return
        first = int(wrong.argmax())
        count = self.limits[first % len(self.limits)]
        source = positions if self.input is None else inputs[self.input]
        held = "" if self.input is None else f" of input {self.name}"
        value = int(source.flat[first])
        if self.input is None and self.wraps and value < 0:
            value -= count  # as before it was counted from the end
        place = list(map(int, np.unravel_index(first, source.shape)))
        if row and place:
            place[0] += row
        inside = f" at {place}" if place else ""
        ignored = "" if self.ignored is None else f", or {self.ignored}, which is ignored"
        raise UserError(
            f"index {value}{inside}{held} is out of range for {self.by} (size {count})",
            self.place or self.by,
            f"pass indices from {-count if self.wraps else 0} to {count - 1}{ignored}",
        )


@dataclass(frozen=True)
class Fixed:
    """A value that the import took from example inputs.

    ``held`` (nested lists) of ``dtype`` determines shapes, axes or the branch of an ``If``.
    ``names`` are the inputs that it depends on; ``place`` is the node of the model that required
    it.
    """

    held: Any
    dtype: str
    names: str
    place: str

    def check(self, found: np.ndarray) -> None:
        """Raise UserError if the value has changed."""
        wanted = np.array(self.held, dtype(self.dtype).numpy)
        if np.array_equal(found, wanted.reshape(found.shape)):
            return
        shown = (" ".join(str(a.tolist()).split()) for a in (found, wanted.reshape(found.shape)))
        now, then = (text if len(text) < 60 else text[:56] + " ..." for text in shown)
        raise UserError(
            f"{self.place} was compiled for {then} from {self.names}, got {now}",
            self.names,
            "compile again with these inputs as examples",
        )


@dataclass(frozen=True)
class Positions:
    """The constraints on a model's inputs from positions and compiled-in values, as plain data.

    ``text``: a module whose main takes the inputs ``inputs`` (by number) and returns the positions
    of each of ``reads``, then the values that are ``fixed``.
    """

    text: str
    inputs: tuple[int, ...]
    reads: tuple[Read, ...]
    fixed: tuple[Fixed, ...] = ()

    def check(self, given: Sequence[np.ndarray], row: int = 0) -> None:
        """Raise UserError if a position is out of range.

        Arrays that are not valid inputs of the model are left to the call, which reports them.
        ``row``: the number of their first row, if they are a part of a batch.
        """
        main = _main(self.text)
        if len(given) <= max(self.inputs):
            return
        try:
            arrays = [numbers(given[i]) for i in self.inputs]
        except ValueError:
            return
        for array, argument in zip(arrays, main.arguments, strict=True):
            wanted = argument.type
            if array.shape != wanted.shape or array.dtype != wanted.dtype.numpy:
                return
        named = dict(zip(self.inputs, arrays, strict=True))
        if not self.fixed and all(read.holds_for(named) for read in self.reads):
            return
        found = evaluate_block(main.body, arrays)
        for fixed, value in zip(self.fixed, found[len(self.reads) :], strict=True):
            fixed.check(value)
        for read, value in zip(self.reads, found, strict=False):
            read.check(value, named, row)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(held: Mapping[str, Any]) -> Positions:
        reads = tuple(Read(**{**r, "limits": tuple(r["limits"])}) for r in held["reads"])
        fixed = tuple(Fixed(**f) for f in held.get("fixed", ()))
        return Positions(held["text"], tuple(held["inputs"]), reads, fixed)


@lru_cache(maxsize=64)
def _main(text: str) -> Function:
    return parse(text, where="positions").main


@dataclass(frozen=True, eq=False)
class Access:
    """An access with positions that the framework requires to be in range.

    ``made`` is the result of the op; ``positions`` are its position values, each with the limit.
    """

    made: Value
    positions: tuple[tuple[Value, int], ...] = ()


def positions(
    main: Function,
    own: int,
    accesses: Iterable[Access],
    unknown: Callable[[Value], object] = lambda value: False,
    taken: Iterable[tuple[Value, np.ndarray, str]] = (),
) -> Positions | None:
    """Return the checks of the first ``own`` arguments of ``main``; None if there are none.

    Raise UserError for a position out of range that is the same in every call.

    ``unknown`` returns whether a part of a value is known only at run time; ``taken``: values that
    came from example inputs, each with its value and the node that required it.
    """
    producers = {result: op for op in main.body.ops for result in op.results}
    inputs = {value: i for i, value in enumerate(main.arguments[:own])}
    needed: dict[Op, None] = {}
    reads: dict[tuple[Value, Read], None] = {}
    for access in accesses:
        op = producers.get(access.made)
        if op is None:  # in a branch, or unused
            continue
        parts: list[Limited] = [(value, (limit,), None) for value, limit in access.positions]
        for value, limits, ignored in parts or [_LIMITS[op.kind](view(op))]:
            # Broadcast positions.
            while len(limits) == 1 and _kind(producers, value) == "core.broadcast":
                value = producers[value].operands[0]
            path = _integer_path(value, producers, inputs, unknown)
            if path is None:
                continue
            source, wraps = _source(value, producers)
            number = inputs.get(source)
            name = "" if number is None else str(source.name)
            read = Read(limits, ignored, number, name, wraps, *_framework_name(op))
            if path.inputs:
                needed |= path.ops
                reads[value, read] = None
            else:  # the same in every call
                ops = tuple(op for op in main.body.ops if op in path.ops)
                (indices,) = evaluate_block(Block((), ops, (value,)), [])
                read.check(indices, {}, 0)
    fixed: dict[Value, Fixed] = {}
    for value, held, place in taken:
        found = _paths_from_inputs(value, producers, inputs)
        if found is not None and value not in fixed:
            between, sources = found
            needed |= between
            input_names = ", ".join(f"input {v.name}" for v in sources)
            fixed[value] = Fixed(held.tolist(), value.type.dtype.name, input_names, place)
    if not reads and not fixed:
        return None
    ops = tuple(op for op in main.body.ops if op in needed)
    outputs = (*(value for value, _ in reads), *fixed)
    used = {v for op in ops for v in op.uses()} | set(outputs)
    given = [v for v in main.arguments[:own] if v in used]
    body = Block(tuple(given), ops, outputs)
    text = print_module(Module({"main": Function("main", body)}, WeightStore()))
    return Positions(
        text, tuple(inputs[v] for v in given), tuple(r for _, r in reads), tuple(fixed.values())
    )


def _paths_from_inputs(
    value: Value, producers, inputs
) -> tuple[dict[Op, None], list[Value]] | None:
    """Return all ops from the inputs to ``value``, and these inputs.

    Return None if it depends on none, also on something else, or on weights.
    """
    found: dict[Op, None] = {}
    sources: dict[Value, None] = {}
    work = [value]
    while work:
        current = work.pop()
        if current in inputs:
            sources[current] = None
            continue
        op = producers.get(current)
        if op is None or any(isinstance(a, Resource) for a in op.attributes.values()):
            return None
        if op not in found:
            found[op] = None
            work += op.uses()
    return (found, list(sources)) if sources else None


@dataclass(frozen=True)
class _Path:
    """The ops from inputs and constants to a value."""

    ops: dict[Op, None]
    inputs: dict[Value, None]


def _integer_path(value: Value, producers, inputs, unknown) -> _Path | None:
    """Return the ops from inputs and constants to ``value``; None if not integers and few."""
    found: dict[Op, None] = {}
    taken: dict[Value, None] = {}
    work = [value]
    while work:
        current = work.pop()
        if unknown(current) or current.type.dtype.is_float:
            return None
        if current in inputs:
            taken[current] = None
            continue
        op = producers.get(current)
        if op is None or op.regions or len(found) == MAX_DEPTH:
            return None
        if any(isinstance(a, Resource) for a in op.attributes.values()):
            return None
        if op not in found:
            found[op] = None
            work += op.operands
    elements = sum(v.type.elements for op in found for v in op.results)
    most = PER_ELEMENT * sum(v.type.elements for v in taken) + ALLOWANCE
    return _Path(found, taken) if elements <= most else None


def _source(value: Value, producers) -> tuple[Value, bool]:
    """Return the source of a value's elements in the same order, ignoring replaced elements.

    The second result is whether negative ones were counted from the end.
    """
    wraps = False
    while (op := producers.get(value)) is not None:
        if op.kind in _SAME_ORDER:
            value = op.operands[0]
            continue
        condition = producers.get(op.operands[0]) if op.kind == "core.select" else None
        if condition is None or not condition.operands:
            break
        kept = condition.operands[0]  # select(x < 0, x + n, x), select(x != ignored, x, 0)
        if not any(v is kept for v in op.operands[1:]):
            break
        wraps |= condition.kind == "core.lt"
        value = kept
    return value, wraps


def _kind(producers, value: Value) -> str:
    op = producers.get(value)
    return "" if op is None else op.kind


def _framework_name(op: Op) -> tuple[str, str]:
    """Return the framework's name of an op, and its line in the model."""
    nodes = op.origin.nodes() if op.origin is not None else ()
    if not nodes:
        return op.kind, ""
    node = nodes[0]
    place = f"{node.file}:{node.line}" if node.file else node.name
    return node.kind.removesuffix(".default"), place


def _along(op: typed.Take | typed.TakeAlong | typed.ScatterAlong) -> Limited:
    return op.indices, (op.x.type.shape[op.axis],), None


def _tuples(op: typed.GatherNd | typed.ScatterNd) -> Limited:
    x, indices = op.x, op.indices
    first = op.batch_dims if isinstance(op, typed.GatherNd) else 0
    return indices, tuple(x.type.shape[first : first + indices.type.shape[-1]]), None


def _classes(op: typed.NllLoss | typed.CrossEntropy) -> Limited:
    return op.targets, (op.x.type.shape[1],), op.ignore_index


#: The positions of an op, with their limits.
_LIMITS: dict[str, Callable[[Any], Limited]] = {
    "core.take": _along,
    "core.take_along": _along,
    "core.scatter_along": _along,
    "core.gather_nd": _tuples,
    "core.scatter_nd": _tuples,
    "core.nll_loss": _classes,
    "core.cross_entropy": _classes,
}
