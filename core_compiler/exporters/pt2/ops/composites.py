"""Activations, softmax, normalisations and attention that ATen has; others are decomposed."""

from __future__ import annotations

from math import inf

from core_compiler.exporters.pt2.table import Emitter, core, in_f32
from core_compiler.ops import typed


def _enter(name: str, function: str, *attributes: str) -> None:
    """Register an activation whose attributes ATen takes in this order."""

    def handler(g, op, x):
        return g.call(function, x, *op.pick(*attributes).values())

    core(name)(handler)


for _name, _function, *_attributes in (
    ("leaky_relu", "leaky_relu", "slope"),
    ("elu", "elu", "alpha"),
    ("celu", "celu", "alpha"),
    ("selu", "selu"),
    ("mish", "mish"),
    ("hard_swish", "hardswish"),
):
    _enter(_name, _function, *_attributes)


@core("gelu")
def gelu(g, op: typed.Gelu, x):
    return g.call("gelu", x, approximate="tanh" if op.approximate == "tanh" else "none")


@core("softmax", when=lambda g, op: op.empty_rows == "nan")
@in_f32
def softmax(g, op: typed.Softmax, x):
    return g.call("softmax.int", x, op.axis)


@core("log_softmax")
@in_f32
def log_softmax(g, op: typed.LogSoftmax, x):
    return g.call("log_softmax.int", x, op.axis)


@core("logsumexp")
@in_f32
def logsumexp(g, op: typed.Logsumexp, x):
    return g.call("logsumexp", x, list(op.axes))


@core("layer_norm")
@in_f32
def layer_norm(g, op: typed.LayerNorm, x, scale=None, bias=None):
    shape = list(op.x.type.shape[op.axis :])
    parameters = [p if p is None else g.expand(p, shape) for p in (scale, bias)]
    return g.call("layer_norm", x, shape, *parameters, op.epsilon)


@core("rms_norm")
@in_f32
def rms_norm(g, op: typed.RmsNorm, x, scale=None):
    shape = list(op.x.type.shape[op.axis :])
    scale = None if scale is None else g.expand(scale, shape)
    return g.call("rms_norm", x, shape, scale, op.epsilon)


@core("batch_norm", when=lambda g, op: op.axis == 1)
@in_f32
def batch_norm(g, op: typed.BatchNorm, x, scale, bias, mean, variance):
    """Emit a batch norm that is not in training; its momentum has no effect."""
    return g.call("batch_norm", x, scale, bias, mean, variance, False, 0.1, op.epsilon, False)


@core("group_norm", when=lambda g, op: op.axis == 1)
@in_f32
def group_norm(g, op: typed.GroupNorm, x, scale=None, bias=None):
    return g.call("group_norm", x, op.groups, scale, bias, op.epsilon)


def _attends(g: Emitter, op: typed.Attention) -> bool:
    """Return whether it is torch's attention: its rows without a visible key are 0."""
    is_masked = op.mask is not None
    return op.hidden == -inf and not (is_masked and (op.causal or op.empty_rows != "zero"))


@core("attention", when=_attends)
@in_f32
def attention(g, op: typed.Attention, q, k, v, mask=None):
    return g.call("scaled_dot_product_attention", q, k, v, mask, 0.0, op.causal, scale=op.scale)
