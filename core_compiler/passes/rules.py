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


@dataclass(frozen=True, slots=True)
class Any_:
    """Any value, bound to ``name``; the same name twice asks for the same value."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """A constant (also seen through broadcasts and reshapes of one), bound to ``name``.

    ``test`` gets its array: ``Const("c", is_all(1))``.
    """

    name: str
    test: Callable[[np.ndarray], bool] | None = None
    wanted: str = "a constant"


@dataclass(frozen=True, slots=True)
class Node:
    """An op of ``kind`` whose operands match; ``where`` tests the op (attributes, types)."""

    kind: str
    operands: tuple = ()
    name: str = ""
    where: Callable[[Op], bool] | None = None
    once: bool = False

    def __str__(self):
        return self.kind


def op(kind: str, *operands, name: str = "", where=None, once: bool = False) -> Node:
    """Pattern node ``core.<kind>``; ``once`` demands that nobody else uses its result."""
    return Node(f"core.{kind}", tuple(Any_(o) if isinstance(o, str) else o for o in operands),
                name, where, once)  # fmt: skip


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

    def commutes(self, op: Op) -> bool:
        """Whether the two operands of ``op`` may change places."""
        return "commutative" in definition(op).traits

    def builder(self) -> Any:
        """What a rule builds its replacement with."""
        return Builder(self.weights)


#: The prefix of a level's ops -> how rules see its blocks.
VIEWS: dict[str, type[View]] = {"core": View}


def view_of(rules: Sequence[Rule], block: Rewriter, weights: WeightStore) -> View:
    """What ``rules``, which are of one level, see of a block."""
    prefix = rules[0].pattern.kind.partition(".")[0] if rules else "core"
    return VIEWS[prefix](block, weights)


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
    orders = [op_.operands]
    if len(op_.operands) == 2 and pattern.operands and state.view.commutes(op_):
        orders.append(op_.operands[::-1])
    for order in orders:
        start = Match(state.view, dict(state.values), dict(state.named), [*state.ops, op_])
        if pattern.name:
            start.named[pattern.name] = op_
        yield from _match_operands(list(zip(pattern.operands, order, strict=False)), start, depth)


def _match_operands(pairs, state: Match, depth: int):
    if not pairs:
        yield state
        return
    (pattern, value), rest = pairs[0], pairs[1:]
    if isinstance(pattern, Any_):
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
        else:
            state.values[pattern.name] = value
            yield from _match_operands(rest, state, depth + 1)
        return
    maker = state.view.producer(value)
    if maker is None:
        yield _refused(
            state, depth, "an operand is an input of the block, not {1}: {2} of {0}",
            state.ops[-1], pattern.kind, value,
        )  # fmt: skip
        return
    if pattern.once and not state.view.block.has_one_use(value):
        others = tuple(u for u in state.view.block.users(value) if u is not state.ops[-1])
        text = "the result of this {0:kind} has other uses: {0:value} is also read by {1}"
        if not others:
            text = (
                "the result of this {0:kind} has other uses: {0:value} is a result, or read twice"
            )
        yield Refusal("one use", text, (maker, others), "", depth + 1, state.ops)
        return
    for inner in _match_node(pattern, maker, state, depth + 1):
        if isinstance(inner, Refusal):
            yield inner
        else:
            copied = Match(inner.view, dict(inner.values), dict(inner.named), list(inner.ops))
            yield from _match_operands(rest, copied, depth + 1)


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


@dataclass(frozen=True)
class Rule:
    """``pattern`` => what ``rewrite(builder, match)`` returns (a value, or None to refuse late).

    ``check(match)`` answers None, or the reason to refuse.  ``tolerance`` is the relative bound of
    a rule that changes values (None: exact, bit for bit; 0.0: equal numbers, as +0 and -0).
    """

    name: str
    pattern: Node
    rewrite: Callable[[Any, Match], Any]
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
    builder = view.builder()
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
    for op_ in dict.fromkeys(matched[1:]):
        users = {u for v in op_.results for u in rewriter.users(v)}
        kept = any(rewriter.is_output(v) or v in needed for v in op_.results)
        if users <= gone and not kept:
            gone.add(op_)
    return [o for o in reversed(list(dict.fromkeys(matched))) if o in gone and o is not root] + [
        root
    ]


def apply_rules(rewriter: Rewriter, rules: Sequence[Rule], weights: WeightStore) -> int:
    """Apply rules in program order until none fires; returns how many rewrites were made."""
    table: dict[str, list[Rule]] = {}
    for rule in rules:
        table.setdefault(rule.pattern.kind, []).append(rule)
    view = view_of(rules, rewriter, weights)
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
            for op_ in fresh:
                if op_ in rewriter and op_ not in queued:
                    work.append(op_)
                    queued.add(op_)
            break
    return count


def explain(rules: Sequence[Rule], module: Module, root: Op) -> list[tuple[str, str, Op | None]]:
    """Why each rule fires or not at ``root``: ``(rule, answer, op the answer speaks of)``."""
    view = view_of(rules, Rewriter(module.main.body), module.weights)
    answers = []
    for rule in rules:
        found = rule.attempt(root, view)
        if isinstance(found, Refusal):
            answers.append((rule.name, found.reason, found.op))
        else:
            answers.append((rule.name, "fires here", root))
    return answers
