"""Rules on an e-graph: the matcher asks for all ops that define a value, not for one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from typing_extensions import override

from core_compiler.ir import Op, Value, WeightStore, attributes_key
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array, evaluate
from core_compiler.passes.patterns import Match, View, matches
from core_compiler.passes.patterns import Node as PatternNode
from core_compiler.passes.rules import Rule
from core_compiler.passes.saturation.egraph import Classes, Node

#: Maximum number of matches of one rule at one op, and of attempts: patterns with alternatives that
#: skip views have very many.
_MAX_MATCHES, _MAX_ATTEMPTS = 24, 1000
#: Maximum size in bytes of a result that is folded if all operands are constants.
_MAX_FOLDED_BYTES = 4096


class _UnrestrictedUses:
    """The uses that a pattern may ask about: in an e-graph, no value is kept alive by a user."""

    def has_one_use(self, value: Value) -> bool:
        return True

    def users(self, value: Value) -> tuple[Op, ...]:
        return ()


class ClassView(View):
    """The classes as a view: each class is its first value, each e-node an op on such values.

    ``values_read`` collects the values that are asked about.
    """

    def __init__(self, classes: Classes, weights: WeightStore):
        super().__init__(_UnrestrictedUses(), weights)  # type: ignore[arg-type]
        self.classes = classes
        self.of = {c: values[0] for c, values in classes.values.items()}
        self.ops: dict[Value, list[Op]] = {}
        for number, nodes in classes.nodes.items():
            self.ops[self.of[number]] = [self.op(number, n) for n in nodes if n.whole is None]
        self._kinds = {value: {op.kind for op in ops} for value, ops in self.ops.items()}
        self.values_read: set[Value] = set()
        self._chosen: dict[Value, Op] = {}

    def op(self, number: int, node: Node) -> Op:
        """Return an e-node as an op on such values, or the block's op if it has several results."""
        if node.whole is not None:
            return node.whole
        signature = node.signature
        operands = tuple(self.of[n] for n in node.operands)
        return Op(signature.kind, operands, (self.of[number],), dict(signature.attributes))

    @override
    def producer(self, value: Value) -> Op | None:
        self.values_read.add(value)
        if value in self._chosen:
            return self._chosen[value]
        return next(iter(self.ops.get(value, ())), None)

    @override
    def producers(self, value: Value) -> Sequence[Op]:
        self.values_read.add(value)
        return self.ops.get(value, ())

    def kinds(self, value: Value) -> Collection[str]:
        """Return the kinds of op that define ``value``."""
        self.values_read.add(value)
        return self._kinds.get(value, ())

    @override
    def with_chosen(self, ops: Sequence[Op]) -> ClassView:
        made = object.__new__(ClassView)
        made.__dict__.update(self.__dict__)
        made._chosen = {op.results[0]: op for op in ops}
        return made

    @override
    def constant(self, value: Value, through=("core.broadcast", "core.reshape")):
        return self._constant(value, through, set())

    def _constant(self, value: Value, through: Collection[str], seen: set[Value]):
        seen.add(value)
        producers = self.producers(value)
        for op in producers:
            if op.kind == "core.constant":
                return constant_array(op, self.weights)
        for op in producers:
            if op.kind in through and op.operands[0] not in seen:
                found = self._constant(op.operands[0], through, seen)
                if found is not None:
                    return found
        return None


@dataclass(frozen=True)
class Equality:
    """The equality of ``value`` and ``root`` by ``rule``; ``ops`` define the value."""

    rule: str
    tolerance: float | None
    root: Value
    value: Value
    ops: tuple[Op, ...]


