"""The parameters without a gradient of the loss, and the op that blocks it.

A backward traversal from the loss along gradients stops at ops that propagate none (a step
function, positions, a comparison, ``stop_gradient``). The parameters before such an op that no
other path reaches are not trained. An argmax beside a differentiable path, a mask, or a rounding
whose input is also used otherwise is therefore not reported. Regions of control flow are treated as
if they were inlined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Value
from core_compiler.ops import typed
from core_compiler.ops.base import definition
from core_compiler.ops.gradients.table import CONSTANT
from core_compiler.training.graph.autodiff import source_location
from core_compiler.training.graph.program import BRANCH, LOOP, active

#: The op by which the user stops gradients deliberately.
STOP_GRADIENT = "core.stop_gradient"


@dataclass(frozen=True)
class Stop:
    """An op that propagates no gradient from its result ``after`` to its operand ``before``."""

    op: Op
    before: Value
    after: Value

    @property
    def is_deliberate(self) -> bool:
        return self.op.kind == STOP_GRADIENT

    @property
    def _reason(self) -> str:
        if self.is_deliberate:
            return "it stops gradients intentionally"
        if self.after.type.dtype.is_float:
            return "its derivative is 0 wherever it exists"
        return f"its result is {self.after.type.dtype.name}, which has no gradient"

    @override
    def __str__(self) -> str:
        """Return the op's kind, the reason, its line in the model and the path of its module."""
        scope = self.op.origin.scope if self.op.origin is not None else ""
        within = f", in {scope}" if scope else ""
        return f"{self.op.kind} ({self._reason}; {source_location(self.op)}{within})"


@dataclass(frozen=True)
class UntrainedParameters:
    """Parameters without a gradient that share the same ``stops``, the one nearest the loss first.

    Without stops the loss does not depend on the parameters.
    """

    parameters: Sequence[Value]
    stops: Sequence[Stop]

    @property
    def is_deliberate(self) -> bool:
        """Return whether the user stopped the gradients deliberately."""
        return bool(self.stops) and all(stop.is_deliberate for stop in self.stops)

    @property
    def reported_stops(self) -> Sequence[Stop]:
        """The stops to report: one per model line, deliberate ones only if there are no others."""
        own = [s for s in self.stops if self.is_deliberate or not s.is_deliberate]
        return list({str(s): s for s in reversed(own)}.values())[::-1]


def find_untrained(
    ops: Sequence[Op], loss: Value, parameters: Sequence[Value], found: Mapping[Value, Value]
) -> list[UntrainedParameters]:
    """Return the ``parameters`` without a gradient of ``loss``, grouped by what blocks it.

    ``ops`` is the differentiated program; ``found`` maps values to their cotangents.
    """
    flow = _Flow(ops)
    active_values = active(ops, parameters, [loss])

    def propagates(op: Op, operand: Value, given: Sequence[Value] = ()) -> bool:
        if definition(op).gradient is CONSTANT:
            return False
        is_requested = (
            any(v in found or v in given for v in op.results) and operand in active_values
        )
        return (
            not is_requested or operand in found
        )  # a rule may return no gradient for this operand

    reached, stops = flow.reach_from(loss, propagates)
    without_gradient = [v for v in parameters if v not in reached or v not in found]
    if not without_gradient:
        return []
    before = flow.before(without_gradient)
    if not stops and before.get(loss):  # the op of the loss itself propagates nothing
        _, stops = flow.reach_from(loss, lambda op, operand: propagates(op, operand, (loss,)))
    groups: dict[tuple[int, ...], list[Value]] = {}
    for i, value in enumerate(without_gradient):
        blocking = tuple(n for n, s in enumerate(stops) if before.get(s.before, 0) >> i & 1)
        groups.setdefault(blocking, []).append(value)
    return [
        UntrainedParameters(values, [stops[n] for n in blocking])
        for blocking, values in groups.items()
    ]


class _Flow:
    """The data flow of a program.

    ``edges`` has (op, value, source value) in program order; the op is None if a value only enters
    or leaves a region.
    """

    def __init__(self, ops: Iterable[Op]):
        self.edges: list[tuple[Op | None, Value, Sequence[Value]]] = []
        self.order: dict[Op, int] = {}
        self._add_ops(ops)
        self.sources: dict[Value, list[tuple[Op | None, Sequence[Value]]]] = {}
        for op, value, of in self.edges:
            self.sources.setdefault(value, []).append((op, of))

    def _add_ops(self, ops: Iterable[Op]) -> None:
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
            self._connect(region.arguments, captures)
            self._add_ops(region.ops)
            self._connect(op.results, region.outputs)
        self.edges += [(op, v, (condition,)) for v in op.results]

    def _loop(self, op: Op) -> None:
        body = op.regions[1]
        self._connect(body.arguments, op.operands)
        self._add_ops(body.ops)
        self._connect(body.arguments, body.outputs)
        trips = typed.While.of(op).trips
        self._connect(op.results, body.outputs if trips else op.operands)
        if trips is None:
            self._connect(op.results, body.outputs)

    def _connect(self, to: Sequence[Value], of: Sequence[Value]) -> None:
        self.edges += [(None, a, (b,)) for a, b in zip(to, of, strict=True)]

    def reach_from(
        self, loss: Value, propagates: Callable[[Op, Value], bool]
    ) -> tuple[set[Value], list[Stop]]:
        """Return the values that gradients of ``loss`` reach, and the stops, nearest first.

        Integers have no gradients: from integers that a float depends on, the traversal continues
        to the ops that computed them from floats.
        """
        seen, stack = {loss}, [loss]
        stops: dict[tuple[Op, Value], Stop] = {}
        while stack:
            value = stack.pop()
            for op, of in self.sources.get(value, ()):
                for operand in of:
                    blocks = (
                        op is not None
                        and operand.type.dtype.is_float
                        and not (value.type.dtype.is_float and propagates(op, operand))
                    )
                    if blocks:
                        assert op is not None
                        stops[op, operand] = Stop(op, operand, value)
                    elif operand not in seen:
                        seen.add(operand)
                        stack.append(operand)
        return seen, sorted(stops.values(), key=lambda stop: -self.order[stop.op])

    def before(self, values: Sequence[Value]) -> dict[Value, int]:
        """Return, for each value, which of ``values`` it depends on, as bits."""
        found = {v: 1 << i for i, v in enumerate(values)}
        changed = True
        while changed:  # repeat for loops that carry values around
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
