"""Checks of gradient rewrites against numerical derivatives in f64.

An event of ``differentiate`` declares which values it adds to the cotangents of a forward op's
operands (`ir.claims.Gradient`).  For random cotangents g of the results and a random direction d of
the operands, the contribution of the event's ops, ``sum <c, d>``, must equal ``<g, (f(x + h d) -
f(x - h d)) / 2h>``.  Both sides are evaluated in f64, f by the definition of the forward op (for a
composite by its decomposition), so nothing of the rule is trusted.

*Points.*  The recorded values; values near them; normal values of their scale; the same with zeros
among them, if the rule distinguishes cases (a product with one factor 0 is smooth, but not once it
is divided by that factor).  Expensive ops are checked at one point.  Integers (positions, classes,
conditions) do not vary.

*Steps.*  Two steps, h and a fraction of it, and Richardson's extrapolation; for multilinear ops the
difference is exact for any step.  If both differ by more than a smooth function can, the function
has a kink or a jump within the step, or leaves its domain: the cotangent of that result element is
set to 0, so it contributes to neither side (Griewank and Walther, "Evaluating Derivatives", 2008,
chapter 14).  Straight-through estimators are compared with the slopes that they declare.

*Ties.*  The elements set to 0 are compared with the declared subgradient on operands full of ties:
:mod:`core_compiler.debug.ties`.  If torch is imported, all points are also compared with its
autograd for the same op: :mod:`core_compiler.debug.torch_gradients`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core_compiler.debug.declared_slopes import with_declared_slopes
from core_compiler.debug.evaluate import Recorded
from core_compiler.debug.wide import F64Evaluator, widened
from core_compiler.ir import Op, Rewrite, TensorType, Value
from core_compiler.ir.claims import Gradient
from core_compiler.ops import typed
from core_compiler.ops.base import view
from core_compiler.ops.costs import cost
from core_compiler.ops.traits import has_trait
from core_compiler.support.errors import InternalError

#: Maximum difference of both sides, relative to the norm of the summed terms.
SLOPE = 1e-6
#: Steps h; the first one that leaves most elements smooth is used.
STEPS = (1e-4, 1e-6)
#: The second step as a fraction of the first, (3 - sqrt 5) / 2.  With an integer ratio, a remainder
#: that wraps many times within the step would look smooth.
PART = 0.3819660112501051
#: Maximum relative difference of both difference quotients of a smooth function.
KINK = 1e-5
#: Ops with more flops (a loop: bytes), or on more elements, are checked at one point: so many
#: elements are points enough.
HEAVY, MANY = 20_000_000, 65_536
#: The fraction of elements set to 0, to reach the cases that a rule distinguishes.
ZEROS = 0.2
SCATTERS = frozenset({"core.scatter_along", "core.scatter_nd"})
#: Collective ops of several programs: evaluated alone, all shards hold the same, so a sum over all
#: of them is the number of shards times the slope of one (`ops.gradients.collective`).
SHARED = {
    "core.all_reduce": lambda op: 1 / typed.AllReduce.of(op).shards,
    "core.distribute": lambda op: typed.Distribute.of(op).shards,
}
#: Seeds of points, cotangents and directions.
SEED = 0x67726164
EPSILON = 2.0**-52

Arrays = dict[Value, np.ndarray]


@dataclass(eq=False)
class Point:
    """A point: the varying operands ``x``, cotangents by value, and forward results ``made``.

    ``name`` identifies the point.
    """

    name: str
    x: Arrays
    cotangents: Arrays
    made: Arrays = field(default_factory=dict)


@dataclass(eq=False)
class Slope:
    """A direction at a point, with the numerical and the computed slope.

    ``slopes`` of the results in the direction, the ``step``, both sums, the norm of the terms and
    their rounding error.  ``left_out``: number of result elements at kinks, out of ``count``.
    """

    direction: Arrays
    slopes: Arrays
    step: float
    numerical: float = 0.0
    ours: float = 0.0
    norm: float = 0.0
    rounding: float = 0.0
    left_out: int = 0
    count: int = 0

    @property
    def error(self) -> float:
        """Return the difference of both sums relative to the norm of the terms, minus rounding."""
        off = abs(self.numerical - self.ours)
        if not math.isfinite(off):
            return math.inf
        off = max(0.0, off - self.rounding)
        return off / self.norm if self.norm else (math.inf if off else 0.0)


@dataclass(frozen=True)
class PeerResult:
    """The result of a comparison with a peer.

    The largest ``error``, a ``note``, and the facts of the record if it failed.
    """

    error: float
    note: str
    failure: dict[str, Any] | None = None


class NotEvaluated(Exception):
    """The gradient cannot be evaluated in f64; the message says why."""


class GradientCheck:
    """The check of one event.

    ``values`` are the recorded ones (a mapping); ``narrow`` evaluates ops that f64 says nothing
    about.
    """

    def __init__(self, rewrite: Rewrite, values: Recorded, narrow: Any):
        claim = rewrite.claim
        assert isinstance(claim, Gradient)
        self.rewrite, self.claim, self.values = rewrite, claim, values
        self.wide = F64Evaluator(narrow)
        self.varied = [v for v, _, _ in claim.sums]
        self.ops = [o for op in claim.forward for o in with_declared_slopes(op)]
        self._stops = [o.result for o in self.ops if o.kind == "core.stop_gradient"]
        own = {v for op in claim.forward for v in op.results}
        if any(c in own or c in self.varied for _, c in claim.given):
            raise NotEvaluated("a cotangent is a value of the forward pass itself")
        self._fixed: Arrays = {}
        self._duplicates: Arrays = {}
        self._expensive = self._is_expensive()
        self.scale = math.prod(SHARED[op.kind](op) for op in claim.forward if op.kind in SHARED)

    # -- evaluation ------------------------------------------------------------------------------

    def _is_expensive(self) -> bool:
        work = 0
        for op in self.claim.forward:
            sizes = [
                v.type.elements for v in (*op.uses(), *op.results) if isinstance(v.type, TensorType)
            ]
            if max(sizes, default=0) > MANY:
                return True
            try:
                work += cost(op).flops
            except (InternalError, KeyError):
                loop = typed.While.match(op)
                trips = 1 if loop is None else loop.trips or 1
                work += trips * sum(
                    v.type.bytes
                    for v in (*op.uses(), *op.results)
                    if isinstance(v.type, TensorType)
                )
        return work > HEAVY

    def fixed(self, value: Value) -> np.ndarray:
        """Return the recorded value of an operand that does not vary."""
        if value not in self._fixed:
            try:
                recorded = self.values[value]
            except KeyError as error:
                raise NotEvaluated(str(error)) from None
            if not isinstance(recorded, np.ndarray | np.generic):
                raise NotEvaluated(f"{value} is not a tensor")
            self._fixed[value] = widened(np.asarray(recorded))
        return self._fixed[value]

    def _run(self, ops: Sequence[Op], known: Mapping[Value, np.ndarray]) -> Arrays:
        made: Arrays = dict(known)

        def read(value: Value) -> np.ndarray:
            return made[value] if value in made else self.fixed(value)

        for op in ops:
            if op.results and all(v in made for v in op.results):
                continue
            arrays = [read(v) for v in op.operands]
            outer = {v: read(v) for v in op.uses()} if op.regions else None
            try:
                results = self.wide.op(op, arrays, outer)
            except InternalError as error:
                raise NotEvaluated(str(error)) from None
            made.update(zip(op.results, results, strict=True))
        return made

    def forward(self, x: Arrays) -> Arrays:
        """Return the results of the forward ops for ``x``: operands, and stopped values."""
        with np.errstate(all="ignore"):
            return self._run(self.ops, x)

    def contributions(self, point: Point) -> Arrays:
        """Return the event's contribution to the cotangent of each varying operand."""
        with np.errstate(all="ignore"):
            made = self._run(self.rewrite.new, {**point.made, **point.cotangents})
            found = {}
            for value, before, after in self.claim.sums:
                if after is None or after is before:
                    found[value] = np.zeros(value.type.shape)
                else:
                    whole = made[after] if after in made else self.fixed(after)
                    found[value] = whole if before is None else whole - point.cotangents[before]
        return found

    # -- points ----------------------------------------------------------------------------------

    def points(self) -> Iterator[Point]:
        """Yield the points to check; for an expensive op only the cheapest sufficient ones."""
        yield self._point("near the recorded values", 1, self._near)
        if not self._expensive:
            yield self._point("the recorded values", 0, lambda v, random: self.fixed(v))
            yield self._point("normal values", 2, self._normal)
            if any(_distinguishes(op) for op in self.rewrite.new):
                yield self._point("normal values, some of them 0", 3, self._sparse)

    def point_of(self, name: str, x: Arrays, seed: int = 4) -> Point:
        """Return the point with operands ``x``."""
        return self._point(name, seed, lambda v, random: x[v])

    def _point(self, name: str, seed: int, draw: Any) -> Point:
        random = np.random.default_rng([SEED, seed])
        x = {v: draw(v, random) for v in self.varied}
        made = self.forward(x)
        cotangents: Arrays = {}
        wanted = [c for _, c in self.claim.given]
        wanted += [before for _, before, _ in self.claim.sums if before is not None]
        for value in wanted:
            if value not in cotangents:
                cotangents[value] = random.standard_normal(value.type.shape)
        return Point(name, x, cotangents, made)

    def _near(self, value: Value, random: np.random.Generator) -> np.ndarray:
        array = self.fixed(value)
        size = _scale(array)
        with np.errstate(invalid="ignore"):
            return array * (1 + 0.25 * random.uniform(-1, 1, array.shape)) + (
                1e-3 * size * random.uniform(-1, 1, array.shape)
            )

    def _normal(self, value: Value, random: np.random.Generator) -> np.ndarray:
        array = self.fixed(value)
        return min(_scale(array), 4.0) * random.standard_normal(array.shape)

    def _sparse(self, value: Value, random: np.random.Generator) -> np.ndarray:
        made = self._normal(value, random)
        return np.where(random.random(made.shape) < ZEROS, 0.0, made)

    # -- slopes ----------------------------------------------------------------------------------

    def slope(self, point: Point, seed: int, only: Value | None = None) -> Slope:
        """Return both sums in a random direction (of one operand only, if given)."""
        random = np.random.default_rng([SEED, 7, seed])
        direction = {v: self._direction(point.x[v], random) for v in self.varied}
        if only is not None:
            direction = {v: d if v is only else np.zeros_like(d) for v, d in direction.items()}
        return self._finite(point, self.along(point, direction))

    def _direction(self, x: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return a random direction scaled by each element: values near 0 keep their sign."""
        with np.errstate(invalid="ignore"):
            size = np.abs(x) + 1e-2 * _scale(x)
        return np.where(np.isfinite(x), random.standard_normal(x.shape) * size, 0.0)

    def along(self, point: Point, direction: Arrays) -> Slope:
        """Return the slopes of the results along ``direction``, without elements at kinks.

        The cotangents of those elements in ``point`` become 0.
        """
        best: tuple[Slope, dict[Value, np.ndarray]] | None = None
        for step in STEPS:
            made = self._differences(point, direction, step)
            if best is None or made[0].left_out < best[0].left_out:
                best = made
            if made[0].left_out * 2 <= made[0].count:
                break
        assert best is not None
        slope, left_out = best
        for result, cotangent in self.claim.given:
            if result in left_out:
                held = point.cotangents[cotangent]
                point.cotangents[cotangent] = np.where(left_out[result], 0.0, held)
        return slope

    def _differences(self, point: Point, direction: Arrays, step: float):
        """Return the slopes with a step, and the elements without a slope."""
        exact = all(has_trait(op, "multilinear") for op in self.claim.forward)
        wide = self._difference(point, direction, 0.5 if exact else step)
        near = wide if exact else self._difference(point, direction, PART * step)
        slopes: Arrays = {}
        bad: dict[Value, np.ndarray] = {}
        for result, _ in self.claim.given:
            (a, bend), (b, near_bend) = wide[result], near[result]
            with np.errstate(all="ignore"):
                y = point.made[result]
                size = np.max(np.abs(y), where=np.isfinite(y), initial=0.0)
                allowed = KINK * np.maximum(np.abs(a), np.abs(b)) + 64 * EPSILON * size / step
                kink = ~np.isfinite(a) | ~np.isfinite(b)
                if not exact:
                    # A kink within the step shows in the slopes, a kink at x itself in the second
                    # differences: for a smooth function they shrink with the step, at a kink they
                    # do not.
                    kink |= np.abs(a - b) > allowed
                    kink |= np.abs(bend - near_bend / PART) > allowed
                slopes[result] = np.where(kink, 0.0, _extrapolated(a, b))
            bad[result] = kink | self._duplicate_targets(result)
        count = sum(b.size for b in bad.values())
        left_out = int(sum(b.sum() for b in bad.values()))
        used = 0.5 if exact else step
        return Slope(direction, slopes, used, left_out=left_out, count=count), bad

    def _duplicate_targets(self, result: Value) -> np.ndarray | bool:
        """Return the scatter result elements that several updates replace.

        Their declared gradient is compared in :mod:`core_compiler.debug.ties`.
        """
        op = next(op for op in self.claim.forward if result in op.results)
        if not replaces_elements(op):
            return False
        if result not in self._duplicates:
            self._duplicates[result] = duplicate_targets(op, self.fixed(op.operands[1]), self.wide)
        return self._duplicates[result]

    def _difference(
        self, point: Point, direction: Arrays, step: float
    ) -> dict[Value, tuple[np.ndarray, np.ndarray]]:
        """Return each result's central difference, and the difference of its one-sided slopes."""
        held = {v: point.made[v] for v in self._stops}
        ahead = self.forward({v: x + step * direction[v] for v, x in point.x.items()} | held)
        back = self.forward({v: x - step * direction[v] for v, x in point.x.items()} | held)
        made = {}
        with np.errstate(all="ignore"):
            for result, _ in self.claim.given:
                up, down, centre = ahead[result], back[result], point.made[result]
                slope, bend = (up - down) / (2 * step), ((up - centre) - (centre - down)) / step
                made[result] = slope, bend
        return made

    def _finite(self, point: Point, slope: Slope) -> Slope:
        """Return the slope with both sums.

        Operands whose contribution is not finite because they lie outside the domain do not vary.
        """
        for _ in range(2):
            found = self.contributions(point)
            lost = {
                v: ~np.isfinite(c) & (slope.direction[v] != 0)
                for v, c in found.items()
                if c.shape == v.type.shape
            }
            if not slope.left_out or not any(b.any() for b in lost.values()):
                break
            direction = {
                v: np.where(lost[v], 0.0, d) if v in lost else d for v, d in slope.direction.items()
            }
            slope = self.along(point, direction)
        self.sums(point, slope, found)
        return slope

    def sums(self, point: Point, slope: Slope, found: Arrays) -> None:
        """Store both sums in ``slope``."""
        terms = []
        noise = 0.0
        for result, cotangent in self.claim.given:
            g, y = point.cotangents[cotangent], point.made[result]
            terms.append((g * slope.slopes[result]).reshape(-1) * self.scale)
            counted = np.where(np.isfinite(y) & (g != 0), y, 0.0)
            noise += float(np.sum((g * counted) ** 2))
        slope.numerical = float(sum(map(np.sum, terms)))
        slope.norm = math.sqrt(sum(float(np.sum(t * t)) for t in terms))
        ours, held = 0.0, 0.0
        for value, before, _ in self.claim.sums:
            c, d = found[value], slope.direction[value]
            if c.shape != d.shape:
                ours = math.nan
                continue
            moved = d != 0
            ours += float(np.sum(c * d, where=moved))
            held += float(np.sum((c * d) ** 2, where=moved & np.isfinite(c)))
            if before is not None:
                held += float(np.sum((point.cotangents[before] * d) ** 2))
        slope.ours = ours
        slope.rounding = 64 * EPSILON * (math.sqrt(noise) / slope.step + math.sqrt(held))

    # -- the worst element -----------------------------------------------------------------------

    def worst(self, point: Point, slope: Slope) -> tuple[Value, tuple[int, ...], float, float]:
        """Return the operand and element with the largest error, the numerical slope and ours.

        The element is found by bisection over the varying elements.
        """
        found = self.contributions(point)
        value = max(self.varied, key=lambda v: self._off(point, slope, found, v))
        shape = value.type.shape
        if found[value].shape != shape:
            return value, (), math.nan, math.nan
        inside = np.flatnonzero(slope.direction[value])
        off = self._off(point, slope, found, value)
        while len(inside) > 1:
            part = inside[: len(inside) // 2]
            part_error = self._off(point, slope, found, value, part)
            rest = inside[len(part) :]
            rest_error = (
                self._off(point, slope, found, value, rest) if part_error < off / 2 else 0.0
            )
            inside, off = (part, part_error) if part_error >= rest_error else (rest, rest_error)
        flat_index = int(inside[0]) if len(inside) else 0
        index = tuple(map(int, np.unravel_index(flat_index, shape))) if shape else ()
        size = float(np.abs(slope.direction[value].reshape(-1)[flat_index])) or 1.0
        one = np.zeros(shape).reshape(-1)
        one[flat_index] = size
        want = self._numerical(point, {value: one.reshape(shape)}, slope) / size
        return value, index, want, float(found[value].reshape(-1)[flat_index])

    def _off(self, point, slope, found, value: Value, part: np.ndarray | None = None) -> float:
        whole = slope.direction[value]
        if part is None:
            direction = whole
        else:
            flat = np.zeros(whole.size)
            flat[part] = whole.reshape(-1)[part]
            direction = flat.reshape(whole.shape)
        if found[value].shape != whole.shape:
            return math.inf
        with np.errstate(invalid="ignore", over="ignore"):  # judged below
            ours = float(np.sum(found[value] * direction, where=direction != 0))
        off = abs(self._numerical(point, {value: direction}, slope) - ours)
        return off if math.isfinite(off) else math.inf

    def _numerical(self, point: Point, direction: Arrays, slope: Slope) -> float:
        whole = {v: direction.get(v, np.zeros(v.type.shape)) for v in self.varied}
        a = self._difference(point, whole, slope.step)
        b = self._difference(point, whole, PART * slope.step)
        total = 0.0
        for result, cotangent in self.claim.given:
            g = point.cotangents[cotangent]
            d = np.where(g == 0, 0.0, _extrapolated(a[result][0], b[result][0]))
            total += float(np.sum(g * d))
        return total * self.scale


def _distinguishes(op: Op) -> bool:
    """Return whether an op distinguishes cases."""
    return op.kind == "core.select" or has_trait(op, "comparison")


def replaces_elements(op: Op) -> bool:
    """Return whether an op is a scatter whose updates replace the elements that they meet."""
    return op.kind in SCATTERS and view(op).mode == "set"


def duplicate_targets(op: Op, indices: np.ndarray, wide: F64Evaluator) -> np.ndarray:
    """Return the elements of such a scatter's result that several updates meet.

    The last update counts, and by convention, as in torch, each of them gets the cotangent, which
    is not a derivative.
    """
    x, _, updates = op.operands
    counting_op = op.with_(attributes={**op.attributes, "mode": "add"})
    (count,) = wide.op(counting_op, [np.zeros(x.type.shape), indices, np.ones(updates.type.shape)])
    return count > 1


def _extrapolated(wide: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return the slope without the error that grows with the square of the step."""
    square = PART * PART
    return (near - square * wide) / (1 - square)


def _scale(array: np.ndarray) -> float:
    """Return the largest finite magnitude in an array, or 1 if all elements are 0."""
    size = float(np.max(np.abs(array), where=np.isfinite(array), initial=0.0))
    return size or 1.0


# -- the verdict -----------------------------------------------------------------------------------


def failure(
    check: GradientCheck,
    value: Value,
    index: tuple[int, ...],
    want: float,
    got: float,
    error: float,
    peer: str,
) -> dict[str, Any]:
    """Return the facts of a failed record: the gradient of ``value`` is ``got``, not ``want``.

    ``want`` is the value of ``peer``.
    """
    op = check.claim.forward[-1]
    number = op.uses().index(value)
    subject = f"operand {number}" if value in op.operands else f"{value}, which its region reads,"
    at = f" at element {list(index)}" if index else ""
    note = f"the gradient of {op.kind} for {subject}{at} is {got:.6g}, {peer} is {want:.6g}"
    return {
        "worst_error": error,
        "tolerance": SLOPE,
        "value": value,
        "index": index,
        "old": want,
        "new": got,
        "note": note,
    }
