"""Gradients of composites that are shorter than those of their decompositions.

Only the composite's operands and result are saved; the forward op keeps its name.
"""

from __future__ import annotations

from math import pi, sqrt

from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import (
    GELU_BETA,
    GELU_KAPPA,
    SELU_ALPHA,
    SELU_SCALE,
    as_dtype,
    others,
    quantised,
    size_of,
    spread,
    widened,
)
from core_compiler.ops.gradients.reduction import over
from core_compiler.ops.gradients.table import NoGradient, Term, gradient, of_one, rounded
from core_compiler.ops.rules import F32, F64, I64

# -- activations -----------------------------------------------------------------------------------


def _slope_of_gelu(op: typed.Gelu, x: Term) -> Term:
    if op.approximate == "tanh":
        bend = (x + x * x * x * GELU_KAPPA) * GELU_BETA
        bend = bend.call("tanh")
        inner = (x * x * (3 * GELU_KAPPA) + 1) * GELU_BETA
        return (bend + 1) * 0.5 + x * 0.5 * (1 - bend * bend) * inner
    share = ((x * sqrt(0.5)).call("erf") + 1) * 0.5
    return share + x * ((x * x * -0.5).call("exp") * (1 / sqrt(2 * pi)))


def _slope_of_silu(op: typed.Silu, x: Term) -> Term:
    share = x.call("sigmoid")
    return share * (x * (1 - share) + 1)


def _slope_of_softplus(op: typed.Softplus, x: Term) -> Term:
    return (x * op.beta).call("sigmoid")


def _slope_of_hard_swish(op: typed.HardSwish, x: Term) -> Term:
    return ((x / 3 + 0.5).where(x > -3)).where(x < 3, 1)


def _slope_of_softsign(op: typed.Softsign, x: Term) -> Term:
    below = x.call("abs") + 1
    return 1 / (below * below)


#: Composite -> (op, x) -> slope; the gradient is dy * slope.
SLOPES = {
    "gelu": _slope_of_gelu,
    "silu": _slope_of_silu,
    "softplus": _slope_of_softplus,
    "hard_swish": _slope_of_hard_swish,
    "softsign": _slope_of_softsign,
}


def _register(name: str, slope) -> None:
    @of_one(name)
    def rule(b, op, dy):
        (x,) = op.operands
        made = Term(b, widened(b, dy)) * slope(op, Term(b, widened(b, x)))
        return rounded(b, made.value, x)


for _name, _slope in SLOPES.items():
    _register(_name, _slope)


@of_one("leaky_relu")
def _leaky_relu(b, op: typed.LeakyRelu, dy):
    (x,) = op.operands
    slope, inner = Term(b, widened(b, dy)), Term(b, x)
    return rounded(b, slope.where(inner > 0, slope * op.slope).value, x)


@of_one("hard_sigmoid")
def _hard_sigmoid(b, op: typed.HardSigmoid, dy):
    """Return alpha strictly between the bounds."""
    (x,), y, slope = op.operands, Term(b, op.result), Term(b, widened(b, dy))
    inside = (y > 0).call("and", y < 1)
    return rounded(b, (slope * op.alpha).where(inside).value, x)


def _grown(b, op, dy, alpha: float, sharpness: float = 1.0):
    """Return 1 above 0, else alpha * exp(sharpness * min(x, 0)).

    Without the minimum, the slope of that branch could be infinite where it is not selected.
    """
    (x,) = op.operands
    inner, slope = Term(b, widened(b, x)), Term(b, widened(b, dy))
    below = inner.call("min", 0)
    grown = slope * alpha * (below if sharpness == 1 else below * sharpness).call("exp")
    return slope.where(inner > 0, grown)


@of_one("elu")
def _elu(b, op: typed.Elu, dy):
    return rounded(b, _grown(b, op, dy, op.alpha).value, op.x)


@of_one("celu")
def _celu(b, op: typed.Celu, dy):
    return rounded(b, _grown(b, op, dy, 1.0, 1 / op.alpha).value, op.x)


@of_one("selu")
def _selu(b, op: typed.Selu, dy):
    return rounded(b, (_grown(b, op, dy, SELU_ALPHA) * SELU_SCALE).value, op.x)


# -- softmax ---------------------------------------------------------------------------------------


