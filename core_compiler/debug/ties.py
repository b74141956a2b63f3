"""Check of gradients at non-smooth points, against the subgradient declared for each op.

The conventions are those of torch (docs/training.md).  They are written here a second time, in
NumPy and without the rules: as a formula, or as a way to break ties such that the slope beside the
tie is the subgradient.  Operands are drawn from a few values, so that nearly all elements lie at a
tie, at a bound or at 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from core_compiler.debug.gradients import (
    SCATTERS,
    SEED,
    SLOPE,
    Arrays,
    GradientCheck,
    PeerResult,
    Point,
    failure,
    replaces_elements,
)
from core_compiler.debug.metric import distance
from core_compiler.ir.views import OpView
from core_compiler.ops import typed
from core_compiler.ops.base import view

#: (view of op, operands, result's cotangent) -> the declared contribution to each operand.
Formula = Callable[[Any, Sequence[np.ndarray], np.ndarray], Sequence[np.ndarray | None]]


def _slope(of: Callable[[Any, np.ndarray], np.ndarray]) -> Formula:
    return lambda op, xs, g: [g * of(op, xs[0])]


def _bounds(op: typed.Clamp) -> list[float | None]:
    """Return the bounds of a clamp as its operand's dtype holds them."""
    kind = op.x.type.dtype.numpy
    return [None if n is None else float(np.asarray(n, kind)) for n in (op.low, op.high)]


def _clamp(op: typed.Clamp, x: np.ndarray) -> np.ndarray:
    low, high = _bounds(op)
    inside = np.ones(x.shape, bool)
    if low is not None:
        inside &= (x > low) | ((x == low) & (not op.open))
    if high is not None:
        inside &= (x < high) | ((x == high) & (not op.open))
    return inside.astype(np.float64)


def _hard_sigmoid(op: typed.HardSigmoid, x: np.ndarray) -> np.ndarray:
    y = op.alpha * x + op.beta
    return np.where((y > 0) & (y < 1), op.alpha, 0.0)


def _hard_swish(op: typed.HardSwish, x: np.ndarray) -> np.ndarray:
    return np.where(x <= -3, 0.0, np.where(x >= 3, 1.0, x / 3 + 0.5))


def _elu(op: typed.Elu, x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, 1.0, op.alpha * np.exp(np.minimum(x, 0)))


def _shared(larger: Callable) -> Formula:
    """Share the cotangent between equal operands of max and min."""

    def formula(op, xs, g):
        a, c = xs
        half = np.where(a == c, 0.5, 0.0)
        return [g * np.where(larger(a, c), 1.0, half), g * np.where(larger(c, a), 1.0, half)]

    return formula


def _shared_along(extreme: Callable) -> Formula:
    """Share the cotangent between the elements that equal the extreme of a reduction."""

    def formula(op, xs, g):
        (x,), axes = xs, op.axes
        hits = x == extreme(x, axis=axes, keepdims=True)
        return [hits * np.expand_dims(g, axes) / np.sum(hits, axis=axes, keepdims=True)]

    return formula


def _pow(op: typed.Pow, xs: Sequence[np.ndarray], g: np.ndarray) -> Sequence[np.ndarray]:
    """Return no gradient of the base if the exponent is 0, nor of an exponent that keeps 0 at 0."""
    a, c = xs
    with np.errstate(all="ignore"):
        of_base = np.where(c == 0, 0.0, c * a ** (c - 1))
        of_exponent = np.where((a == 0) & (c >= 0), 0.0, a**c * np.log(a))
    return [g * of_base, g * of_exponent]


def _atan2(op: typed.Atan2, xs: Sequence[np.ndarray], g: np.ndarray) -> Sequence[np.ndarray]:
    """Return no gradient at the origin."""
    y, x = xs
    square = np.where((x == 0) & (y == 0), np.inf, x * x + y * y)
    return [g * x / square, -g * y / square]


def _standard_deviation(op: typed.StandardDeviation, xs: Sequence[np.ndarray], g: np.ndarray):
    """Return no gradient if all values are equal."""
    (x,), axes = xs, op.axes
    count = math.prod(x.shape[a] for a in axes) - op.correction
    centred = x - np.mean(x, axis=axes, keepdims=True)
    square = np.sum(centred * centred, axis=axes, keepdims=True)
    if count <= 0:
        return [None]
    denominator = np.where(square == 0, np.inf, np.sqrt(square * count))
    return [np.expand_dims(g, axes) * centred / denominator]


