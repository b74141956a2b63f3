"""Softmax and related ops, and normalisations: composites.

Every normalisation divides by ``sqrt(variance + epsilon)``, scales, then shifts, each op rounded;
the variance is that of ``core.variance`` with ``plain``. Scale, bias and statistics of a narrow x
may be f32.
"""

from __future__ import annotations

from core_compiler.ir import Value, tensor
from core_compiler.ops import typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.composite import in_f32, others, size_of, spread
from core_compiler.ops.gradients.table import RULES
from core_compiler.ops.precision import SHARES, Follows
from core_compiler.ops.reduction import AXES, need_elements, reduced
from core_compiler.ops.rules import (
    FLOATS,
    accumulator,
    need,
    need_axis,
    need_dtype,
    need_same_dtype,
    need_shape,
    need_static,
)

EPSILON = Attr(float, 1e-5, "added to the variance")


def _same(x):
    """Return the result type of a normalisation of ``x``."""
    return (tensor(x.shape, x.dtype),)


# -- softmax ---------------------------------------------------------------------------------------


def _softmax_rule(types, attributes):
    (x,) = types
    need_dtype("x", x, FLOATS)
    need_axis(attributes["axis"], x.rank)
    return _same(x)


def _over(b, x: Value, axis: int, kind: str) -> Value:
    """Return ``reduce_<kind>`` of ``x`` over one axis, broadcast back over it."""
    made = b.op(f"core.reduce_{kind}", (x,), axes=(axis,))
    return spread(b, made, x, others(x.type.rank, (axis,)))


@in_f32
def _softmax(b, op: typed.Softmax, x):
    axis = op.axis
    if 0 in x.type.shape:
        return x
    weights = b.exp(b.sub(x, _over(b, x, axis, "max")))
    share = b.div(weights, _over(b, weights, axis, "sum"))
    if op.empty_rows == "nan":
        return share
    top = _over(b, x, axis, "max")
    empty = b.eq(top, b.scalar_like(float("-inf"), top))
    return b.select(empty, b.scalar_like(0, share), share)


declare(
    OpDef(
        "core.softmax",
        "e = exp(x - reduce_max(x)); e / reduce_sum(e)",
        ("x",),
        _softmax_rule,
        attributes={
            "axis": Attr(int, doc="the axis that sums to 1"),
            "empty_rows": Attr(
                str, "nan", "the result for a row of only -infinity", choices=("nan", "zero")
            ),
        },
        decompose=_softmax,
        precision=SHARES,
        gradient=RULES["softmax"],
    )
)


@in_f32
def _log_softmax(b, op: typed.LogSoftmax, x):
    axis = op.axis
    if 0 in x.type.shape:
        return x
    d = b.sub(x, _over(b, x, axis, "max"))
    total = b.reduce_sum(b.exp(d), axes=(axis,))
    return b.sub(d, spread(b, b.log(total), x, others(x.type.rank, (axis,))))


declare(
    OpDef(
        "core.log_softmax",
        "d = x - reduce_max(x); d - log(reduce_sum(exp(d)))",
        ("x",),
        _softmax_rule,
        attributes={"axis": Attr(int, doc="the axis whose exponentials sum to 1")},
        decompose=_log_softmax,
        precision=SHARES,
        gradient=RULES["log_softmax"],
    )
)


def _logsumexp_rule(types, attributes):
    (x,) = types
    need_dtype("x", x, FLOATS)
    shape = reduced(x, attributes["axes"])
    need_elements(x, attributes["axes"])
    return (tensor(shape, x.dtype),)


@in_f32
def _logsumexp(b, op: typed.Logsumexp, x):
    axes = op.axes
    top = b.reduce_max(x, axes=axes)
    top = b.select(b.is_inf(top), b.scalar_like(0, top), top)
    d = b.sub(x, spread(b, top, x, others(x.type.rank, axes)))
    return b.add(b.log(b.reduce_sum(b.exp(d), axes=axes)), top)


declare(
    OpDef(
        "core.logsumexp",
        "m = reduce_max(x), 0 where infinite; log(reduce_sum(exp(x - m))) + m",
        ("x",),
        _logsumexp_rule,
        attributes={"axes": AXES},
        decompose=_logsumexp,
        precision=SHARES,
        gradient=RULES["logsumexp"],
    )
)


# -- common parts of normalisations ----------------------------------------------------------------


def _need_parameters(x, types, names, shape) -> None:
    """Check that the trailing operands (scale, bias, ...) have ``shape`` and x's dtype.

    If x is narrower than f32, all of them may be f32, the dtype of the computation.
    """
    wide = all(p.dtype is accumulator(x.dtype) for p in types)
    for name, parameter in zip(names, types, strict=False):
        if not wide:
            need_same_dtype(("x", name), (x, parameter))
        need_shape(name, parameter, shape)


def _standardise(b, x: Value, axes, epsilon: float) -> Value:
    """Return ``(x - mean) / sqrt(variance + epsilon)`` over ``axes``."""
    kept = others(x.type.rank, axes)
    d = b.sub(x, spread(b, b.mean(x, axes=axes), x, kept))
    variance = _mean_of_squares(b, d, axes)
    return _over_deviation(b, d, variance, epsilon, kept)


def _mean_of_squares(b, d: Value, axes) -> Value:
    total = b.reduce_sum(b.mul(d, d), axes=axes)
    return b.div(total, b.scalar_like(size_of(d, axes), total))


def _over_deviation(b, d: Value, variance: Value, epsilon: float, kept) -> Value:
    deviation = b.sqrt(b.add(variance, b.scalar_like(epsilon, variance)))
    return b.div(d, spread(b, deviation, d, kept))


