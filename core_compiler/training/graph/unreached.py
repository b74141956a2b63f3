"""Which parameters the loss gives no gradient, and the op that is in the way.

A walk back from the loss along what gradients pass.  Where it meets an op that passes nothing on (a
step function, positions, a comparison, ``stop_gradient``) it stops; of the parameters before that
op, those that no other way leads to stay as they are.  So argmax beside a differentiable way, a
mask, a rounding whose input is also read otherwise are nothing to tell.  Regions of control flow
are walked as if they stood in line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Value
from core_compiler.ops.base import definition
from core_compiler.ops.gradients.table import CONSTANT
from core_compiler.training.graph.autodiff import place_of
from core_compiler.training.graph.program import BRANCH, LOOP, active

#: What a person put there to hold gradients back.
ON_PURPOSE = "core.stop_gradient"


@dataclass(frozen=True)
class Stop:
    """An op that passes no gradient of a result, ``after`` it, to an operand, ``before`` it."""

    op: Op
    before: Value
    after: Value

    @property
    def on_purpose(self) -> bool:
        return self.op.kind == ON_PURPOSE

    @property
    def _reason(self) -> str:
        if self.on_purpose:
            return "it stops gradients on purpose"
        if self.after.type.dtype.is_float:
            return "its derivative is 0 wherever it exists"
        return f"its result is {self.after.type.dtype.name}, which has no gradient"

    @override
    def __str__(self) -> str:
        """Its kind, why, its line in the model and the path of its module."""
        scope = self.op.origin.scope if self.op.origin is not None else ""
        within = f", in {scope}" if scope else ""
        return f"{self.op.kind} ({self._reason}; {place_of(self.op)}{within})"


@dataclass(frozen=True)
class Unmoved:
    """Parameters that get no gradient, all for the same ``stops``, the one next to the loss first;
    none: the loss does not depend on them."""

    parameters: Sequence[Value]
    stops: Sequence[Stop]

    @property
    def on_purpose(self) -> bool:
        """Whether a person said so."""
        return bool(self.stops) and all(stop.on_purpose for stop in self.stops)

    @property
    def told(self) -> Sequence[Stop]:
        """One stop for each line of the model, those on purpose only where there are no others."""
        own = [s for s in self.stops if self.on_purpose or not s.on_purpose]
        return list({str(s): s for s in reversed(own)}.values())[::-1]


def unmoved(
    ops: Sequence[Op], loss: Value, parameters: Sequence[Value], found: Mapping[Value, Value]
) -> list[Unmoved]:
    """The ``parameters`` that get no gradient of ``loss``, grouped by what is in the way.

    ``ops``: the program once it is differentiated; ``found``: values -> their cotangents.
    """
    flow = _Flow(ops)
    on_the_way = active(ops, parameters, [loss])

    def passes(op: Op, operand: Value, given: Sequence[Value] = ()) -> bool:
        if definition(op).gradient is CONSTANT:
            return False
        asked = any(v in found or v in given for v in op.results) and operand in on_the_way
        return not asked or operand in found  # a rule may say: nothing for this operand

    reached, stops = flow.back(loss, passes)
    left = [v for v in parameters if v not in reached or v not in found]
    if not left:
        return []
    before = flow.before(left)
    if not stops and before.get(loss):  # the op of the loss itself gives nothing
        _, stops = flow.back(loss, lambda op, operand: passes(op, operand, (loss,)))
    groups: dict[tuple[int, ...], list[Value]] = {}
    for i, value in enumerate(left):
        way = tuple(n for n, s in enumerate(stops) if before.get(s.before, 0) >> i & 1)
        groups.setdefault(way, []).append(value)
    return [Unmoved(values, [stops[n] for n in way]) for way, values in groups.items()]


class _Flow:
    """Where values come from: ``edges`` has (op, value, what it is made of) in program order; no op
    where a value is only handed into a region or out of one."""

    def __init__(self, ops: Iterable[Op]):
        self.edges: list[tuple[Op | None, Value, Sequence[Value]]] = []
        self.order: dict[Op, int] = {}
        self._enter(ops)
        self.sources: dict[Value, list[tuple[Op | None, Sequence[Value]]]] = {}
        for op, value, of in self.edges:
            self.sources.setdefault(value, []).append((op, of))

    def _enter(self, ops: Iterable[Op]) -> None:
        for op in ops:
            self.order[op] = len(self.order)
            if op.kind == BRANCH:
                self._branch(op)
            elif op.kind == LOOP:
                self._loop(op)
            else:
                self.edges += [(op, v, tuple(op.uses())) for v in op.results]

    def _branch(self, op: Op) -> None:
        condition, *captures = op.operands
        for region in op.regions:
            self._hand(region.arguments, captures)
            self._enter(region.ops)
            self._hand(op.results, region.outputs)
        self.edges += [(op, v, (condition,)) for v in op.results]

    def _loop(self, op: Op) -> None:
        body = op.regions[1]
        self._hand(body.arguments, op.operands)
        self._enter(body.ops)
        self._hand(body.arguments, body.outputs)
        self._hand(op.results, body.outputs if op.get("trips") else op.operands)
        if op.get("trips") is None:
            self._hand(op.results, body.outputs)

    def _hand(self, to: Sequence[Value], of: Sequence[Value]) -> None:
        self.edges += [(None, a, (b,)) for a, b in zip(to, of, strict=True)]

    def back(
        self, loss: Value, passes: Callable[[Op, Value], bool]
    ) -> tuple[set[Value], list[Stop]]:
        """The values that gradients of ``loss`` come to, and where they come no further, the stop
        nearest to the loss first.

        Integers have no gradients: from those that a float follows from the walk goes on to the
        ops that made them of floats.
        """
        seen, stack = {loss}, [loss]
        stops: dict[tuple[Op, Value], Stop] = {}
        while stack:
            value = stack.pop()
            for op, of in self.sources.get(value, ()):
                for operand in of:
                    ends = op is not None and operand.type.dtype.is_float and not (
                        value.type.dtype.is_float and passes(op, operand)
                    )  # fmt: skip
                    if ends:
                        assert op is not None
                        stops[op, operand] = Stop(op, operand, value)
                    elif operand not in seen:
                        seen.add(operand)
                        stack.append(operand)
        return seen, sorted(stops.values(), key=lambda stop: -self.order[stop.op])

    def before(self, values: Sequence[Value]) -> dict[Value, int]:
        """Values -> which of ``values`` they depend on in any way, as bits."""
        found = {v: 1 << i for i, v in enumerate(values)}
        changed = True
        while changed:  # once more for every loop that hands something round
            changed = False
            for _, value, of in self.edges:
                old = found.get(value, 0)
                new = old
                for operand in of:
                    new |= found.get(operand, 0)
                if new != old:
                    found[value] = new
                    changed = True
        return found
