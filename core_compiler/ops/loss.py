"""Losses and one_hot: composites. Classes are axis 1 of the logits; a mean divides once."""

from __future__ import annotations

from core_compiler.ir import DType, Value, tensor
from core_compiler.ops import typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.composite import (
    as_dtype,
    in_f32,
    size_of,
    spread,
    widened,
)
from core_compiler.ops.gradients.table import CONSTANT, RULES
from core_compiler.ops.precision import EXPLICIT, LOSS
from core_compiler.ops.rules import (
    BOOL,
    FLOATS,
    I64,
    NUMBERS,
    common_order,
    need,
    need_dtype,
    need_index,
    need_same_dtype,
    need_same_shape,
    need_shape,
    without,
)
from core_compiler.ops.traits import traits

REDUCTION = Attr(
    str,
    "mean",
    "over all elements: their (weighted) mean, their sum, or none",
    choices=("mean", "sum", "none"),
)
IGNORE = Attr(int, -100, "targets of this value are ignored")


# -- one_hot ---------------------------------------------------------------------------------------


def _one_hot_rule(types, attributes):
    (indices,) = types
    need_index("indices", indices)
    need(attributes["classes"] >= 0, f"classes = {attributes['classes']} is negative")
    need_dtype("dtype", attributes["dtype"], (*NUMBERS, BOOL))
    return (tensor((*indices.shape, attributes["classes"]), attributes["dtype"]),)


def _one_hot(b, op: typed.OneHot):
    (indices,) = op.operands
    return as_dtype(b, _hits(b, indices, op.classes, indices.type.rank), op.dtype)


def _hits(b, indices: Value, classes: int, axis: int) -> Value:
    """Return whether class c is the index, on a new ``axis`` of ``classes``."""
    indices = b.cast(indices, dtype=I64) if indices.type.dtype is not I64 else indices
    shape = (*indices.type.shape[:axis], classes, *indices.type.shape[axis:])
    kept = tuple(i for i in range(len(shape)) if i != axis)
    wanted = b.broadcast(indices, shape=shape, dims=kept)
    return b.eq(wanted, b.iota(shape=shape, dtype=I64, axis=axis))


declare(
    OpDef(
        "core.one_hot",
        "1 where the position on the new last axis equals the index, else 0; all 0 out of range",
        ("indices",),
        _one_hot_rule,
        attributes={
            "classes": Attr(int, doc="size of the new axis"),
            "dtype": Attr(DType, I64, "the result's dtype"),
        },
        decompose=_one_hot,
        precision=EXPLICIT,
        gradient=CONSTANT,
    )
)


# -- negative log likelihood, cross entropy --------------------------------------------------------


def _class_rule(types, attributes):
    x, targets, *weight = types
    need_dtype("x", x, FLOATS)
    need_index("targets", targets)
    need(x.rank >= 2, f"x has rank {x.rank}, expected [N, C, ..]")
    need_shape("targets", targets, without(x.shape, (1,)))
    for found in weight:
        need_same_dtype(("x", "weight"), (x, found))
        need_shape("weight", found, (x.shape[1],))
    smoothing = attributes.get("label_smoothing", 0.0)
    need(0.0 <= smoothing <= 1.0, f"label_smoothing {smoothing} is not in 0..1")
    return (tensor(targets.shape if attributes["reduction"] == "none" else (), x.dtype),)


def _pick(b, x: Value, targets: Value) -> Value:
    """Return ``x[n, targets[n, ..], ..]`` (targets in range)."""
    column = (targets.type.shape[0], 1, *targets.type.shape[1:])
    picked = b.take_along(x, b.reshape(targets, shape=column), axis=1)
    return b.reshape(picked, shape=targets.type.shape)


def _counted(b, targets: Value, ignore: int):
    """Return (targets with class 0 for ignored ones, a mask of the counted ones)."""
    counts = b.ne(targets, b.scalar_like(ignore, targets))
    return b.select(counts, targets, b.scalar_like(0, targets)), counts


def _total(b, x: Value) -> Value:
    return b.reduce_sum(x, axes=tuple(range(x.type.rank)))


def _class_losses(
    b, op: typed.CrossEntropy | typed.NllLoss, log_shares: Value, targets: Value, weight
):
    """Return (-weight[t] * log_shares[t], weight[t]) for each target; both 0 if it is ignored."""
    targets = b.cast(targets, dtype=I64) if targets.type.dtype is not I64 else targets
    targets, counts = _counted(b, targets, op.ignore_index)
    losses = b.neg(_pick(b, log_shares, targets))
    nothing = b.scalar_like(0, losses)
    factors = b.take(weight[0], targets, axis=0) if weight else b.scalar_like(1, losses)
    factors = b.select(counts, factors, nothing)
    losses = b.mul(losses, factors) if weight else losses
    return b.select(counts, losses, nothing), factors


def _finish(b, losses: Value, factors: Value, reduction: str) -> Value:
    """Return the reduced losses; a mean divides by the sum of ``factors``."""
    if reduction == "none":
        return losses
    total = _total(b, losses)
    return total if reduction == "sum" else b.div(total, _total(b, factors))


