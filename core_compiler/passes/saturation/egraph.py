"""The e-graph of a block: values, the ops known to define each, and which values are equal.

It is stored in egglog (Zhang et al., "Better Together: Unifying Datalog and Equality Saturation",
2023): a constructor for each number of operands, and the signature of an op (kind, attributes,
result type) as a number, so that congruence, commutativity and rebuilding are egglog's.  The
properties of ops that our rules read (attributes, constants, types) are Python; they match on
egglog's classes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from core_compiler.ir import Op, Value, attributes_key
from core_compiler.ops.base import definition
from core_compiler.support.errors import UserError

_SCHEMA = """
(sort V)
(constructor Id (i64) V)
(relation Commutes (i64))
(ruleset equal)
"""
_OPS = "(constructor Op{count} (i64{operands}) V)"
_COMMUTES = "(rule ((= e (Op2 s a b)) (Commutes s)) ((union e (Op2 s b a))) :ruleset equal)"


def need_egglog() -> Any:
    """Return egglog's bindings; UserError (exit code 3) if it is not installed."""
    if importlib.util.find_spec("egglog") is None:
        raise UserError(
            "egglog is not installed",
            "pass saturate",
            "pip install 'compiler-workbench[egglog]'",
            3,
        )
    from egglog import bindings

    return bindings


@dataclass(frozen=True)
class Signature:
    """The signature of an op: what it does, without its operands.

    ``op``: the op of the block, if it has regions or several results (then also which ``result``):
    it is never matched.
    """

    kind: str
    attributes: tuple[tuple[str, Any], ...]
    type: Any
    op: Op | None = None
    result: int = 0

    @staticmethod
    def of(op: Op) -> Signature:
        return Signature(op.kind, tuple(op.attributes.items()), op.result.type)

    @property
    def key(self) -> tuple:
        """Return the identity of a signature: floats by their bits (+0 is not -0)."""
        return self.kind, attributes_key(self.attributes), self.type, self.op, self.result


def is_plain(op: Op) -> bool:
    """Return whether rules may match an op: one result, no regions."""
    return not op.regions and len(op.results) == 1


@dataclass(frozen=True)
class Node:
    """An op on classes; ``order`` is the order of insertion, starting with the block's ops."""

    signature: Signature
    operands: tuple[int, ...]
    order: int

    @property
    def whole(self) -> Op | None:
        """Return the block's op that this e-node is a result of, if it is never matched."""
        return self.signature.op


@dataclass
class Classes:
    """The equivalence classes, keyed by the least number of their values, in that order.

    ``nodes``: the ops that define the class (none for an argument, unless something equal is
    known); ``values``: the values in it; ``of``: the class of a value's number.
    """

    of: dict[int, int]
    values: dict[int, list[Value]] = field(default_factory=dict)
    nodes: dict[int, list[Node]] = field(default_factory=dict)

    def readers(self) -> dict[int, dict[int, None]]:
        """Return, for each class, the classes with an e-node that reads it."""
        made: dict[int, dict[int, None]] = {}
        for number, nodes in self.nodes.items():
            for node in nodes:
                for operand in node.operands:
                    made.setdefault(operand, {})[number] = None
        return made