class RuleMatcher:
    """Applies a table of rules repeatedly as the classes grow.

    An op is tried again only if something that its rules read has changed; a match is used once.
    """

    def __init__(self, rules: Sequence[Rule]):
        #: Kind of root -> rules, with the kinds that the pattern requires of the operands' ops.
        self._table: dict[str, list[tuple[Rule, tuple[str, ...]]]] = {}
        for rule in rules:
            self._table.setdefault(rule.pattern.kind, []).append(
                (rule, _operand_kinds(rule.pattern))
            )
        self._used: set[tuple] = set()
        #: Op -> the values that its rules looked at.
        self._values_read: dict[tuple, set[Value]] = {}
        #: Value of a class -> its ops at the last attempt.
        self._known: dict[Value, list[tuple]] = {}

    def equalities(self, view: ClassView, out_of_time: Callable[[], bool]) -> Iterator[Equality]:
        """Yield the equalities that the rules find; stop early when it is ``out_of_time``."""
        known = {value: list(map(_key, ops)) for value, ops in view.ops.items()}
        changed = {v for v in {**known, **self._known} if known.get(v) != self._known.get(v)}
        self._known = known
        for value, ops in view.ops.items():
            for op, key in zip(ops, known[value], strict=True):
                values_read = self._values_read.get(key)
                if values_read is not None and values_read.isdisjoint(changed):
                    continue
                if out_of_time():
                    return
                view.values_read = {value}
                yield from self._equalities_at(op, view)
                self._values_read[key] = view.values_read

    def _equalities_at(self, op: Op, view: ClassView) -> Iterator[Equality]:
        operand_kinds = [view.kinds(v) for v in op.operands]
        orders = (
            [operand_kinds, operand_kinds[::-1]]
            if len(operand_kinds) == 2 and view.commutes(op)
            else [operand_kinds]
        )
        for rule, wanted in self._table.get(op.kind, ()):
            if not wanted or any(_may_match(wanted, kinds) for kinds in orders):
                yield from self._by_rule(rule, op, view)
        folded = _folded(op, view)
        if folded is not None:
            yield Equality("fold", None, op.result, folded.result, (folded,))

    def _by_rule(self, rule: Rule, op: Op, view: ClassView) -> Iterator[Equality]:
        tried = islice(matches(rule.pattern, op, view), _MAX_ATTEMPTS)
        for m in islice((m for m in tried if isinstance(m, Match)), _MAX_MATCHES):
            key = rule.name, rule.location, tuple(m.values.items()), tuple(map(_key, m.ops))
            if key in self._used or (rule.check is not None and rule.check(m)):
                continue
            self._used.add(key)
            builder = Builder(view.weights)
            result = rule.rewrite(builder, m)
            if isinstance(result, Value) and result.type is op.result.type:
                yield Equality(rule.name, rule.tolerance, op.result, result, tuple(builder.ops))


def _operand_kinds(pattern: PatternNode) -> tuple[str, ...]:
    """Return the kinds of op that the operands must have ("": any); () if unknown."""
    kinds = tuple(
        p.kind if isinstance(p, PatternNode) and p.through is None else "" for p in pattern.operands
    )
    return kinds if any(kinds) else ()


def _may_match(wanted: tuple[str, ...], kinds: Sequence[Collection[str]]) -> bool:
    return len(wanted) == len(kinds) and all(
        not want or want in held for want, held in zip(wanted, kinds, strict=True)
    )


def _key(op: Op) -> tuple:
    return op.kind, op.operands, op.results, attributes_key(op.attributes.items())


def _folded(op: Op, view: ClassView) -> Op | None:
    """Return the constant that an op on constants evaluates to, by the reference."""
    if op.kind == "core.constant" or not op.operands or "random" in definition(op).traits:
        return None
    known = any(o.kind == "core.constant" for o in view.producers(op.result))
    if known or not op.result.type.is_static or op.result.type.bytes > _MAX_FOLDED_BYTES:
        return None
    arrays = [view.constant(v, through=()) for v in op.operands]
    if any(a is None for a in arrays):
        return None
    (array,) = evaluate(op, arrays, view.weights)
    value = Value(op.result.type)
    return Op("core.constant", (), (value,), {"value": view.weights.add(array)})