def _binary_cross_entropy(op: typed.BinaryCrossEntropy, xs: Sequence[np.ndarray], g: np.ndarray):
    """Return at most 1e12 and 100 where a probability is 0 or 1."""
    x, y = xs
    with np.errstate(divide="ignore"):
        one, other = (np.maximum(f, -100) for f in (np.log(x), np.log1p(-x)))
    return [g * (x - y) / np.maximum((1 - x) * x, 1e-12), g * (other - one)]


def _targets(
    op: typed.Scatter, x: np.ndarray, indices: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return which updates of a scatter are inside of ``x``, and the places of these."""
    at = list(np.moveaxis(indices, -1, 0))
    if isinstance(op, typed.ScatterAlong):
        at = list(np.indices(indices.shape))
        at[op.axis] = indices
    sizes = zip(at, x.shape, strict=False)
    inside = np.logical_and.reduce([(i >= 0) & (i < size) for i, size in sizes])
    return inside, tuple(i[inside] for i in at)


def _scattered(
    op: typed.Scatter, xs: Sequence[np.ndarray], g: np.ndarray
) -> Sequence[np.ndarray | None]:
    """Return the gradients of a scatter that replaces elements, or keeps the extreme ones.

    Replaced elements do not contribute to the result; each update gets the cotangent of its
    element, although only one of several counts.  Equal extremes share it.
    """
    x, indices, updates = xs
    inside, targets = _targets(op, x, indices)
    of_x, of_updates = g.copy(), np.zeros(updates.shape)
    if op.mode == "set":
        of_x[targets] = 0.0
        of_updates[inside] = g[targets]
        return [of_x, None, of_updates]
    result = x.copy()
    _EXTREMES[op.mode].at(result, targets, updates[inside])
    own, theirs = x == result, updates[inside] == result[targets]
    count = own.astype(np.float64)
    np.add.at(count, targets, theirs)
    share = g / np.maximum(count, 1)
    of_updates[inside] = share[targets] * theirs
    return [share * own, None, of_updates]


#: How a scatter keeps the extreme elements, by its mode.
_EXTREMES = {"max": np.maximum, "min": np.minimum}

FORMULAS: dict[str, Formula] = {
    "core.relu": _slope(lambda op, x: (x > 0).astype(np.float64)),
    "core.abs": _slope(lambda op, x: np.sign(x)),
    "core.clamp": _slope(_clamp),
    "core.leaky_relu": _slope(lambda op, x: np.where(x > 0, 1.0, op.slope)),
    "core.hard_sigmoid": _slope(_hard_sigmoid),
    "core.hard_swish": _slope(_hard_swish),
    "core.elu": _slope(_elu),
    "core.max": _shared(np.greater),
    "core.min": _shared(np.less),
    "core.reduce_max": _shared_along(np.max),
    "core.reduce_min": _shared_along(np.min),
    "core.pow": _pow,
    "core.atan2": _atan2,
    "core.standard_deviation": _standard_deviation,
    "core.binary_cross_entropy": _binary_cross_entropy,
    **dict.fromkeys(SCATTERS, _scattered),
}
#: Values for operands of ops with special cases elsewhere than at -1, 0, 1 and 2.
GRIDS: dict[str, set[float]] = {
    "core.hard_swish": {-3.0, -1.0, 0.0, 1.0, 3.0},
    "core.hard_sigmoid": {-3.0, -1.0, 0.0, 1.0, 3.0},
    "core.pow": {0.0, 0.5, 1.0, 2.0},
    "core.binary_cross_entropy": {0.0, 0.25, 0.5, 1.0},
}


def _ordered(op: OpView, x: np.ndarray, sign: int) -> np.ndarray:
    """Make earlier elements a little larger (sign 1) or smaller (-1)."""
    return x - sign * 0.5 * np.arange(x.size).reshape(x.shape) / max(x.size, 1)


def _ordered_along(
    op: typed.Sort | typed.Topk | typed.Scan, x: np.ndarray, sign: int
) -> np.ndarray:
    axis = op.axis
    shape = [1] * x.ndim
    shape[axis] = -1
    return x - sign * 0.5 * np.arange(x.shape[axis]).reshape(shape) / max(x.shape[axis], 1)


#: Breaks ties: (view of op, x) -> x without ties, on the side that counts.
BROKEN: dict[str, Callable[[Any, np.ndarray], np.ndarray]] = {
    # The first of the equal elements in a window gets it.
    "core.max_pool": lambda op, x: _ordered(op, x, 1),
    # Equal elements keep their order.
    "core.sort": lambda op, x: _ordered_along(op, x, 1 if op.descending else -1),
    "core.topk": lambda op, x: _ordered_along(op, x, 1 if op.largest else -1),
    # The last element that reached the extreme, in iteration order.
    "core.cummax": lambda op, x: _ordered_along(op, x, 1 if op.reverse else -1),
    "core.cummin": lambda op, x: _ordered_along(op, x, -1 if op.reverse else 1),
}


def point_of_ties(check: GradientCheck) -> Point | None:
    """Return a point full of ties, or None for smooth ops."""
    op = check.claim.forward[-1]
    if len(check.claim.forward) > 1 or not (op.kind in FORMULAS or op.kind in BROKEN):
        return None
    own: Any = view(op)
    if op.kind in SCATTERS and not (replaces_elements(op) or own.mode in _EXTREMES):  # smooth
        return None
    random = np.random.default_rng([SEED, 11])
    grid = set(GRIDS.get(op.kind, {-1.0, 0.0, 1.0, 2.0}))
    if op.kind == "core.clamp":
        grid |= {bound for bound in _bounds(own) if bound is not None}
    x: Arrays = {}
    for value in check.varied:
        x[value] = random.choice(sorted(grid), value.type.shape)
        other = next((v for v in op.operands if v not in check.varied), None)
        if other is not None and op.kind in ("core.max", "core.min"):
            fixed_values = check.fixed(other)
            x[value] = np.where(
                random.random(value.type.shape) < 0.5, fixed_values, fixed_values + x[value]
            )
        if op.kind == "core.standard_deviation":  # along some slices all elements are equal
            axes = range(x[value].ndim)
            first = tuple(slice(0, 1) if a in own.axes else slice(None) for a in axes)
            slice_ = x[value][first]
            x[value] = np.where(random.random(slice_.shape) < 0.5, slice_, x[value])
    if op.kind in SCATTERS and not replaces_elements(op):
        _tie_updates(own, x, check, random)
    return check.point_of("ties", x)


def _tie_updates(
    op: typed.Scatter, x: Arrays, check: GradientCheck, random: np.random.Generator
) -> None:
    """Let about half of the updates of a scatter equal the elements that they meet."""
    of, indices, updates = (x[v] if v in x else check.fixed(v) for v in op.operands)
    inside, targets = _targets(op, of, indices)
    half = random.random(updates[inside].shape) < 0.5
    if op.operands[2] in x:
        updates[inside] = np.where(half, of[targets], updates[inside])
    else:
        of[targets] = np.where(half, updates[inside], of[targets])


def compare(check: GradientCheck, points: Sequence[Point]) -> PeerResult | None:
    """Compare the event at ties with the declared subgradient; None if there are no ties."""
    point = point_of_ties(check)
    if point is None:
        return None
    forward = check.claim.forward[-1]
    op: OpView = view(forward)
    found = check.contributions(point)
    if op.kind in BROKEN:
        return _compare_beside_ties(check, point, op, found)
    ((_, cotangent),) = check.claim.given
    arrays = [point.x[v] if v in point.x else check.fixed(v) for v in op.operands]
    declared: Arrays = {}
    for value, part in zip(
        op.operands, FORMULAS[op.kind](op, arrays, point.cotangents[cotangent]), strict=True
    ):
        if value in found and part is not None:
            declared[value] = part + declared.get(value, 0.0)
    return _compared(check, declared, found)


def _compare_beside_ties(
    check: GradientCheck, point: Point, op: OpView, found: Arrays
) -> PeerResult:
    """Check that the event's gradient at ties equals that beside them, where it was checked."""
    (value,) = check.varied
    nearby = check.point_of("beside ties", {value: BROKEN[op.kind](op, point.x[value])})
    nearby.cotangents = point.cotangents
    return _compared(check, {value: check.contributions(nearby)[value]}, found)


def _compared(check: GradientCheck, declared: Arrays, found: Arrays) -> PeerResult:
    worst = 0.0
    for value, want in declared.items():
        off = distance(want, found[value])
        if off.relative > SLOPE:
            wanted, got = (math.nan if n is None else n for n in (off.want, off.got))
            return PeerResult(
                off.relative,
                "",
                failure(
                    check,
                    value,
                    off.index,
                    wanted,
                    got,
                    off.relative,
                    "the declared subgradient at ties",
                ),
            )
        worst = max(worst, off.relative)
    return PeerResult(worst, "the declared subgradient at ties")