def _total(b: Builder, x: Value, axis: int) -> Value:
    """Return the sums of ``x`` along ``axis``, broadcast along it."""
    return over(b, b.reduce_sum(x, axes=(axis,)), x, (axis,))


@of_one("softmax")
def _softmax(b, op: typed.Softmax, dy):
    (x,), axis = op.operands, op.axis
    y, slope = widened(b, op.result), widened(b, dy)
    made = b.mul(y, b.sub(slope, _total(b, b.mul(slope, y), axis)))
    return rounded(b, made, x)


@of_one("log_softmax")
def _log_softmax(b, op: typed.LogSoftmax, dy):
    (x,), axis = op.operands, op.axis
    y, slope = widened(b, op.result), widened(b, dy)
    return rounded(b, b.sub(slope, b.mul(b.exp(y), _total(b, slope, axis))), x)


@of_one("logsumexp")
def _logsumexp(b, op: typed.Logsumexp, dy):
    """Return the gradient by exp(x - y), the softmax."""
    (x,), axes = op.operands, op.axes
    wide = widened(b, x)
    shares = b.exp(b.sub(wide, over(b, widened(b, op.result), wide, axes)))
    return rounded(b, b.mul(over(b, widened(b, dy), wide, axes), shares), x)


# -- normalisations over the last axes -------------------------------------------------------------


@gradient("layer_norm", "rms_norm")
def _norm(b, op: typed.LayerNorm | typed.RmsNorm, cotangents, wanted):
    """Return the gradient of a normalisation.

    With n = (x - mean) / deviation and g = dy * scale it is (g - mean(g) - n * mean(g * n)) /
    deviation; rms_norm is without the two means of x and g.
    """
    x, *parameters = op.operands
    centred = op.kind.endswith("layer_norm")
    rank, axes = x.type.rank, tuple(range(op.axis, x.type.rank))
    batch = others(rank, axes)
    wide, slope = widened(b, x), widened(b, cotangents[0])

    def mean(v: Value) -> Value:
        return over(b, b.mean(v, axes=axes), v, axes)

    d = b.sub(wide, mean(wide)) if centred else wide
    square = b.mean(b.mul(d, d), axes=axes)
    deviation = b.sqrt(b.add(square, b.scalar_like(op.epsilon, square)))
    deviation = over(b, deviation, wide, axes)
    n = b.div(d, deviation)
    of_x = of_scale = of_bias = None
    if wanted[0]:
        g = slope
        if parameters:
            g = b.mul(slope, spread(b, widened(b, parameters[0]), wide, axes))
        inner = b.mul(n, mean(b.mul(g, n)))
        made = b.sub(b.sub(g, mean(g)), inner) if centred else b.sub(g, inner)
        of_x = rounded(b, b.div(made, deviation), x)
    if len(wanted) > 1 and wanted[1]:
        summed = b.mul(slope, n)
        summed = b.reduce_sum(summed, axes=batch) if batch else summed
        of_scale = rounded(b, summed, parameters[0])
    if len(wanted) > 2 and wanted[2]:
        summed = b.reduce_sum(slope, axes=batch) if batch else slope
        of_bias = rounded(b, summed, parameters[1])
    return (of_x, of_scale, of_bias)[: len(op.operands)]


# -- losses ----------------------------------------------------------------------------------------


def _class_slopes(
    b: Builder, op: typed.CrossEntropy | typed.NllLoss, like: Value, dy: Value
) -> tuple[Value, Value | None]:
    """Return the cotangent of the log probabilities [N, C, ..] of a class loss.

    The losses are ``nll_loss`` and ``cross_entropy``. The second result are its sums over the
    classes [N, ..] if they need no addition, because all but one are 0.
    """
    _x, targets, *weight = op.operands
    targets = as_dtype(b, targets, I64)
    classes, kept = like.type.shape[1], others(like.type.rank, (1,))
    counts = b.ne(targets, b.scalar_like(op.ignore_index, targets))
    one = b.expand(b.constant(1, like.type.dtype), targets.type.shape)
    none = b.scalar_like(0, one)
    factors = one
    if weight:
        known = b.select(counts, targets, b.scalar_like(0, targets))
        factors = b.take(widened(b, weight[0]), known, axis=0)
    factors = b.select(counts, factors, none)
    slope = widened(b, dy)
    if op.reduction == "mean":
        slope = b.div(slope, b.reduce_sum(factors, axes=tuple(range(factors.type.rank))))
    slope = slope if slope.type.rank else b.expand(slope, targets.type.shape)
    share = op.label_smoothing if isinstance(op, typed.CrossEntropy) else 0.0
    hit = b.eq(spread(b, targets, like, kept), b.iota(shape=like.type.shape, dtype=I64, axis=1))
    each = b.neg(b.mul(slope, factors))
    if share:
        each = b.mul(each, b.scalar_like(1 - share, each))
    made = b.select(hit, spread(b, each, like, kept), b.scalar_like(0, like))
    if not share:
        low = b.ge(targets, b.scalar_like(0, targets))
        is_class = b.and_(low, b.lt(targets, b.scalar_like(classes, targets)))
        return made, b.select(is_class, each, none)
    rest = b.neg(b.mul(b.select(counts, slope, none), b.scalar_like(share / classes, slope)))
    rest = spread(b, rest, like, kept)
    if weight:
        rest = b.mul(rest, spread(b, widened(b, weight[0]), like, (1,)))
    return b.add(made, rest), None


