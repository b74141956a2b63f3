"""Check of the backward pass as a whole: the slope of the loss in f64.

Single rewrites are compared with numerical derivatives of their ops (`debug.gradients`).  This
check finds errors that no rewrite mentions, such as a missing rewrite for an op or a sum given to
the wrong parameter: ``sum <gradient, d>`` must equal the central difference of the loss along a
direction d of all parameters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.debug.declared_slopes import is_declared, with_declared_slopes
from core_compiler.debug.gradients import SEED, duplicate_targets, replaces_elements
from core_compiler.debug.wide import F64Evaluator, widened
from core_compiler.ir import Block, Module, Op, Value
from core_compiler.ir.events import CheckRecord
from core_compiler.ir.weights import WeightStore
from core_compiler.ops.builder import Builder
from core_compiler.support.errors import InternalError
from core_compiler.training.graph.roles import Roles

#: The step along a direction in which every parameter moves by about its own size.
STEP = 1e-5
#: Maximum relative difference of both sides; or 16 times the change caused by another step.
TOLERANCE = 1e-5
#: If another step changes more than this, the loss has too many kinks for a verdict.
ROUGH = 1e-2
#: Maximum number of parameters checked one by one after the whole has failed.
MOST = 64

Arrays = dict[Value, np.ndarray]


class LossSlope:
    """The loss of ``before`` and the gradients of ``after``, on the arrays of main's arguments."""

    def __init__(self, before: Module, after: Module, inputs: Sequence[np.ndarray], narrow: Any):
        roles = Roles.of(before.main)
        scaled = roles.result("scaled")
        loss_index = roles.result("loss") if scaled is None else scaled
        assert loss_index is not None
        self.names = {
            before.main.arguments[i]: name
            for i, (role, name, _) in enumerate(roles.arguments)
            if role == "parameter"
        }
        self.wide = F64Evaluator(narrow)
        arguments = before.main.arguments
        self.x: Arrays = {v: widened(np.asarray(a)) for v, a in zip(arguments, inputs, strict=True)}
        loss = before.main.outputs[loss_index]
        self.block = self._declared(
            Block(arguments, _ops_leading_to(before.main.body, loss), (loss,))
        )
        own = Roles.of(after.main).gradients()
        self.wanted = {after.main.arguments[i]: after.main.outputs[o] for i, o in own.items()}
        self.backward = after.main.body.with_(outputs=tuple(self.wanted.values()))
        self._begin()

    def _declared(self, block: Block) -> Block:
        """Return ``block`` with declared slopes: where updates of a scatter meet, too."""
        block = block.with_(ops=tuple(o for op in block.ops for o in with_declared_slopes(op)))
        found = [op for op in block.ops if replaces_elements(op) and op.result.type.dtype.is_float]
        if not found:
            return block
        wanted = block.with_(outputs=tuple(op.operands[1] for op in found))
        indices = self.wide.block(wanted, list(self.x.values()))
        with_duplicates = {
            op
            for op, at in zip(found, indices, strict=True)
            if duplicate_targets(op, at, self.wide).any()
        }
        ops = (
            o
            for op in block.ops
            for o in (_with_all_updates(op) if op in with_duplicates else (op,))
        )
        return block.with_(ops=tuple(ops))

    def _begin(self) -> None:
        """Evaluate the loss and the gradients at the current parameters."""
        arrays = list(self.x.values())
        #: Values behind a stopped gradient do not change.
        self.stopped: Arrays = {}
        stops = [op.result for op in self.block.ops if op.kind == "core.stop_gradient"]
        if stops:
            made = self.wide.block(self.block.with_(outputs=tuple(stops)), arrays)
            self.stopped = dict(zip(stops, made, strict=True))
        made = self.wide.block(self.backward, arrays)
        self.gradients: Arrays = dict(zip(self.wanted, made, strict=True))
        self.here = self.loss({})

    def move(self) -> None:
        """Move to other parameters nearby: a model's own may lie at kinks, as zeros do."""
        self.x |= {v: self.x[v] + 0.1 * d for v, d in self.directions(1).items()}
        self._begin()

    def loss(self, moved: Mapping[Value, np.ndarray]) -> float:
        arrays = [moved.get(v, a) for v, a in self.x.items()]
        (made,) = self.wide.block(self.block, arrays, known=self.stopped or None)
        return float(np.sum(made))

    def directions(self, seed: int) -> Arrays:
        """Return a direction for every parameter, including those with gradient 0."""
        random = np.random.default_rng([SEED, 17, seed])
        made = {}
        for value in self.names:
            x = self.x[value]
            if x.dtype == np.float64:
                size = math.sqrt(float(np.mean(x * x))) if x.size else 0.0
                made[value] = random.standard_normal(x.shape) * (size or 1e-2)
        return made

    def numerical(self, direction: Arrays, step: float) -> tuple[float, float]:
        """Return the slope of the loss, and its bend at a kink (0 for a smooth loss)."""

        def at(t: float) -> float:
            return self.loss({v: self.x[v] + t * d for v, d in direction.items()})

        def sides(h: float) -> tuple[float, float]:
            up, down = at(h), at(-h)
            return (up - down) / (2 * h), ((up - self.here) - (self.here - down)) / h

        (wide, bend), (half, half_bend) = sides(step), sides(step / 2)
        return half + (half - wide) / 3, abs(bend - 2 * half_bend)

    def ours(self, direction: Arrays) -> float:
        return sum(
            float(np.sum(self.gradients[v] * d))
            for v, d in direction.items()
            if v in self.gradients
        )

    def off(self, direction: Arrays) -> tuple[float, float, float, float]:
        """Return both sides, their relative difference, and its bound."""
        (a, bend), (b, _) = (self.numerical(direction, step) for step in (STEP, STEP / 8))
        ours = self.ours(direction)
        floor = 512 * 2.0**-52 * abs(self.here) / STEP / TOLERANCE  # the loss's own rounding
        size = max(abs(b), abs(ours), floor, 1e-300)
        return b, ours, abs(b - ours) / size, max(TOLERANCE, 16 * (abs(a - b) + bend) / size)


