"""Patterns of rules, and the matcher, which reports why a rule did not fire.

A pattern is a small tree of ops, constants and names, with alternatives, that may skip ops that
only move elements.  The matcher asks a view for the ops that define a value: in a block there is
one, in an e-graph (see the package saturation) there are all that are known to be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.ir import (
    DType,
    Op,
    Rewriter,
    Value,
    WeightStore,
    attributes_key,
    dtype,
)
from core_compiler.ir.refusal import Refusal
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array
from core_compiler.ops.traits import kinds_with

# -- patterns --------------------------------------------------------------------------------------


#: Whether a pattern skips an op and continues at its first operand.
Through = Callable[[Op], bool]


#: Ops that only rearrange or repeat elements.
MOVES = frozenset(kinds_with("shape_only"))


def views(op_: Op) -> bool:
    """Skip ops that only rearrange or repeat elements."""
    return op_.kind in MOVES


@dataclass(frozen=True, slots=True)
class Any_:
    """A pattern for any value, bound to ``name``; the same name twice requires the same value.

    ``through``: the value behind all such ops is bound.
    """

    name: str
    through: Through | None = None


@dataclass(frozen=True, slots=True)
class Const:
    """A pattern for a constant, bound to ``name``; also through its broadcasts and reshapes.

    The same name twice requires equal values.  ``test`` gets its array: ``Const("c", is_all(1))``.
    """

    name: str
    test: Callable[[np.ndarray], bool] | None = None
    wanted: str = "a constant"


@dataclass(frozen=True, slots=True)
class Node:
    """A pattern for an op of ``kind`` whose operands match; ``where`` tests the op.

    ``where`` may use attributes and types.  ``through``: as an operand it may be behind such ops,
    which then belong to the match.  The same ``name`` twice requires equal ops.
    """

    kind: str
    operands: tuple = ()
    name: str = ""
    where: Callable[[Op], bool] | None = None
    one_use: bool = False
    through: Through | None = None

    @override
    def __str__(self):
        return self.kind


@dataclass(frozen=True, slots=True)
class Either:
    """The first of several patterns that matches together with all that is matched after it."""

    options: tuple

    @override
    def __str__(self):
        return " or ".join(map(str, self.options))


def op(
    kind: str,
    *operands,
    name: str = "",
    where=None,
    one_use: bool = False,
    through: Through | None = None,
) -> Node:
    """Return a pattern for ``core.<kind>``; ``one_use`` requires that its result has one use."""
    return Node(f"core.{kind}", tuple(map(_pattern, operands)), name, where, one_use, through)


def either(*options) -> Either:
    """Return the pattern that matches if any of these does."""
    return Either(tuple(map(_pattern, options)))


def _pattern(of):
    return Any_(of) if isinstance(of, str) else of


def is_float(array: np.ndarray) -> bool:
    """Return whether an array holds floats.

    NumPy's kind ``f`` excludes those of ml_dtypes, whose 4-bit integers have the same kind as its
    floats.
    """
    return dtype(array.dtype).is_float


def is_all(number) -> Callable[[np.ndarray], bool]:
    """Return a test that every element equals ``number`` (for zero, with the same sign)."""

    def test(array: np.ndarray) -> bool:
        if array.size == 0:
            return False
        same = np.all(array == np.asarray(number, array.dtype))
        if same and number == 0 and is_float(array):
            return bool(
                np.all(np.signbit(array.astype(np.float64)) == np.signbit(np.float64(number)))
            )
        return bool(same)

    return test


# -- matching --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Match:
    """The bindings of a matched pattern: values by name, and the matched ops, root first."""

    view: View
    values: dict[str, Value] = field(default_factory=dict)
    named: dict[str, Op] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def copy(self) -> Match:
        return Match(self.view, dict(self.values), dict(self.named), list(self.ops))

    @property
    def root(self) -> Op:
        return self.ops[0]

    def array(self, name: str) -> np.ndarray:
        """Return the array of a value bound by ``Const`` (before broadcasting)."""
        return self.view.constant(self.values[name])


@dataclass
class View:
    """The view that a matcher reads: a rewriter's block (or any block) and the weights."""

    block: Rewriter
    weights: WeightStore

    def producer(self, value: Value) -> Op | None:
        """Return the op that defines ``value``; of several (see :meth:`producers`), one of them."""
        return self.block.producer(value)

    def producers(self, value: Value) -> Sequence[Op]:
        """Return the ops that define ``value``: one in a block, all equal ones in an e-graph."""
        producer = self.block.producer(value)
        return () if producer is None else (producer,)

    def with_chosen(self, ops: Sequence[Op]) -> View:
        """Return the view in which these ops, chosen by a match, define their results."""
        return self

    def constant(self, value: Value, through=("core.broadcast", "core.reshape")):
        """Return a constant's array, also through broadcasts and reshapes; else None."""
        op = self.producer(value)
        while op is not None and op.kind in through:
            op = self.producer(op.operands[0])
        if op is None or op.kind != "core.constant":
            return None
        return constant_array(op, self.weights)

    def commutes(self, op: Op) -> bool:
        """Return whether the two operands of ``op`` may be exchanged."""
        return "commutative" in definition(op).traits

    def builder(self) -> Any:
        """Return the builder for a rule's replacement."""
        return Builder(self.weights)


