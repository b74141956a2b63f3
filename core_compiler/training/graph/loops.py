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
from core_compiler.training.graph.program import KEEP_RULE, LOOP, CodeList, active, gradient_origin

#: Function of a program, cotangents and varied values that returns the cotangents of the latter.
Differentiate = Callable[..., Mapping[Value, Value]]

#: Maximum number of elements of a result that is recomputed from counters.
_MAX_RECOMPUTED_ELEMENTS = 256


def _only_moves_data(op: Op) -> bool:
    """Return whether an op only moves or creates data, so that it can be recomputed."""
    return not op.operands or has_trait(op, "view", "partial_read")


@dataclass(frozen=True)
class LoopGradient:
    """The gradient of a loop.

    ``replacement`` are the ops that replace the loop (none if it stays). ``backward`` are the ops
    of the gradient. ``cotangents`` are added to those of outer values. ``note`` says what is kept.
    """

    replacement: Sequence[Op]
    backward: Sequence[Op]
    cotangents: Sequence[tuple[Value, Value]]
    note: str = ""


def differentiate_loop(
    op: Op,
    surrounding_ops: Sequence[Op],
    found: Mapping[Value, Value],
    wanted: set[Value],
    weights: WeightStore | None,
    where: str,
    differentiate: Differentiate,
) -> LoopGradient:
    """Return the gradient of the loop ``op`` of ``surrounding_ops``, whose trip count is known.

    ``found`` has the cotangents of its results. ``wanted`` are the outer values whose cotangents
    are requested. ``differentiate`` builds the gradient of its body
    (:func:`~core_compiler.training.graph.autodiff.differentiate`). Raise a UserError that names the
    ops of its body without a gradient.
    """
    trips = typed.While.of(op).trips
    assert trips is not None
    if trips == 0:
        pairs = zip(op.operands, op.results, strict=True)
        return LoopGradient((), (), [(v, found[r]) for v, r in pairs if v in wanted and r in found])
    return _LoopReversal(
        op, trips, surrounding_ops, found, wanted, weights, where, differentiate
    ).run()