def totals(b, op: typed.CrossEntropy | typed.NllLoss) -> tuple[Value, Value]:
    """Return the dividend and the divisor of a ``nll_loss`` or ``cross_entropy`` with a mean.

    They are the sum of the losses and that of the weights used, in f32 for narrow floats.
    """
    x, targets, *weight = (widened(b, value) for value in op.operands)
    how = {**op.op.attributes, "reduction": "sum"}
    total = getattr(b, op.kind.removeprefix("core."))(x, targets, *weight, **how)
    classes, counts = _counted(b, as_dtype(b, targets, I64), op.ignore_index)
    if weight:
        factors = b.take(weight[0], classes, axis=0)
        factors = b.select(counts, factors, b.scalar_like(0, factors))
    else:
        factors = as_dtype(b, counts, x.type.dtype)
    return total, _total(b, factors)


@in_f32
def _nll_loss(b, op: typed.NllLoss, log_shares, targets, *weight):
    losses, factors = _class_losses(b, op, log_shares, targets, weight)
    return _finish(b, losses, factors, op.reduction)


declare(
    OpDef(
        "core.nll_loss",
        "-weight[t] * x[n, t, ..] for the target t of each position; the mean divides by the sum "
        "of the weights used",
        ("x", "targets", "weight?"),
        _class_rule,
        attributes={"reduction": REDUCTION, "ignore_index": IGNORE},
        decompose=_nll_loss,
        precision=LOSS,
        gradient=RULES["nll_loss"],
    )
)


@in_f32
def _cross_entropy(b, op: typed.CrossEntropy, logits, targets, *weight):
    log_shares = b.log_softmax(logits, axis=1)
    losses, factors = _class_losses(b, op, log_shares, targets, weight)
    share = op.label_smoothing
    if share:
        uniform = _uniform_losses(b, op, log_shares, targets, weight)
        classes = size_of(logits, (1,))
        losses = b.add(
            b.mul(losses, b.scalar_like(1 - share, losses)),
            b.mul(uniform, b.scalar_like(share / classes, uniform)),
        )
    return _finish(b, losses, factors, op.reduction)


def _uniform_losses(b, op: typed.CrossEntropy, log_shares: Value, targets: Value, weight) -> Value:
    """Return -sum over classes of weight[c] * log_shares[c], 0 if the target is ignored."""
    if weight:
        log_shares = b.mul(log_shares, spread(b, weight[0], log_shares, (1,)))
    losses = b.neg(b.reduce_sum(log_shares, axes=(1,)))
    counts = b.ne(targets, b.scalar_like(op.ignore_index, targets))
    return b.select(counts, losses, b.scalar_like(0, losses))


declare(
    OpDef(
        "core.cross_entropy",
        "nll_loss(log_softmax(x)); with label smoothing s: (1 - s) * that + s / classes * the "
        "weighted sum over all classes",
        ("x", "targets", "weight?"),
        _class_rule,
        attributes={
            "reduction": REDUCTION,
            "ignore_index": IGNORE,
            "label_smoothing": Attr(
                float, 0.0, "part of the target that is spread over all classes"
            ),
        },
        decompose=_cross_entropy,
        precision=LOSS,
        gradient=RULES["cross_entropy"],
    )
)


# -- binary cross entropy --------------------------------------------------------------------------


def _pair_rule(types, attributes):
    need_dtype("x", types[0], FLOATS)
    need_same_dtype(("x", "y"), types)
    need_same_shape(("x", "y"), types)
    return (types[0].with_(order=common_order(*types)),)


@in_f32
def _binary_cross_entropy(b, op, x, y):
    least = b.scalar_like(-100, x)
    below = b.mul(b.sub(y, b.scalar_like(1, y)), b.max(b.log1p(b.neg(x)), least))
    return b.sub(below, b.mul(y, b.max(b.log(x), least)))


declare(
    OpDef(
        "core.binary_cross_entropy",
        "(y - 1) * max(log1p(-x), -100) - y * max(log(x), -100) for a probability x",
        ("x", "y"),
        _pair_rule,
        decompose=_binary_cross_entropy,
        traits=traits("elementwise"),
        precision=LOSS,
        gradient=RULES["binary_cross_entropy"],
    )
)


# -- mean squared error ----------------------------------------------------------------------------


def _mse_rule(types, attributes):
    x, _y = types
    need_dtype("x", x, FLOATS)
    need_same_dtype(("x", "y"), types)
    need_same_shape(("x", "y"), types)
    return (tensor(x.shape if attributes["reduction"] == "none" else (), x.dtype),)


@in_f32
def _mse_loss(b, op: typed.MseLoss, x, y):
    d = b.sub(x, y)
    squares = b.mul(d, d)
    if op.reduction == "none":
        return squares
    total = _total(b, squares)
    if op.reduction == "sum":
        return total
    return b.div(total, b.constant(size_of(x, range(x.type.rank)), total.type.dtype))


declare(
    OpDef(
        "core.mse_loss",
        "d = x - y; d * d, its sum, or its sum divided by the number of elements",
        ("x", "y"),
        _mse_rule,
        attributes={"reduction": REDUCTION},
        decompose=_mse_loss,
        precision=LOSS,
        gradient=RULES["mse_loss"],
    )
)