#: Maps the prefix of a level's ops to the view of its blocks.
LEVELS: dict[str, type[View]] = {"core": View}


def view_of(rules: Sequence[Any], block: Rewriter, weights: WeightStore) -> View:
    """Return the view of a block for ``rules`` (with patterns), which are of one level."""
    prefix = rules[0].pattern.kind.partition(".")[0] if rules else "core"
    return LEVELS[prefix](block, weights)


def matches(pattern: Node, root: Op, view: View) -> Iterator[Match | Refusal]:
    """Yield every match of ``pattern`` at ``root``, and the refusals on the way."""
    if root.kind != pattern.kind:
        yield Refusal("pattern", "{0:kind} is not {1}", (root, pattern.kind))
        return
    for state in _match_node(pattern, root, Match(view), 1):
        if isinstance(state, Match):
            state.view = view.with_chosen(state.ops)
        yield state


def furthest(one: Refusal | None, other: Refusal) -> Refusal:
    """Return the refusal of the attempt that got further.

    That is the one with more matched ops; if equal the deeper one, then the later.
    """
    if one is None or (len(one.matched), one.depth) <= (len(other.matched), other.depth):
        return other
    return one


def _refused(state: Match, depth: int, text: str, *about: Any) -> Refusal:
    """Return a refusal to continue from ``state``; its source is the rule's (see Rule.attempt)."""
    return Refusal("pattern", text, about, "", depth, state.ops)


def _match_node(pattern: Node, op_: Op, state: Match, depth: int):
    """Yield every match (in both operand orders of commutative ops) and the refusals."""
    if op_.kind != pattern.kind:
        yield _refused(state, depth, "found {0:kind} where the rule expects {1}", op_, pattern.kind)
        return
    if pattern.where is not None and not pattern.where(op_):
        yield Refusal(
            "attributes",
            "the attributes or types of this {0:kind} do not fit: {0:attributes}",
            (op_,),
            code_of(pattern.where),
            depth,
            state.ops,
        )
        return
    if pattern.operands and len(op_.operands) != len(pattern.operands):
        yield _refused(
            state,
            depth,
            "{0:kind} has {1} operands, not {2}",
            op_,
            len(op_.operands),
            len(pattern.operands),
        )
        return
    bound = state.named.get(pattern.name)
    if bound is not None and not _equal(bound, op_):
        yield _refused(
            state,
            depth,
            "{0} would have to be two different ops: {1} and {2}",
            pattern.name,
            bound,
            op_,
        )
        return
    orders = [op_.operands]
    two = len(op_.operands) == 2 and op_.operands[0] is not op_.operands[1]
    if two and pattern.operands and state.view.commutes(op_):
        orders.append(op_.operands[::-1])
    for order in orders:
        start = Match(state.view, dict(state.values), dict(state.named), [*state.ops, op_])
        if pattern.name:
            start.named.setdefault(pattern.name, op_)
        yield from _match_operands(list(zip(pattern.operands, order, strict=False)), start, depth)