class EGraph:
    """Values by number; ops and equalities are queued until :meth:`classes` asks egglog."""

    def __init__(self) -> None:
        self._api = need_egglog()
        self._egraph = self._api.EGraph()
        self._span = self._api.RustSpan(__name__, 0, 0)
        self._run(*self._egraph.parse_program(_SCHEMA))
        self._arities: set[int] = set()
        self._signatures: dict[tuple, int] = {}
        self._signature_list: list[Signature] = []
        self.values: list[Value] = []
        self.given: tuple[Value, ...] = ()  # defined by no op
        self._numbers: dict[Value, int] = {}
        self._merged: list[Value] = []  # values with the number of an equal one
        #: Order of insertion, signature, operands, result.
        self._nodes: list[tuple[int, int, tuple[int, ...], int]] = []
        self._added = 0
        self._commuting: set[int] = set()
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        #: Union-find: maps a number to an equal one, or to itself for a class's representative.
        self._equal: dict[int, int] = {}
        self._waiting: list[Any] = []

    def __len__(self) -> int:
        """Return the number of e-nodes."""
        return len(self._nodes)

    # -- filling ---------------------------------------------------------------------------------

    def number(self, value: Value) -> int:
        """Return the number of a value, which is assigned on first use."""
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            self.values.append(value)
            self._queue(self._api.Expr_(self._span, self._id(self._numbers[value])))
        return self._numbers[value]

    def add(self, op: Op) -> None:
        """Add ``op`` as the definition of its results; a known one adds nothing."""
        if is_plain(op):
            self._add(Signature.of(op), op.operands, op.result)
            return
        for index, value in enumerate(op.results):
            self._add(Signature(op.kind, (), value.type, op, index), op.uses(), value)

    def _add(self, signature: Signature, operands: Sequence[Value], result: Value) -> None:
        name = self._signature(signature, len(operands))
        numbers = tuple(self.number(v) for v in operands)
        key = self._key(name, tuple(map(self._representative, numbers)))
        if result not in self._numbers and key in self._known:
            self._numbers[result] = self._known[key]
            self._merged.append(result)
            return
        made = self.number(result)
        self._known.setdefault(key, made)
        self._nodes.append((self._added, name, numbers, made))
        self._added += 1
        self._ensure(len(numbers))
        given = [self._literal(name), *map(self._id, numbers)]
        term = self._api.Call(self._span, f"Op{len(numbers)}", given)
        self._queue(self._api.Union(self._span, self._id(made), term))

    def union(self, one: Value, other: Value) -> bool:
        """Record that two values are equal and return whether that is new."""
        a, b = self._representative(self.number(one)), self._representative(self.number(other))
        if a == b:
            return False
        self._equal[max(a, b)] = min(a, b)
        self._queue(self._api.Union(self._span, self._id(a), self._id(b)))
        return True

    def _key(self, name: int, operands: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Return the identity of an e-node."""
        return name, tuple(sorted(operands)) if name in self._commuting else operands

    def _representative(self, number: int) -> int:
        while self._equal.get(number, number) != number:
            number = self._equal[number]
        return number

    # -- asking ----------------------------------------------------------------------------------

    def classes(self) -> Classes:
        """Return the current classes, closed under congruence and commutativity.

        E-nodes that have become equal are merged from here on.  Those that read their own class are
        left out: nothing can be built from them, and they are known to be no-ops.
        """
        api, span = self._api, self._span
        self._run(*self._waiting)
        self._waiting.clear()
        schedule = api.Saturate(span, api.Run(span, api.RunConfig("equal")))
        self._run(api.RunSchedule(schedule))
        rows = self._egraph.freeze().functions["Id"].rows
        numbers_of: dict[Any, list[int]] = {}
        for row in rows:
            numbers_of.setdefault(row.output, []).append(self._egraph.value_to_i64(row.inputs[0]))
        made = Classes({n: min(numbers) for numbers in numbers_of.values() for n in numbers})
        self._equal = dict(made.of)
        for number, value in enumerate(self.values):
            made.values.setdefault(made.of[number], []).append(value)
        for value in self._merged:
            made.values[made.of[self._numbers[value]]].append(value)
        made.nodes = {number: [] for number in made.values}
        nodes, self._nodes, self._known = self._nodes, [], {}
        for order, name, numbers, result in nodes:
            operands, number = tuple(made.of[n] for n in numbers), made.of[result]
            key = self._key(name, operands)
            if key not in self._known:
                self._known[key] = result
                if number not in operands:
                    self._nodes.append((order, name, numbers, result))
                    made.nodes[number].append(Node(self._signature_list[name], operands, order))
        return made

    # -- egglog's terms --------------------------------------------------------------------------

    def _signature(self, signature: Signature, count: int) -> int:
        key = (*signature.key, count)
        if key not in self._signatures:
            self._signatures[key] = len(self._signature_list)
            self._signature_list.append(signature)
            commutes = signature.op is None and "commutative" in definition(signature.kind).traits
            if commutes and count == 2:
                self._commuting.add(self._signatures[key])
                self._ensure(2)
                fact = [self._literal(self._signatures[key])]
                self._queue(
                    self._api.Expr_(self._span, self._api.Call(self._span, "Commutes", fact))
                )
        return self._signatures[key]

    def _ensure(self, count: int) -> None:
        """Declare a constructor for ops of ``count`` operands."""
        if count not in self._arities:
            self._arities.add(count)
            text = _OPS.format(count=count, operands=" V" * count)
            text += _COMMUTES if count == 2 else ""
            self._run(*self._egraph.parse_program(text))

    def _literal(self, number: int) -> Any:
        return self._api.Lit(self._span, self._api.Int(number))

    def _id(self, number: int) -> Any:
        return self._api.Call(self._span, "Id", [self._literal(number)])

    def _queue(self, action: Any) -> None:
        self._waiting.append(self._api.ActionCommand(action))

    def _run(self, *commands: Any) -> None:
        self._egraph.run_program(*commands)


def build_egraph(ops: Iterable[Op], arguments: Iterable[Value]) -> EGraph:
    """Return the e-graph of a block, with values numbered in program order."""
    made = EGraph()
    ops = list(ops)
    own = {v for op in ops for v in op.results}
    outer = dict.fromkeys(v for op in ops for v in op.uses() if v not in own)
    made.given = tuple(dict.fromkeys((*arguments, *outer)))
    for value in made.given:
        made.number(value)
    for op in ops:
        made.add(op)
    return made
