"""Composites as helper functions with the op's signature; losses and the like are decomposed."""

from __future__ import annotations

from math import inf

from core_compiler.exporters.numpy_source.table import core, in_f32
from core_compiler.exporters.numpy_source.text import sequence
from core_compiler.ir.views import OpView
from core_compiler.ops import typed


def _enter(name: str, *attributes: str) -> None:
    """Register a call of the helper ``name`` with the operands, then these attributes."""

    def handler(w, op: OpView, *operands):
        return w.call(name, *operands, *op.pick(*attributes).values())

    core(name)(in_f32(handler))


for _name, *_attributes in (
    ("leaky_relu", "slope"),
    ("hard_sigmoid", "alpha", "beta"),
    ("hard_swish",),
    ("silu",),
    ("elu", "alpha"),
    ("selu",),
    ("celu", "alpha"),
    ("mish",),
    ("softsign",),
    ("log_softmax", "axis"),
):
    _enter(_name, *_attributes)


@core("relu")
def relu(w, op, x):
    return f"np.maximum({x}, {w.like(0, op)})"


@core("clamp")
def clamp(w, op: typed.Clamp, x):
    """Write out the comparison: NumPy's clip widens the dtypes of ml_dtypes."""
    for limit, function in ((op.low, "maximum"), (op.high, "minimum")):
        if limit is not None:
            x = f"np.{function}({x}, {w.like(limit, op)})"
    return x


@core("gelu")
@in_f32
def gelu(w, op: typed.Gelu, x):
    return w.call("gelu_tanh" if op.approximate == "tanh" else "gelu", x)


@core("softplus")
@in_f32
def softplus(w, op: typed.Softplus, x):
    return w.call("softplus", x, **({} if op.beta == 1.0 else {"beta": op.beta}))


@core("softmax")
@in_f32
def softmax(w, op: typed.Softmax, x):
    return w.call(_softmax(op), x, op.axis)


def _softmax(op: typed.Softmax) -> str:
    return "softmax" if op.empty_rows == "nan" else "softmax_or_zero"


@core("logsumexp")
@in_f32
def logsumexp(w, op: typed.Logsumexp, x):
    axes = op.axes
    return w.call("logsumexp", x, axes[0] if len(axes) == 1 else sequence(axes))


@core("layer_norm", "rms_norm", "batch_norm")
@in_f32
def norm(w, op: typed.BatchNorm | typed.LayerNorm | typed.RmsNorm, x, *parameters):
    options = op.pick("axis", "epsilon")
    return w.call(op.kind.partition(".")[2], x, *parameters, **options)


@core("group_norm", "instance_norm")
@in_f32
def group_norm(w, op: typed.GroupNorm | typed.InstanceNorm, x, *parameters):
    groups = {"groups": op.groups} if isinstance(op, typed.GroupNorm) else {}
    options = {**groups, "epsilon": op.epsilon}
    if op.axis != 1:
        options["axis"] = op.axis
    return w.call(op.kind.partition(".")[2], x, *parameters, **options)


@core("attention")
@in_f32
def attention(w, op: typed.Attention, q, k, v, *mask):
    options = {}
    if op.scale is not None:
        options["scale"] = op.scale
    if op.causal:
        options["causal"] = True
    if op.hidden != -inf:
        options["hidden"] = op.hidden
    if op.empty_rows == "zero":
        options["normalise"] = w.use("softmax_or_zero")
    return w.call("attention", q, k, v, *mask, **options)