def _equal(one: Op, other: Op) -> bool:
    """Return whether two ops do the same with the same values."""
    return one is other or (
        one.kind == other.kind
        and one.operands == other.operands
        and not one.regions
        and not other.regions
        and attributes_key(one.attributes.items()) == attributes_key(other.attributes.items())
    )


def _match_operands(pairs, state: Match, depth: int):
    if not pairs:
        yield state
        return
    (pattern, value), rest = pairs[0], pairs[1:]
    if isinstance(pattern, Either):
        for option in pattern.options:
            yield from _match_operands([(option, value), *rest], state.copy(), depth)
        return
    if isinstance(pattern, Any_):
        value, skipped = _skip_through(value, pattern.through, state.view)
        state.ops += skipped
        bound = state.values.get(pattern.name)
        if bound is not None and bound is not value:
            yield _refused(
                state,
                depth,
                "{0} would have to be two different values: {1} and {2}",
                pattern.name,
                bound,
                value,
                state.ops[-1],
            )
            return
        state.values[pattern.name] = value
        yield from _match_operands(rest, state, depth + 1)
        return
    if isinstance(pattern, Const):
        array = state.view.constant(value)
        if array is None:
            yield _refused(
                state,
                depth,
                "operand {0} is not a constant: {1} of {2}",
                pattern.name,
                value,
                state.ops[-1],
            )
        elif pattern.test is not None and not pattern.test(array):
            yield _refused(
                state,
                depth + 1,  # closer than no constant at all
                "the constant {0} is not {1}: {2} of {3} is {4}",
                pattern.name,
                pattern.wanted,
                value,
                state.ops[-1],
                _PrintedConstant(array),
            )
        elif not _agrees(state, pattern.name, array):
            yield _refused(
                state,
                depth + 1,
                "{0} would have to be two different constants: {1} of {2} is {3}",
                pattern.name,
                value,
                state.ops[-1],
                _PrintedConstant(array),
            )
        else:
            state.values[pattern.name] = value
            yield from _match_operands(rest, state, depth + 1)
        return
    for found, skipped, producer in _producers(pattern, value, state.view):
        yield from _match_producer(pattern, found, skipped, producer, rest, state, depth)


def _match_producer(
    pattern: Node, value: Value, skipped, producer: Op | None, rest, state: Match, depth
):
    """Match ``pattern`` at ``producer``, then the remaining operands.

    ``producer`` defines ``value`` and was reached by skipping the ops ``skipped``.
    """
    if producer is None:
        yield _refused(
            state,
            depth,
            "an operand is an input of the block, not {1}: {2} of {0}",
            state.ops[-1],
            pattern.kind,
            value,
        )
        return
    read = [value, *(o.result for o in reversed(skipped))] if pattern.one_use else []
    shared = next((v for v in read if not state.view.block.has_one_use(v)), None)
    if shared is not None:
        reader = skipped[-1] if skipped and shared is value else state.ops[-1]
        others = tuple(u for u in state.view.block.users(shared) if u is not reader)
        text = "the result of this {0:kind} has other uses: {0:value} is also read by {1}"
        if not others:
            text = (
                "the result of this {0:kind} has other uses: {0:value} is a result, or read twice"
            )
        matched = [*state.ops, *skipped, producer]  # up to its kind
        yield Refusal("one use", text, (producer, others), "", depth + 1, matched)
        return
    if producer.kind == pattern.kind:
        state = Match(state.view, state.values, state.named, [*state.ops, *skipped])
    for inner in _match_node(pattern, producer, state, depth + 1):
        if isinstance(inner, Refusal):
            yield inner
        else:
            yield from _match_operands(rest, inner.copy(), depth + 1)


