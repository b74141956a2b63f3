"""Our rules on an e-graph: the matcher asks for all ops that make a value, not for one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from core_compiler.ir import Op, Value, WeightStore, as_array
from core_compiler.ops.base import definition, evaluate
from core_compiler.ops.builder import Builder
from core_compiler.passes.patterns import Match, View, matches
from core_compiler.passes.rules import Rule
from core_compiler.passes.saturation.egraph import Classes, Node

#: Ways that one rule is tried at one op; patterns with alternatives have many.
_WAYS = 24
#: Results up to this many bytes are folded where all operands are constants.
_FOLDED = 4096


class _Anywhere:
    """What a pattern asks of a block: in an e-graph no value has a user that would keep it."""

    def has_one_use(self, value: Value) -> bool:
        return True

    def users(self, value: Value) -> tuple[Op, ...]:
        return ()


class ClassView(View):
    """The classes as a view: each class is the value that it holds first, each of its e-nodes an
    op on such values."""

    def __init__(self, classes: Classes, weights: WeightStore):
        super().__init__(_Anywhere(), weights)  # type: ignore[arg-type]
        self.classes = classes
        self.of = {c: values[0] for c, values in classes.values.items()}
        self.ops: dict[Value, list[Op]] = {}
        for number, nodes in classes.nodes.items():
            found = [op for node in nodes if (op := self.op(number, node)) is not None]
            self.ops[self.of[number]] = found
        self._constants: dict[tuple[Value, tuple], np.ndarray | None] = {}
        self._chosen: dict[Value, Op] = {}

    def op(self, number: int, node: Node) -> Op | None:
        """An e-node as an op; None of one that is never matched."""
        signature = node.signature
        if signature.op is not None:
            return None
        operands = tuple(self.of[n] for n in node.operands)
        return Op(signature.kind, operands, (self.of[number],), dict(signature.attributes))

    def producer(self, value: Value) -> Op | None:
        if value in self._chosen:
            return self._chosen[value]
        return next(iter(self.ops.get(value, ())), None)

    def makers(self, value: Value) -> Sequence[Op]:
        return self.ops.get(value, ())

    def along(self, ops: Sequence[Op]) -> ClassView:
        made = object.__new__(ClassView)
        made.__dict__.update(self.__dict__)
        made._chosen = {op.results[0]: op for op in ops}
        return made

    def constant(self, value: Value, through=("core.broadcast", "core.reshape")):
        key = value, tuple(through)
        if key not in self._constants:
            self._constants[key] = self._constant(value, through, set())
        return self._constants[key]

    def _constant(self, value: Value, through: Collection[str], seen: set[Value]):
        seen.add(value)
        for op in self.makers(value):
            if op.kind == "core.constant":
                return as_array(op["value"], self.weights)
        for op in self.makers(value):
            if op.kind in through and op.operands[0] not in seen:
                found = self._constant(op.operands[0], through, seen)
                if found is not None:
                    return found
        return None


@dataclass(frozen=True)
class Equality:
    """``value`` equals ``root`` by ``rule``, where ``ops`` make it."""

    rule: str
    tolerance: float | None
    root: Value
    value: Value
    ops: tuple[Op, ...]


def equalities(
    view: ClassView, table: dict[str, list[Rule]], asked: set[tuple]
) -> Iterator[Equality]:
    """What the rules say of the classes; ``asked`` holds the matches that were used before."""
    for value, ops in view.ops.items():
        for op in ops:
            for rule in table.get(op.kind, ()):
                yield from _by_rule(rule, op, view, asked)
            folded = _folded(op, view)
            if folded is not None:
                yield Equality("fold", None, value, folded.result, (folded,))


def _by_rule(rule: Rule, op: Op, view: ClassView, asked: set[tuple]) -> Iterator[Equality]:
    found = (m for m in matches(rule.pattern, op, view) if isinstance(m, Match))
    for m in islice(found, _WAYS):
        key = rule.name, rule.row, tuple(m.values.items()), tuple(map(_key, m.ops))
        if key in asked:
            continue
        asked.add(key)
        if rule.check is not None and rule.check(m):
            continue
        builder = Builder(view.weights)
        result = rule.rewrite(builder, m)
        if isinstance(result, Value) and result.type is op.result.type:
            ops = tuple(builder.ops)
            yield Equality(rule.name, rule.tolerance, op.result, result, ops)


def _key(op: Op) -> tuple:
    return op.kind, op.operands, op.results, tuple(op.attributes.items())


def _folded(op: Op, view: ClassView) -> Op | None:
    """The constant that an op on constants is, by the reference."""
    if op.kind == "core.constant" or not op.operands or "random" in definition(op).traits:
        return None
    known = any(o.kind == "core.constant" for o in view.makers(op.result))
    if known or not op.result.type.is_static or op.result.type.bytes > _FOLDED:
        return None
    arrays = [view.constant(v, through=()) for v in op.operands]
    if any(a is None for a in arrays):
        return None
    (array,) = evaluate(op, arrays, view.weights)
    value = Value(op.result.type)
    return Op(
        "core.constant", (), (value,), {"value": view.weights.add(np.ascontiguousarray(array))}
    )
