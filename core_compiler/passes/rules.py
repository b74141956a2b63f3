"""Rules: pattern, check and rewrite; the matcher that says why a rule did not fire; the driver.

A rule is one row of a table: its name says what it does, the pattern is a small tree, the rewrite a
function that builds the replacement.  ``check`` refuses with a reason.  Refusals are not recorded:
:func:`explain` runs the same matcher again on a stage's snapshot when a person asks.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import numpy as np

from core_compiler.ir import Module, Op, Rewriter, Value, WeightStore, as_array
from core_compiler.ir.refusal import Refusal
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder

# -- patterns --------------------------------------------------------------------------------------


#: Whether a pattern looks through an op, at its first operand.
Through = Callable[[Op], bool]


#: What only rearranges or repeats elements.
VIEWS = frozenset({"core.reshape", "core.transpose", "core.broadcast"})


def views(op_: Op) -> bool:
    """Looks through ops that only rearrange or repeat elements."""
    return op_.kind in VIEWS


@dataclass(frozen=True, slots=True)
class Any_:
    """Any value, bound to ``name``; the same name twice asks for the same value.

    ``through``: the value behind all such ops is bound.
    """

    name: str
    through: Through | None = None


@dataclass(frozen=True, slots=True)
class Const:
    """A constant (also seen through broadcasts and reshapes of one), bound to ``name``; the same
    name twice asks for the same numbers.

    ``test`` gets its array: ``Const("c", is_all(1))``.
    """

    name: str
    test: Callable[[np.ndarray], bool] | None = None
    wanted: str = "a constant"


@dataclass(frozen=True, slots=True)
class Node:
    """An op of ``kind`` whose operands match; ``where`` tests the op (attributes, types).

    ``through``: as an operand it may stand behind such ops, which then belong to the match.
    The same ``name`` twice asks for equal ops.
    """

    kind: str
    operands: tuple = ()
    name: str = ""
    where: Callable[[Op], bool] | None = None
    once: bool = False
    through: Through | None = None

    def __str__(self):
        return self.kind


@dataclass(frozen=True, slots=True)
class Either:
    """The first of several patterns that matches, with all that is matched after it."""

    options: tuple

    def __str__(self):
        return " or ".join(map(str, self.options))


def op(
    kind: str, *operands, name: str = "", where=None, once: bool = False,
    through: Through | None = None,
) -> Node:  # fmt: skip
    """Pattern node ``core.<kind>``; ``once`` demands that nobody else uses its result."""
    return Node(f"core.{kind}", tuple(map(_pattern, operands)), name, where, once, through)


def either(*options) -> Either:
    """The pattern that any of these matches."""
    return Either(tuple(map(_pattern, options)))


def _pattern(of):
    return Any_(of) if isinstance(of, str) else of


def is_float(array: np.ndarray) -> bool:
    """Whether an array holds floats (those of ml_dtypes are not of NumPy's kind ``f``)."""
    return array.dtype.kind not in "biuc"


def is_all(number) -> Callable[[np.ndarray], bool]:
    """Whether every element equals ``number`` (and, for zero, carries its sign)."""

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
    """Bindings of a matched pattern: values by name, and the matched ops, root first."""

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
        """The array of a value bound by ``Const`` (before broadcasting)."""
        return self.view.constant(self.values[name])


@dataclass
class View:
    """What matching may look at: a rewriter's block (or any block) and the weights."""

    block: Rewriter
    weights: WeightStore

    def producer(self, value: Value) -> Op | None:
        return self.block.producer(value)

    def constant(self, value: Value, through=("core.broadcast", "core.reshape")):
        """The array a value is made of (through broadcasts and reshapes); None if no constant."""
        op = self.producer(value)
        while op is not None and op.kind in through:
            op = self.producer(op.operands[0])
        if op is None or op.kind != "core.constant":
            return None
        return as_array(op["value"], self.weights)


def match(pattern: Node, root: Op, view: View) -> Match | Refusal:
    """Bindings if ``pattern`` matches at ``root``, else why not: the attempt that matched most ops
    before it was refused, of equals the one that got furthest down."""
    if root.kind != pattern.kind:
        return Refusal("pattern", "{0:kind} is not {1}", (root, pattern.kind))
    best: Refusal | None = None
    reached = (-1, -1)
    for state in _match_node(pattern, root, Match(view), 1):
        if isinstance(state, Match):
            return state
        got = len(state.matched), state.depth
        if got >= reached:
            best, reached = state, got
    return best or Refusal("pattern", "{0} does not match", (root,))


def _refused(state: Match, depth: int, text: str, *about: Any) -> Refusal:
    """The pattern does not go on from ``state``; its place is the rule's (see Rule.attempt)."""
    return Refusal("pattern", text, about, "", depth, state.ops)


def _match_node(pattern: Node, op_: Op, state: Match, depth: int):
    """Yield every way to match (operand orders of commutative ops) and the refusals met."""
    if op_.kind != pattern.kind:
        yield _refused(state, depth, "found {0:kind} where the rule wants {1}", op_, pattern.kind)
        return
    if pattern.where is not None and not pattern.where(op_):
        yield Refusal(
            "attributes", "the attributes or types of this {0:kind} do not fit: {0:attributes}",
            (op_,), _code(pattern.where), depth, state.ops,
        )  # fmt: skip
        return
    if pattern.operands and len(op_.operands) != len(pattern.operands):
        yield _refused(state, depth, "{0:kind} has {1} operands, not {2}", op_,
                       len(op_.operands), len(pattern.operands))  # fmt: skip
        return
    bound = state.named.get(pattern.name)
    if bound is not None and not _equal(bound, op_):
        yield _refused(
            state, depth, "{0} would have to be two different ops: {1} and {2}",
            pattern.name, bound, op_,
        )  # fmt: skip
        return
    orders = [op_.operands]
    two = len(op_.operands) == 2 and op_.operands[0] is not op_.operands[1]
    if two and "commutative" in definition(op_).traits and pattern.operands:
        orders.append(op_.operands[::-1])
    for order in orders:
        start = Match(state.view, dict(state.values), dict(state.named), [*state.ops, op_])
        if pattern.name:
            start.named.setdefault(pattern.name, op_)
        yield from _match_operands(list(zip(pattern.operands, order, strict=False)), start, depth)


def _equal(one: Op, other: Op) -> bool:
    """Whether two ops do the same with the same values."""
    return one is other or (
        one.kind == other.kind and one.operands == other.operands
        and one.attributes == other.attributes and not one.regions and not other.regions
    )  # fmt: skip


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
        value, skipped = _behind(value, pattern.through, "", state.view)
        state.ops += skipped
        bound = state.values.get(pattern.name)
        if bound is not None and bound is not value:
            yield _refused(
                state, depth, "{0} would have to be two different values: {1} and {2}",
                pattern.name, bound, value, state.ops[-1],
            )  # fmt: skip
            return
        state.values[pattern.name] = value
        yield from _match_operands(rest, state, depth + 1)
        return
    if isinstance(pattern, Const):
        array = state.view.constant(value)
        if array is None:
            yield _refused(
                state, depth, "operand {0} is not a constant: {1} of {2}",
                pattern.name, value, state.ops[-1],
            )  # fmt: skip
        elif pattern.test is not None and not pattern.test(array):
            yield _refused(
                state, depth + 1,  # closer than no constant at all
                "the constant {0} is not {1}: {2} of {3} is {4}",
                pattern.name, pattern.wanted, value, state.ops[-1], _Told(array),
            )  # fmt: skip
        elif not _agrees(state, pattern.name, array):
            yield _refused(
                state, depth + 1, "{0} would have to be two different constants: {1} of {2} is {3}",
                pattern.name, value, state.ops[-1], _Told(array),
            )  # fmt: skip
        else:
            state.values[pattern.name] = value
            yield from _match_operands(rest, state, depth + 1)
        return
    value, skipped = _behind(value, pattern.through, pattern.kind, state.view)
    maker = state.view.producer(value)
    if maker is None:
        yield _refused(
            state, depth, "an operand is an input of the block, not {1}: {2} of {0}",
            state.ops[-1], pattern.kind, value,
        )  # fmt: skip
        return
    read = [value, *(o.result for o in reversed(skipped))] if pattern.once else []
    shared = next((v for v in read if not state.view.block.has_one_use(v)), None)
    if shared is not None:
        reader = skipped[-1] if skipped and shared is value else state.ops[-1]
        others = tuple(u for u in state.view.block.users(shared) if u is not reader)
        text = "the result of this {0:kind} has other uses: {0:value} is also read by {1}"
        if not others:
            text = (
                "the result of this {0:kind} has other uses: {0:value} is a result, or read twice"
            )
        matched = [*state.ops, *skipped, maker]  # as far as its kind goes
        yield Refusal("one use", text, (maker, others), "", depth + 1, matched)
        return
    if maker.kind == pattern.kind:
        state = Match(state.view, state.values, state.named, [*state.ops, *skipped])
    for inner in _match_node(pattern, maker, state, depth + 1):
        if isinstance(inner, Refusal):
            yield inner
        else:
            yield from _match_operands(rest, inner.copy(), depth + 1)


def _agrees(state: Match, name: str, array: np.ndarray) -> bool:
    """Whether a constant holds the numbers that ``name`` stands for already, if it does."""
    if name not in state.values:
        return True
    bound = state.array(name)
    if bound.shape == array.shape:
        return bool(np.all(bound == array))
    first = bound.flat[0]  # one number for different shapes
    return bool(np.all(bound == first) and np.all(array == first))


def _behind(value: Value, through: Through | None, kind: str, view: View) -> tuple[Value, list[Op]]:
    """The value behind the ops that ``through`` lets pass, up to one of ``kind``, and these ops."""
    skipped: list[Op] = []
    maker = view.producer(value) if through else None
    while maker is not None and through is not None and maker.kind != kind and through(maker):
        skipped.append(maker)
        value = maker.operands[0]
        maker = view.producer(value)
    return value, skipped


# -- rules and the driver --------------------------------------------------------------------------


def _code(function: Callable) -> tuple[CodeType, int] | str:
    """Where a function is written: its code at its first instruction; "" of one not Python's."""
    code = getattr(function, "__code__", None)
    return "" if code is None else (code, 0)


def _row() -> tuple[CodeType, int]:
    """Where a rule is being made: the caller of the dataclass's ``__init__``."""
    frame = sys._getframe(2)
    return frame.f_code, frame.f_lasti


class _Told:
    """A constant in a sentence."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array

    def __format__(self, what: str) -> str:
        if self.array.size == 1:
            return f"{self.array.reshape(-1)[0]}"
        return f"{self.array.size} numbers from {self.array.min()} to {self.array.max()}"


class Unfit(Exception):
    """Why a match is not what a rule is about, raised from deep inside its check."""


def fits(read: Callable[[Match], Any]) -> Callable[[Match], str | None]:
    """The check that ``read`` finds what it looks for (and raises no :class:`Unfit`)."""

    def check(m: Match) -> str | None:
        try:
            read(m)
        except Unfit as reason:
            return str(reason)
        return None

    return check


@dataclass(frozen=True)
class Rule:
    """``pattern`` => what ``rewrite(builder, match)`` returns (a value, or None to refuse late).

    ``check(match)`` answers None, or the reason to refuse.  ``tolerance`` is the relative bound of
    a rule that changes values (None: exact, bit for bit; 0.0: equal numbers, as +0 and -0).
    """

    name: str
    pattern: Node
    rewrite: Callable[[Builder, Match], Any]
    check: Callable[[Match], str | None] | None = None
    tolerance: float | None = None
    #: Where the row stands: code and instruction.
    row: tuple[CodeType, int] | str = field(default_factory=_row, compare=False, repr=False)

    @property
    def source(self) -> str:
        """``file:line`` of the rewrite function, relative to the package."""
        return Refusal("", "", asked=_code(inspect.unwrap(self.rewrite))).place

    @property
    def place(self) -> str:
        """``file:line`` of the row."""
        return Refusal("", "", asked=self.row).place

    def attempt(self, root: Op, view: View) -> Match | Refusal:
        """The match at ``root``, or the first condition that refuses it, of the attempt that got
        furthest."""
        found = match(self.pattern, root, view)
        if isinstance(found, Refusal):
            found.asked = found.asked or self.row
        elif self.check is not None:
            reason = self.check(found)
            if reason:
                place = _code(self.check) or self.row
                return Refusal("check", "{0}", (reason, root), place, 1_000, found.ops)
        return found


def apply_at(rule: Rule, root: Op, rewriter: Rewriter, view: View) -> list[Op] | None:
    """Apply ``rule`` at ``root``: the new ops, or None where it does not fire."""
    found = rule.attempt(root, view)
    if isinstance(found, Refusal):
        return None
    builder = Builder(view.weights)
    result = rule.rewrite(builder, found)
    if result is None:
        return None
    results = (result,) if isinstance(result, Value) else tuple(result)
    new, values = adopt(root, results, builder.ops)
    # A pattern may bind a matched op's own result (a in ``a + (-b)`` may be that ``-b``).
    needed = {v for o in new for v in o.uses()} | set(values.values())
    return rewriter.replace(
        dying(found.ops, rewriter, needed), new, values,
        rule=rule.name, source=rule.source, tolerance=rule.tolerance, at=root,
    )  # fmt: skip


def adopt(root: Op, results: Sequence[Value], ops: list[Op]) -> tuple[list[Op], Mapping]:
    """Let the new ops produce ``root``'s own values where types agree: its users stay the same."""
    renamed = {}
    made = {v for op_ in ops for v in op_.results}
    for old, new in zip(root.results, results, strict=True):
        if new in made and new.type is old.type and new not in renamed:
            renamed[new] = old
    ops = [
        o.substitute(renamed).with_(results=tuple(renamed.get(v, v) for v in o.results))
        if any(v in renamed for v in (*o.uses(), *o.results)) else o
        for o in ops
    ]  # fmt: skip
    return ops, {old: renamed.get(new, new) for old, new in zip(root.results, results, strict=True)}


def dying(matched: Sequence[Op], rewriter: Rewriter, needed: set[Value]) -> list[Op]:
    """The matched ops that nobody needs once the root is gone, in program order, root last;
    ``needed`` are values that the replacement reads."""
    root, gone = matched[0], {matched[0]}
    left = list(dict.fromkeys(matched[1:]))
    before = 0
    while before != len(gone):  # an op may stand before one of its users in the match
        before = len(gone)
        for op_ in left:
            users = {u for v in op_.results for u in rewriter.users(v)}
            kept = any(rewriter.is_output(v) or v in needed for v in op_.results)
            if users <= gone and not kept:
                gone.add(op_)
        left = [op_ for op_ in left if op_ not in gone]
    return [o for o in reversed(list(dict.fromkeys(matched))) if o in gone and o is not root] + [
        root
    ]


def apply_rules(rewriter: Rewriter, rules: Sequence[Rule], weights: WeightStore) -> int:
    """Apply rules in program order until none fires; returns how many rewrites were made.

    What a rewrite made is asked next, so that an op that reads it later finds its last form.
    """
    table: dict[str, list[Rule]] = {}
    for rule in rules:
        table.setdefault(rule.pattern.kind, []).append(rule)
    view = View(rewriter, weights)
    work = deque(rewriter.ops)
    queued = set(work)
    count = 0
    limit = 100 * len(work) + 1000
    while work:
        current = work.popleft()
        queued.discard(current)
        if current not in rewriter:
            continue
        for rule in table.get(current.kind, ()):
            users = [u for v in current.results for u in rewriter.users(v)]
            feeders = [p for v in current.uses() if (p := rewriter.producer(v)) is not None]
            placed = apply_at(rule, current, rewriter, view)
            if placed is None:
                continue
            count += 1
            if count > limit:
                from core_compiler.errors import InternalError

                raise InternalError(f"rules do not come to an end (last: {rule.name})")
            fresh = [*placed, *feeders]
            for op_ in placed or ():
                fresh += [u for v in op_.results for u in rewriter.users(v)]
            for user in users:
                fresh += [user] if user in rewriter else []
            for value in rewriter.events[-1].values.values():
                fresh += rewriter.users(value)
            for op_ in reversed(fresh):  # before what comes later and may ask for them
                if op_ in rewriter and op_ not in queued:
                    work.appendleft(op_)
                    queued.add(op_)
            break
    return count


def explain(rules: Sequence[Rule], module: Module, root: Op) -> list[tuple[str, str, Op | None]]:
    """Why each rule fires or not at ``root``: ``(rule, answer, op the answer speaks of)``."""
    rewriter = Rewriter(module.main.body)
    view = View(rewriter, module.weights)
    answers = []
    for rule in rules:
        found = rule.attempt(root, view)
        if isinstance(found, Refusal):
            answers.append((rule.name, found.reason, found.op))
        else:
            answers.append((rule.name, "fires here", root))
    return answers