def _producers(
    pattern: Node, value: Value, view: View
) -> Iterator[tuple[Value, list[Op], Op | None]]:
    """Yield the definitions of ``value`` behind the ops that ``pattern`` skips.

    Each is the value there, the skipped ops, and the op (None: not defined in the block).
    """
    work: list[tuple[Value, list[Op]]] = [(value, [])]
    seen = {value}
    while work:
        value, skipped = work.pop()
        producers = view.producers(value)
        if not producers:
            yield value, skipped, None
        for producer in producers:
            if (
                producer.kind == pattern.kind
                or pattern.through is None
                or not pattern.through(producer)
            ):
                yield value, skipped, producer
            elif producer.operands[0] not in seen:
                seen.add(producer.operands[0])
                work.append((producer.operands[0], [*skipped, producer]))


def _agrees(state: Match, name: str, array: np.ndarray) -> bool:
    """Return whether a constant has the values that ``name`` is already bound to, if it is."""
    if name not in state.values:
        return True
    bound = state.array(name)
    if bound.shape == array.shape:
        return bool(np.all(bound == array))
    first = bound.flat[0]  # one scalar in different shapes
    return bool(np.all(bound == first) and np.all(array == first))


def _skip_through(value: Value, through: Through | None, view: View) -> tuple[Value, list[Op]]:
    """Return the value behind all ops that ``through`` skips, and these ops."""
    skipped: list[Op] = []
    producer = view.producer(value) if through else None
    while (
        producer is not None
        and through is not None
        and through(producer)
        and producer not in skipped
    ):
        skipped.append(producer)
        value = producer.operands[0]
        producer = view.producer(value)
    return value, skipped


def code_of(function: Callable) -> tuple[CodeType, int] | str:
    """Return a function's code object and first instruction; "" if it is not a Python function."""
    code = getattr(function, "__code__", None)
    return "" if code is None else (code, 0)


class _PrintedConstant:
    """A constant as printed in a sentence."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array

    @override
    def __format__(self, what: str) -> str:
        if self.array.size == 1:
            return f"{self.array.reshape(-1)[0]}"
        return f"{self.array.size} numbers from {self.array.min()} to {self.array.max()}"


# -- checks ------------------------------------------------------------------------------------


#: A condition of a rule on a match: returns None, or the reason to refuse.
Check = Callable[[Match], str | None]


def all_of(*checks: Check) -> Check:
    """Return a check with the first refusal of several checks."""

    def check(m: Match) -> str | None:
        return next(filter(None, (each(m) for each in checks)), None)

    return check


def floats_of(ops: Sequence[Op]) -> dict[DType, Op]:
    """Return the float dtypes that ops read and compute, each with such an op."""
    found: dict[DType, Op] = {}
    for op_ in ops:
        for value in (*op_.results, *op_.operands):
            if value.type.dtype.is_float:
                found.setdefault(value.type.dtype, op_)
    return found


def wide(m: Match) -> str | None:
    """Refuse unless all floats of the matched ops have one dtype, f32 or f64.

    Narrower floats are rounded after each op of the program, but only once by the replacement,
    which exceeds the tolerances of rules.  With mixed dtypes (an f32 sum of bf16 products, an f32
    scale of a bf16 value) each op rounds to its own, and the replacement has only one.
    """
    return one_wide_float(m.root.result.type.dtype, m.ops)


def one_wide_float(found: DType, ops: Sequence[Op]) -> str | None:
    """Return the refusal of :func:`wide` for ``ops`` whose result has the dtype ``found``."""
    if not found.is_float:
        return "it is not floating point"
    if found.bits < 32:
        return f"{found.name} is rounded after each of these ops"
    other = next((d for d in floats_of(ops) if d is not found), None)
    if other is None:
        return None
    return f"these ops compute in {other.name} and in {found.name}; the rule has one dtype for all"


class MatchFailure(Exception):
    """The reason that a match does not satisfy a rule, raised from deep inside its check."""


def fits(read: Callable[[Match], Any]) -> Callable[[Match], str | None]:
    """Return a check that ``read`` succeeds, i.e. raises no :class:`MatchFailure`."""

    def check(m: Match) -> str | None:
        try:
            read(m)
        except MatchFailure as reason:
            return str(reason)
        return None

    return check