def _affine(b, x: Value, parameters, kept) -> Value:
    """Return ``x * scale + bias``, whose axes are x's axes ``kept``; each is optional."""
    for kind, parameter in zip(("mul", "add"), parameters, strict=False):
        x = b.op(f"core.{kind}", (x, spread(b, parameter, x, kept)))
    return x


# -- layer norm, rms norm --------------------------------------------------------------------------


def _layer_norm_rule(types, attributes):
    x, *parameters = types
    need_dtype("x", x, FLOATS)
    axis = need_axis(attributes["axis"], x.rank)
    _need_parameters(x, parameters, ("scale", "bias"), x.shape[axis:])
    return _same(x)


@in_f32
def _layer_norm(b, op: typed.LayerNorm, x, *parameters):
    axes = tuple(range(op.axis, x.type.rank))
    return _affine(b, _standardise(b, x, axes, op.epsilon), parameters, axes)


_FIRST = Attr(int, doc="first of the normalised axes, which extend to the last")

declare(
    OpDef(
        "core.layer_norm",
        "d = x - mean(x); d / sqrt(mean(d * d) + epsilon) * scale + bias",
        ("x", "scale?", "bias?"),
        _layer_norm_rule,
        attributes={"axis": _FIRST, "epsilon": EPSILON},
        decompose=_layer_norm,
        precision=Follows(1),
        gradient=RULES["layer_norm"],
    )
)


@in_f32
def _rms_norm(b, op: typed.RmsNorm, x, *parameters):
    axes = tuple(range(op.axis, x.type.rank))
    kept = others(x.type.rank, axes)
    made = _over_deviation(b, x, _mean_of_squares(b, x, axes), op.epsilon, kept)
    return _affine(b, made, parameters, axes)


declare(
    OpDef(
        "core.rms_norm",
        "x / sqrt(mean(x * x) + epsilon) * scale",
        ("x", "scale?"),
        _layer_norm_rule,
        attributes={"axis": _FIRST, "epsilon": EPSILON},
        decompose=_rms_norm,
        precision=Follows(1),
        gradient=RULES["rms_norm"],
    )
)


# -- batch, group and instance norm ----------------------------------------------------------------


def _batch_norm_rule(types, attributes):
    x, *parameters = types
    need_dtype("x", x, FLOATS)
    axis = need_axis(attributes["axis"], x.rank)
    _need_parameters(x, parameters, ("scale", "bias", "mean", "variance"), (x.shape[axis],))
    return _same(x)


@in_f32
def _batch_norm(b, op: typed.BatchNorm, x, scale, bias, mean, variance):
    kept = (op.axis,)
    d = b.sub(x, spread(b, mean, x, kept))
    return _affine(b, _over_deviation(b, d, variance, op.epsilon, kept), (scale, bias), kept)


declare(
    OpDef(
        "core.batch_norm",
        "Inference: (x - mean) / sqrt(variance + epsilon) * scale + bias, each per channel",
        ("x", "scale", "bias", "mean", "variance"),
        _batch_norm_rule,
        attributes={"axis": Attr(int, 1, "the channel axis"), "epsilon": EPSILON},
        decompose=_batch_norm,
        precision=Follows(1),
    )
)


_CHANNELS = Attr(int, 1, "the channel axis, not 0")


def _need_channels(types, axis: int) -> None:
    x, *parameters = types
    need_dtype("x", x, FLOATS)
    need(x.rank >= 2, f"x has rank {x.rank}, expected [N, C, ..]")
    need_axis(axis, x.rank)
    need(axis != 0, "axis 0 is the batch, not the channels")
    _need_parameters(x, parameters, ("scale", "bias"), (x.shape[axis],))


def _group_norm_rule(types, attributes):
    axis = attributes["axis"]
    _need_channels(types, axis)
    x, groups = types[0], attributes["groups"]
    channels = need_static("the number of channels", x.shape[axis])
    need(
        groups >= 1 and channels % groups == 0,
        f"{channels} channels do not divide into {groups} groups",
    )
    return _same(x)


@in_f32
def _group_norm(b, op: typed.GroupNorm, x, *parameters):
    axis, groups, shape = op.axis, op.groups, x.type.shape
    split = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    made = _standardise(b, b.reshape(x, shape=split), others(len(split), (0, axis)), op.epsilon)
    return _affine(b, b.reshape(made, shape=shape), parameters, (axis,))


declare(
    OpDef(
        "core.group_norm",
        "layer_norm over the channels of a group and all spatial axes; scale and bias per channel",
        ("x", "scale?", "bias?"),
        _group_norm_rule,
        attributes={
            "groups": Attr(int, doc="number of groups of adjacent channels"),
            "epsilon": EPSILON,
            "axis": _CHANNELS,
        },
        decompose=_group_norm,
        precision=Follows(1),
    )
)


def _instance_norm_rule(types, attributes):
    _need_channels(types, attributes["axis"])
    need(types[0].rank >= 3, f"x has rank {types[0].rank}, expected [N, C, spatial..]")
    return _same(types[0])


@in_f32
def _instance_norm(b, op: typed.InstanceNorm, x, *parameters):
    kept = (0, op.axis)
    made = _standardise(b, x, others(x.type.rank, kept), op.epsilon)
    return _affine(b, made, parameters, kept[1:])


declare(
    OpDef(
        "core.instance_norm",
        "layer_norm over the spatial axes; scale and bias per channel",
        ("x", "scale?", "bias?"),
        _instance_norm_rule,
        attributes={"epsilon": EPSILON, "axis": _CHANNELS},
        decompose=_instance_norm,
        precision=Follows(1),
    )
)