@dataclass
class _LoopReversal:
    op: Op
    trips: int
    surrounding_ops: Sequence[Op]
    found: Mapping[Value, Value]
    wanted: set[Value]
    weights: WeightStore | None
    where: str
    differentiate: Differentiate
    #: Value kept in each iteration -> its stack, outside the loop.
    kept: dict[Value, Value] = field(default_factory=dict)
    #: Whether each value of an iteration can be recomputed from outer values and counters.
    recomputable: dict[Value, bool] = field(default_factory=dict)

    def run(self) -> LoopGradient:
        self.body = clone_block(self.op.regions[1])
        self.free = [v for v in self.body.free_values() if v in self.wanted]
        self.positions = self._active_positions()
        if not self.positions:  # the gradient passes through no carried value
            return LoopGradient((), (), ())
        self.listed = CodeList(list(self.body.ops), self.weights)
        self._differentiate_body()
        for value in dict.fromkeys(v for op in self.after for v in op.uses()):
            self._keep(value)
        replacement = self._build_replacement()
        backward, cotangents = self._backward()
        kept = sum(v.type.bytes for v in self.kept) * self.trips
        note = f"{len(self.kept)} values of each iteration, {kept:,} bytes"
        return LoopGradient(replacement, backward, cotangents, note)

    def _active_positions(self) -> list[int]:
        """Return the positions of the carried values that a cotangent passes through."""
        op, body = self.op, self.body
        reached = {i for i, v in enumerate(op.operands) if v in self.wanted}
        while True:
            given = [*(body.arguments[i] for i in reached), *self.free]
            on_path = active(body.ops, given, body.outputs)
            added = {i for i, v in enumerate(body.outputs) if v in on_path} - reached
            if not added:
                break
            reached |= added
        needed = {i for i in reached if op.results[i] in self.found}
        while True:
            needed_outputs = [body.outputs[i] for i in needed]
            on_path = active(
                body.ops, [*(body.arguments[i] for i in reached), *self.free], needed_outputs
            )
            added = {i for i in reached if body.arguments[i] in on_path} - needed
            if not added:
                return sorted(needed)
            needed |= added

    def _differentiate_body(self) -> None:
        """Differentiate one iteration.

        Sets ``after``, the forward ops, and ``made``, the cotangents of the arguments at
        ``positions`` and the sums of ``free``.
        """
        body, b = self.body, self._builder()
        self.incoming = [Value(body.arguments[i].type) for i in self.positions]
        self.sums = [Value(v.type) for v in self.free]
        cotangents = dict(zip(self.free, self.sums, strict=True))
        for i, value in zip(self.positions, self.incoming, strict=True):
            out = body.outputs[i]  # one value may go to several positions
            cotangents[out] = b.add(cotangents[out], value) if out in cotangents else value
        varied = [*(body.arguments[i] for i in self.positions), *self.free]
        self.listed.made += b.ops
        found = self.differentiate(self.listed, cotangents, varied, self.weights, self.where)
        b = self._builder()
        self.made = [
            found[v] if v in found else b.scalar_like(0, v)
            for v in (body.arguments[i] for i in self.positions)
        ]
        self.totals = [found[v] for v in self.free]
        self.after = (*self.listed.made, *b.ops)

    def _builder(self) -> Builder:
        return Builder(self.weights, gradient_origin(self.op))

    # -- values available in the backward loop ----------------------------------------------------

    @cached_property
    def producers(self) -> dict[Value, Op]:
        """The forward ops of an iteration by the values that they define."""
        return {v: op for op in self.listed.ops for v in op.results}

    @cached_property
    def increments(self) -> dict[Value, Value]:
        """The body's arguments that are counters, with their increments."""
        found = {}
        for given, made in zip(self.body.arguments, self.body.outputs, strict=True):
            op = self.producers.get(made)
            if op is None or op.kind != "core.add" or not given.type.dtype.is_integer:
                continue
            others = [v for v in op.operands if v is not given]
            if len(others) == 1 and not given.type.rank and self._is_fixed(others[0]):
                found[given] = others[0]
        return found

    def _is_fixed(self, value: Value) -> bool:
        producer = self.producers.get(value)
        outside = producer is None and value not in self.body.arguments
        return outside or (producer is not None and producer.kind == "core.constant")

    @cached_property
    def counter(self) -> int | None:
        """The position of a carried counter 0, 1, 2..., if there is one."""
        outer = {v: op for op in self.surrounding_ops for v in op.results}
        for i, value in enumerate(self.body.arguments):
            if value not in self.increments or value.type.dtype.name not in ("i32", "i64"):
                continue  # a counter that wraps cannot be an index
            increment = self._constant_value(self.increments[value], self.producers)
            if increment == 1 and self._constant_value(self.op.operands[i], outer) == 0:
                return i
        return None

    def _constant_value(self, value: Value, producers: Mapping[Value, Op]) -> int | None:
        producer = producers.get(value)
        if producer is None or producer.kind != "core.constant":
            return None
        return int(constant_array(producer, self.weights))

    def _is_recomputable(self, value: Value) -> bool:
        """Return whether a value of an iteration follows from outer values and counters."""
        if value not in self.recomputable:
            self.recomputable[value] = self._can_recompute(value)
        return self.recomputable[value]

    def _can_recompute(self, value: Value) -> bool:
        if value in self.body.arguments:
            return value in self.increments
        op = self.producers.get(value)
        if op is None:
            return True
        if op.regions or has_trait(op, "random"):
            return False
        is_cheap = _only_moves_data(op) or all(
            v.type.elements <= _MAX_RECOMPUTED_ELEMENTS for v in op.results
        )
        return is_cheap and all(map(self._is_recomputable, op.operands))

    def _keep(self, value: Value) -> None:
        """Keep a forward value of the body, or the value it is a form of, if necessary."""
        bound = value in self.producers or value in self.body.arguments
        if not bound or self._is_recomputable(value):
            return
        op = self.producers.get(value)
        if op is not None and (has_trait(op, "shape_only") or _widens(op)):
            self._keep(op.operands[0])
        elif value not in self.kept:
            shape = (self.trips, *value.type.shape)
            called = value.name or (op.kind.split(".")[1] if op is not None else "carried")
            self.kept[value] = Value(tensor(shape, value.type.dtype), f"kept_{called}")

    # -- the two loops ----------------------------------------------------------------------------

    def _build_replacement(self) -> list[Op]:
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
            b.origin = self._kept_origin(self.producers.get(value, op))
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
        return None if of.origin is None else Origin.derived(KEEP_RULE, [of.origin])

    def _backward(self) -> tuple[list[Op], list[tuple[Value, Value]]]:
        """Return the loop over the iterations from the last to the first."""
        op, body, b = self.op, self.body, self._builder()
        last_trip = self.trips - 1
        kind = "i32" if self.counter is None else body.arguments[self.counter].type.dtype
        trip = Value(tensor((), kind))
        recomputed = _Recomputation(self, b, trip)
        known = {v: recomputed.value(v) for v in dict.fromkeys(self._forward_reads())}
        ops = [*b.ops, *(o.substitute(known) for o in self.after)]
        tail = self._builder()
        before = tail.sub(trip, tail.constant(1, kind))
        read = [i for i, v in enumerate(self.totals) if v is not self.sums[i]]
        made = [known.get(v, v) for v in (*self.made, *(self.totals[i] for i in read))]
        region = Block(
            (trip, *self.incoming, *(self.sums[i] for i in read)),
            (*ops, *tail.ops),
            (before, *made),
        )
        test_arguments = tuple(Value(v.type) for v in region.arguments)
        test = self._builder()
        more = test.ge(test_arguments[0], test.constant(0, kind))
        start = Builder(self.weights)
        operands = [
            start.constant(last_trip, kind),
            *(
                self.found.get(op.results[i]) or start.scalar_like(0, op.results[i])
                for i in self.positions
            ),
            *(start.scalar_like(0, self.sums[i]) for i in read),
        ]
        names = [
            None,
            *(_cotangent_name(op.operands[i]) for i in self.positions),
            *(_cotangent_name(self.free[i]) for i in read),
        ]
        regions = (Block(test_arguments, tuple(test.ops), (more,)), region)
        results = start.op(LOOP, operands, names, regions, trips=self.trips)
        targets = [*(op.operands[i] for i in self.positions), *(self.free[i] for i in read)]
        pairs = zip(targets, results[1:], strict=True)
        return start.ops, [(value, made) for value, made in pairs if value in self.wanted]

    def _forward_reads(self) -> list[Value]:
        """Return the forward values of an iteration that its gradient reads."""
        own = set(self.producers) | set(self.body.arguments)
        read = [v for op in self.after for v in op.uses()]
        return [v for v in (*read, *self.made, *self.totals) if v in own]