def _with_all_updates(op: Op) -> list[Op]:
    """Return ops of a scatter's result that has the slopes of all updates meeting in an element.

    The value is that of the last update, as the ops add the change of the others.
    """
    b = Builder(WeightStore())
    x, indices, updates = op.operands
    moved, zero = b.sub(updates, b.stop_gradient(updates)), b.scalar_like(0.0, x)
    last, every = (
        b.op(op.kind, (zero, indices, moved), **{**op.attributes, "mode": mode})
        for mode in ("set", "add")
    )
    scattered = b.op(op.kind, op.operands, **op.attributes)
    b.add(scattered, b.sub(every, last))
    *ops, result = b.ops
    return [*ops, result.with_(results=op.results)]


def _ops_leading_to(block: Block, value: Value) -> tuple[Op, ...]:
    makers = block.producers()
    found: set[Op] = set()
    work = [value]
    while work:
        op = makers.get(work.pop())
        if op is not None and op not in found:
            found.add(op)
            work += op.uses()
    return tuple(op for op in block.ops if op in found)


def check_loss(
    before: Module, after: Module, inputs: Sequence[np.ndarray], narrow: Any
) -> Iterator[CheckRecord]:
    """Check whether the gradients of all parameters together are the slope of the loss.

    Yields one record.
    """
    started = time.perf_counter()

    def record(verdict: str, **facts: Any) -> CheckRecord:
        spent = time.perf_counter() - started
        return CheckRecord(None, verdict, seconds=spent, kind="results", **facts)

    if any(op.kind == "core.stop_gradient" or is_declared(op) for op in _inner(before)):
        yield record(
            "unchecked", note="gradients stop inside a region: the slope of the loss is not checked"
        )
        return
    try:
        with np.errstate(all="ignore"):
            whole = LossSlope(before, after, inputs, narrow)
            direction = whole.directions(0)
            want, got, off, allowed = whole.off(direction)
            if allowed > ROUGH:
                whole.move()
                want, got, off, allowed = whole.off(direction)
    except (InternalError, KeyError) as problem:
        yield record("unchecked", note=f"the slope of the loss is not evaluated in f64: {problem}")
        return
    if allowed > ROUGH or not math.isfinite(want):
        yield record(
            "unchecked", note="the loss is not smooth enough near the parameters to check its slope"
        )
    elif off <= allowed:
        yield record(
            "within",
            worst_error=off,
            tolerance=allowed,
            note="the gradients match the slope of the loss in f64",
        )
    else:
        with np.errstate(all="ignore"):
            value, want, got, off = _worst(whole, direction, want, got, off)
        name = "all parameters together" if value is None else whole.names[value]
        note = (
            f"the slope of the loss along a direction of {name} is {want:.6g} in f64, "
            f"its gradient gives {got:.6g}"
        )
        yield record(
            "failed", worst_error=off, tolerance=allowed, value=value, old=want, new=got, note=note
        )


def _worst(whole: LossSlope, direction: Arrays, want: float, got: float, off: float):
    """Return the parameter whose gradient has the largest error."""
    worst: tuple[Value | None, float, float, float] = None, want, got, off
    largest = 0.0
    for value, own in list(direction.items())[:MOST]:
        numerical, ours, off, allowed = whole.off({value: own})
        if off > allowed and abs(numerical - ours) > largest:
            largest, worst = abs(numerical - ours), (value, numerical, ours, off)
    return worst


def _inner(module: Module) -> Iterator[Op]:
    """Yield the ops inside regions."""
    top = set(module.main.body.ops)
    return (op for op in module.walk() if op not in top)
