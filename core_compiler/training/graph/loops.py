"""The gradient of a loop with a known trip count.

Reverse mode through a loop (Griewank and Walther, "Evaluating Derivatives", 2nd ed., chapter 4):
the loop stacks the values of each iteration that the gradient of its body reads, along a new first
axis. A second loop runs the iterations in reverse order. It carries the cotangents of the values
that the first loop carried and, for each outer value that the body reads (weights), the sum of its
cotangents, starting from +0 with the last iteration.

Values that follow from outer values and counters by data movement or from a few numbers (the slice
of an input for an iteration), and movements of kept values, are recomputed instead of kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from core_compiler.ir import Block, Op, Origin, Value, WeightStore, tensor
from core_compiler.ir.core import clone_block
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array
from core_compiler.ops.traits import has_trait
from core_compiler.training.graph.program import KEEPS, LOOP, Listed, active, gradient_origin

#: Function of a program, cotangents and varied values that returns the cotangents of the latter.
Differentiate = Callable[..., Mapping[Value, Value]]

#: Maximum number of elements of a result that is recomputed from counters.
_FEW = 256


def _moves(op: Op) -> bool:
    """Return whether an op only moves or creates data, so that it can be recomputed."""
    return not op.operands or has_trait(op, "view", "partial_read")


@dataclass(frozen=True)
class Reversed:
    """The gradient of a loop.

    ``keeping`` are the ops that replace the loop (none if it stays). ``backward`` are the ops of
    the gradient. ``cotangents`` are added to those of outer values. ``note`` says what is kept.
    """

    keeping: Sequence[Op]
    backward: Sequence[Op]
    cotangents: Sequence[tuple[Value, Value]]
    note: str = ""


def reverse(
    op: Op,
    around: Sequence[Op],
    found: Mapping[Value, Value],
    wanted: set[Value],
    weights: WeightStore | None,
    where: str,
    differentiate: Differentiate,
) -> Reversed:
    """Return the gradient of the loop ``op`` with a known trip count, one of the ops ``around``.

    ``found`` has the cotangents of its results. ``wanted`` are the outer values whose cotangents
    are requested. ``differentiate`` builds the gradient of its body
    (:func:`~core_compiler.training.graph.autodiff.differentiate`). Raise a UserError that names the
    ops of its body without a gradient.
    """
    trips = typed.While.of(op).trips
    assert trips is not None
    if trips == 0:
        pairs = zip(op.operands, op.results, strict=True)
        return Reversed((), (), [(v, found[r]) for v, r in pairs if v in wanted and r in found])
    return _Reversal(op, trips, around, found, wanted, weights, where, differentiate).run()


@dataclass
class _Reversal:
    op: Op
    trips: int
    around: Sequence[Op]
    found: Mapping[Value, Value]
    wanted: set[Value]
    weights: WeightStore | None
    where: str
    differentiate: Differentiate
    #: Value kept in each iteration -> its stack, outside the loop.
    kept: dict[Value, Value] = field(default_factory=dict)
    #: Whether each value of an iteration can be recomputed from outer values and counters.
    there: dict[Value, bool] = field(default_factory=dict)

    def run(self) -> Reversed:
        self.body = clone_block(self.op.regions[1])
        self.free = [v for v in self.body.free_values() if v in self.wanted]
        self.places = self._differentiated()
        if not self.places:  # the gradient passes through no carried value
            return Reversed((), (), ())
        self.listed = Listed(list(self.body.ops), self.weights)
        self._body()
        for value in dict.fromkeys(v for op in self.after for v in op.uses()):
            self._need(value)
        keeping = self._keeping()
        backward, cotangents = self._backward()
        kept = sum(v.type.bytes for v in self.kept) * self.trips
        note = f"{len(self.kept)} values of each iteration, {kept:,} bytes"
        return Reversed(keeping, backward, cotangents, note)

    def _differentiated(self) -> list[int]:
        """Return the positions of the carried values that a cotangent passes through."""
        op, body = self.op, self.body
        reached = {i for i, v in enumerate(op.operands) if v in self.wanted}
        while True:
            given = [*(body.arguments[i] for i in reached), *self.free]
            on = active(body.ops, given, body.outputs)
            more = {i for i, v in enumerate(body.outputs) if v in on} - reached
            if not more:
                break
            reached |= more
        needed = {i for i in reached if op.results[i] in self.found}
        while True:
            asked = [body.outputs[i] for i in needed]
            on = active(body.ops, [*(body.arguments[i] for i in reached), *self.free], asked)
            more = {i for i in reached if body.arguments[i] in on} - needed
            if not more:
                return sorted(needed)
            needed |= more

    def _body(self) -> None:
        """Differentiate one iteration.

        Sets ``after``, the forward ops, and ``made``, the cotangents of the arguments at ``places``
        and the sums of ``free``.
        """
        body, b = self.body, self._builder()
        self.arrived = [Value(body.arguments[i].type) for i in self.places]
        self.sums = [Value(v.type) for v in self.free]
        cotangents = dict(zip(self.free, self.sums, strict=True))
        for i, value in zip(self.places, self.arrived, strict=True):
            out = body.outputs[i]  # one value may go to several positions
            cotangents[out] = b.add(cotangents[out], value) if out in cotangents else value
        varied = [*(body.arguments[i] for i in self.places), *self.free]
        self.listed.made += b.ops
        found = self.differentiate(self.listed, cotangents, varied, self.weights, self.where)
        b = self._builder()
        self.made = [
            found[v] if v in found else b.scalar_like(0, v)
            for v in (body.arguments[i] for i in self.places)
        ]
        self.totals = [found[v] for v in self.free]
        self.after = (*self.listed.made, *b.ops)

    def _builder(self) -> Builder:
        return Builder(self.weights, gradient_origin(self.op))

    # -- values available in the backward loop ----------------------------------------------------

    @cached_property
    def makers(self) -> dict[Value, Op]:
        """The forward ops of an iteration by the values that they define."""
        return {v: op for op in self.listed.ops for v in op.results}

    @cached_property
    def steps(self) -> dict[Value, Value]:
        """The body's arguments that are counters, with their increments."""
        found = {}
        for given, made in zip(self.body.arguments, self.body.outputs, strict=True):
            op = self.makers.get(made)
            if op is None or op.kind != "core.add" or not given.type.dtype.is_integer:
                continue
            rest = [v for v in op.operands if v is not given]
            if len(rest) == 1 and not given.type.rank and self._is_fixed(rest[0]):
                found[given] = rest[0]
        return found

    def _is_fixed(self, value: Value) -> bool:
        maker = self.makers.get(value)
        outside = maker is None and value not in self.body.arguments
        return outside or (maker is not None and maker.kind == "core.constant")

    @cached_property
    def counter(self) -> int | None:
        """The position of a carried counter 0, 1, 2..., if there is one."""
        outer = {v: op for op in self.around for v in op.results}
        for i, value in enumerate(self.body.arguments):
            if value not in self.steps or value.type.dtype.name not in ("i32", "i64"):
                continue  # a counter that wraps cannot be an index
            by = self._number(self.steps[value], self.makers)
            if by == 1 and self._number(self.op.operands[i], outer) == 0:
                return i
        return None

    def _number(self, value: Value, makers: Mapping[Value, Op]) -> int | None:
        maker = makers.get(value)
        if maker is None or maker.kind != "core.constant":
            return None
        return int(constant_array(maker, self.weights))

    def _is_there(self, value: Value) -> bool:
        """Return whether a value of an iteration follows from outer values and counters."""
        if value not in self.there:
            self.there[value] = self._made_again(value)
        return self.there[value]

    def _made_again(self, value: Value) -> bool:
        if value in self.body.arguments:
            return value in self.steps
        op = self.makers.get(value)
        if op is None:
            return True
        if op.regions or has_trait(op, "random"):
            return False
        light = _moves(op) or all(v.type.elements <= _FEW for v in op.results)
        return light and all(map(self._is_there, op.operands))

    def _need(self, value: Value) -> None:
        """Keep a forward value of the body, or the value it is a form of, if necessary."""
        bound = value in self.makers or value in self.body.arguments
        if not bound or self._is_there(value):
            return
        op = self.makers.get(value)
        if op is not None and (has_trait(op, "shape_only") or _widens(op)):
            self._need(op.operands[0])
        elif value not in self.kept:
            shape = (self.trips, *value.type.shape)
            called = value.name or (op.kind.split(".")[1] if op is not None else "carried")
            self.kept[value] = Value(tensor(shape, value.type.dtype), f"kept_{called}")

    # -- the two loops ----------------------------------------------------------------------------

    def _keeping(self) -> list[Op]:
        """Return the loop with a stack for each kept value after its results."""
        op, body = self.op, self.body
        if not self.kept:
            return []
        before, b = Builder(self.weights), Builder(self.weights)
        first = [
            before.expand(before.constant(0, v.type.dtype), v.type.shape)
            for v in self.kept.values()
        ]
        trip, count = None, []
        if self.counter is None:
            trip = Value(tensor((), "i32"))
            before_zero = before.constant(0, "i32")
            b.origin = self._kept_origin(op)
            count = [b.add(trip, b.constant(1, "i32"))]
        at = trip or body.arguments[self.counter or 0]
        stacks = [Value(v.type, v.name) for v in self.kept.values()]
        filled = []
        for value, stack in zip(self.kept, stacks, strict=True):
            b.origin = self._kept_origin(self.makers.get(value, op))
            part = b.reshape(value, shape=(1, *value.type.shape))
            filled.append(b.dynamic_update_slice(stack, part, *_starts(b, at, stack)))
        more = [*([trip] if trip else []), *stacks]
        outputs = [self.listed.changed.get(v, v) for v in body.outputs]
        region = Block(
            (*body.arguments, *more), (*self.listed.ops, *b.ops), (*outputs, *count, *filled)
        )
        test = clone_block(op.regions[0])
        test = test.with_(arguments=(*test.arguments, *(Value(v.type) for v in more)))
        operands = (*op.operands, *([before_zero] if trip else []), *first)
        results = (*op.results, *([Value(trip.type)] if trip else []), *self.kept.values())
        return [*before.ops, Op(LOOP, operands, results, op.attributes, (test, region))]

    def _kept_origin(self, of: Op) -> Origin | None:
        return None if of.origin is None else Origin.derived(KEEPS, [of.origin])

    def _backward(self) -> tuple[list[Op], list[tuple[Value, Value]]]:
        """Return the loop over the iterations from the last to the first."""
        op, body, b = self.op, self.body, self._builder()
        whole = self.trips - 1
        kind = "i32" if self.counter is None else body.arguments[self.counter].type.dtype
        trip = Value(tensor((), kind))
        again = _Again(self, b, trip)
        known = {v: again.value(v) for v in dict.fromkeys(self._read())}
        ops = [*b.ops, *(o.substitute(known) for o in self.after)]
        tail = self._builder()
        before = tail.sub(trip, tail.constant(1, kind))
        read = [i for i, v in enumerate(self.totals) if v is not self.sums[i]]
        made = [known.get(v, v) for v in (*self.made, *(self.totals[i] for i in read))]
        region = Block(
            (trip, *self.arrived, *(self.sums[i] for i in read)), (*ops, *tail.ops), (before, *made)
        )
        tested = tuple(Value(v.type) for v in region.arguments)
        test = self._builder()
        more = test.ge(tested[0], test.constant(0, kind))
        start = Builder(self.weights)
        operands = [
            start.constant(whole, kind),
            *(
                self.found.get(op.results[i]) or start.scalar_like(0, op.results[i])
                for i in self.places
            ),
            *(start.scalar_like(0, self.sums[i]) for i in read),
        ]
        names = [
            None,
            *(_named(op.operands[i]) for i in self.places),
            *(_named(self.free[i]) for i in read),
        ]
        regions = (Block(tested, tuple(test.ops), (more,)), region)
        results = start.op(LOOP, operands, names, regions, trips=self.trips)
        of = [*(op.operands[i] for i in self.places), *(self.free[i] for i in read)]
        pairs = zip(of, results[1:], strict=True)
        return start.ops, [(value, made) for value, made in pairs if value in self.wanted]

    def _read(self) -> list[Value]:
        """Return the forward values of an iteration that its gradient reads."""
        own = set(self.makers) | set(self.body.arguments)
        read = [v for op in self.after for v in op.uses()]
        return [v for v in (*read, *self.made, *self.totals) if v in own]