@dataclass
class _Recomputation:
    """The forward values of iteration ``trip`` in the backward loop, whose ops go to ``b``."""

    loop: _LoopReversal
    b: Builder
    trip: Value
    known: dict[Value, Value] = field(default_factory=dict)

    def value(self, value: Value) -> Value:
        if value not in self.known:
            self.known[value] = self._build(value)
        return self.known[value]

    def _build(self, value: Value) -> Value:
        loop, b = self.loop, self.b
        if value in loop.kept:
            stack = loop.kept[value]
            sizes = (1, *value.type.shape)
            part = b.dynamic_slice(stack, *_starts(b, self.trip, stack), sizes=sizes)
            return b.reshape(part, shape=value.type.shape)
        if value in loop.body.arguments:
            return self._counter_value(value)
        op = loop.producers.get(value)
        if op is None:
            return value
        operands = tuple(self.value(v) for v in op.operands)
        results = tuple(Value(v.type, v.name) for v in op.results)
        origin = op.origin and Origin.derived("computed again", [op.origin])
        b.ops.append(op.with_(operands=operands, results=results, origin=origin))
        self.known.update(zip(op.results, results, strict=True))
        return self.known[value]

    def _counter_value(self, value: Value) -> Value:
        """Return the value of a counter in this iteration."""
        loop, b = self.loop, self.b
        position = loop.body.arguments.index(value)
        if position == loop.counter:
            return self.trip
        kind = value.type.dtype
        trip = self.trip if self.trip.type.dtype is kind else b.cast(self.trip, dtype=kind)
        return b.add(loop.op.operands[position], b.mul(trip, self.value(loop.increments[value])))


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


def _cotangent_name(value: Value) -> str | None:
    return f"d_{value.name}" if value.name else None