@gradient("nll_loss")
def _nll_loss(b, op: typed.NllLoss, cotangents, wanted):
    _only_first(op, wanted)
    x = op.x
    slopes, _ = _class_slopes(b, op, widened(b, x), cotangents[0])
    made = rounded(b, slopes, x)
    return made, *[None] * (len(op.operands) - 1)


@gradient("cross_entropy")
def _cross_entropy(b, op: typed.CrossEntropy, cotangents, wanted):
    _only_first(op, wanted)
    x = op.x
    wide = widened(b, x)
    slopes, sums = _class_slopes(b, op, wide, cotangents[0])
    shares = b.exp(b.log_softmax(wide, axis=1))
    total = _total(b, slopes, 1) if sums is None else over(b, sums, wide, (1,))
    made = rounded(b, b.sub(slopes, b.mul(shares, total)), x)
    return made, *[None] * (len(op.operands) - 1)


def _only_first(op: typed.CrossEntropy | typed.NllLoss, wanted) -> None:
    if any(wanted[2:]):
        raise NoGradient("class weights have no gradient")


@gradient("binary_cross_entropy")
def _binary_cross_entropy(b, op: typed.BinaryCrossEntropy, cotangents, wanted):
    """Return the gradient with respect to x as torch does: at most 1e12 where x is 0 or 1."""
    x, y, dy = (Term(b, widened(b, v)) for v in (*op.operands, cotangents[0]))
    of_x = of_y = None
    if wanted[0]:
        below = ((1 - x) * x).call("max", 1e-12)
        of_x = rounded(b, (dy * (x - y) / below).value, op.x)
    if wanted[1]:
        one, other = (v.call("max", -100) for v in (x.call("log"), (-x).call("log1p")))
        of_y = rounded(b, (dy * (other - one)).value, op.y)
    return of_x, of_y


@gradient("mse_loss")
def _mse_loss(b, op: typed.MseLoss, cotangents, wanted):
    x, y = op.operands
    d = b.sub(widened(b, x), widened(b, y))
    slope = widened(b, cotangents[0])
    if op.reduction == "mean":
        slope = b.div(slope, b.scalar_like(size_of(x, range(x.type.rank)), slope))
    slope = slope if slope.type.shape == d.type.shape else b.expand(slope, d.type.shape)
    made = b.mul(b.mul(d, b.scalar_like(2, d)), slope)
    return (
        rounded(b, made, x) if wanted[0] else None,
        rounded(b, b.neg(made), y) if wanted[1] else None,
    )


# -- quantisation ----------------------------------------------------------------------------------


@gradient("fake_quantize")
def _fake_quantize(b, op: typed.FakeQuantize, cotangents, wanted):
    """Return dy where x is not limited, 0 elsewhere; the scale and the zero point get none."""
    (x, scale, *zero), (dy,) = op.operands, cotangents
    wide = F64 if x.type.dtype is F64 else F32
    numbers, scale = as_dtype(b, x, wide), as_dtype(b, scale, wide)
    made = quantised(b, numbers, scale, zero[0] if zero else None, op.axis, op.reciprocal)
    for bound, test in ((op.low, b.ge), (op.high, b.le)):
        dy = b.select(test(made, b.scalar_like(bound, made)), dy, b.scalar_like(0, dy))
    return (dy, *(None,) * (len(op.operands) - 1))