@dataclass
class _Again:
    """The forward values of iteration ``trip`` in the backward loop, whose ops go to ``b``."""

    of: _Reversal
    b: Builder
    trip: Value
    known: dict[Value, Value] = field(default_factory=dict)

    def value(self, value: Value) -> Value:
        if value not in self.known:
            self.known[value] = self._made(value)
        return self.known[value]

    def _made(self, value: Value) -> Value:
        of, b = self.of, self.b
        if value in of.kept:
            stack = of.kept[value]
            sizes = (1, *value.type.shape)
            part = b.dynamic_slice(stack, *_starts(b, self.trip, stack), sizes=sizes)
            return b.reshape(part, shape=value.type.shape)
        if value in of.body.arguments:
            return self._counted(value)
        op = of.makers.get(value)
        if op is None:
            return value
        operands = tuple(self.value(v) for v in op.operands)
        results = tuple(Value(v.type, v.name) for v in op.results)
        origin = op.origin and Origin.derived("computed again", [op.origin])
        b.ops.append(op.with_(operands=operands, results=results, origin=origin))
        self.known.update(zip(op.results, results, strict=True))
        return self.known[value]

    def _counted(self, value: Value) -> Value:
        """Return the value of a counter in this iteration."""
        of, b = self.of, self.b
        place = of.body.arguments.index(value)
        if place == of.counter:
            return self.trip
        kind = value.type.dtype
        trip = self.trip if self.trip.type.dtype is kind else b.cast(self.trip, dtype=kind)
        return b.add(of.op.operands[place], b.mul(trip, self.value(of.steps[value])))


def _starts(b: Builder, trip: Value, stack: Value) -> list[Value]:
    """Return the start indices of an iteration's slice in a stack."""
    rest = stack.type.rank - 1
    zero = [b.constant(0, trip.type.dtype)] if rest else []
    return [trip, *zero * rest]


def _widens(op: Op) -> bool:
    """Return whether an op casts to a dtype that represents all values of the old one."""
    if op.kind != "core.cast":
        return False
    old, new = op.operands[0].type.dtype, op.result.type.dtype
    exact = old.kind == "bool" or (old.is_float and new.is_float)
    return exact and old.bits < new.bits


def _named(value: Value) -> str | None:
    return f"d_{value.name}" if value.name else None
