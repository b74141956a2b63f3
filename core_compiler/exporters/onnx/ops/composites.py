"""Composites as ONNX ops if these are equivalent, else as their decomposition.

f64 mostly uses the decomposition: ONNX's attributes are f32, its normalisations compute statistics
in f32, and so are the constants in the functions that define some of its ops. silu is decomposed
too, because onnxruntime has no kernel for Swish.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

import numpy as np

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.ops.reduction import reduced
from core_compiler.exporters.onnx.table import Emitter, core
from core_compiler.ir import dtype
from core_compiler.ir.views import OpView
from core_compiler.ops import typed
from core_compiler.ops.composite import SELU_ALPHA, SELU_SCALE
from core_compiler.support.onnx_names import ACTIVATIONS, UNARY

F64 = dtype("f64")
#: A score that makes an attention weight vanish next to the scores of a network.
VANISHES = -1e4


# -- activations -----------------------------------------------------------------------------------

#: Ops whose definition contains f32 constants.
_OF_F32 = frozenset({"Gelu", "HardSwish"})


def _exact(op: OpView, *attributes: float | str) -> bool:
    """Return whether attributes, which are f32 in ONNX, are exact in the op's dtype."""
    numbers = (a for a in attributes if not isinstance(a, str))
    return not _is_f64(op) or all(float(np.float32(n)) == n for n in numbers)


def _is_f64(op: OpView) -> bool:
    return op.operands[0].type.dtype is F64


def _enter(name: str, kind: str, attributes) -> None:
    """Register the op ``kind`` for ``name``, with its attributes as in ``onnx_names``."""

    def has(g: Emitter, op: OpView) -> bool:
        held = (getattr(op, ours) for _, ours, _ in attributes)
        return g.has(kind) and not (_is_f64(op) and kind in _OF_F32) and _exact(op, *held)

    def handler(g, op: OpView, x):
        return g.emit(kind, x, **{theirs: getattr(op, ours) for theirs, ours, _ in attributes})

    core(name, when=has)(handler)


for _kind, (_name, _attributes) in ACTIVATIONS.items():
    _enter(_name, _kind, _attributes)
for _kind in ("HardSwish", "Mish", "Softsign"):
    _enter(UNARY[_kind], _kind, ())


@core("relu")
def relu(g, op, x):
    return x if x.dtype.kind == "uint" else g.emit("Relu", x)


@core("clamp")
def clamp(g, op: typed.Clamp, x):
    """Clamp as ONNX does: above opset 12 the upper bound wins if they cross, as in ``core.clamp``.

    A Clip with one bound would clip infinities at the other end.
    """
    low, high = (None if n is None else g.scalar(n, x.dtype) for n in (op.low, op.high))
    if low is None or high is None:
        return g.emit("Max", x, low) if high is None else g.emit("Min", x, high)
    return g.emit("Clip", x, low, high)


@core("selu", when=lambda g, op: _exact(op, SELU_ALPHA, SELU_SCALE))
def selu(g, op, x):
    return g.emit("Selu", x, alpha=SELU_ALPHA, gamma=SELU_SCALE)


def _has_celu(g: Emitter, op: typed.Celu) -> bool:
    """Return whether alpha is positive: ONNX defines Celu with a maximum of 0."""
    return op.alpha > 0 and not _is_f64(op)


@core("celu", when=_has_celu)
def celu(g, op: typed.Celu, x):
    return g.emit("Celu", x, alpha=op.alpha)


@core("softplus", when=lambda g, op: op.beta == 1.0)
def softplus(g, op: typed.Softplus, x):
    return g.emit("Softplus", x)


# -- softmax ---------------------------------------------------------------------------------------


@core("softmax")
def softmax(g, op: typed.Softmax, x):
    made = g.emit("Softmax", x, axis=op.axis)
    if op.empty_rows == "nan":
        return made
    if g.guards:  # onnxruntime's maximum ignores NaN, and the row of a NaN has no zeros
        x = g.where(g.is_nan(x), g.scalar(inf, x.dtype), x)
    top = reduced(g, "ReduceMax", x, [op.axis], keep=True)
    empty = g.emit("Equal", top, g.scalar(-inf, top.dtype))
    return g.where(empty, g.scalar(0, made.dtype), made)


@core("log_softmax", when=lambda g, op: not _is_f64(op))
def log_softmax(g, op: typed.LogSoftmax, x):
    """Emit LogSoftmax; in f64 onnxruntime's loses NaN."""
    return g.emit("LogSoftmax", x, axis=op.axis)


# -- normalisations --------------------------------------------------------------------------------


def _parameters(
    g: Emitter, x: Tensor, given: Sequence[Tensor], count: int, shape: Sequence[int]
) -> list[Tensor]:
    """Return ``count`` of (scale, bias); missing ones are replaced by 1 and 0."""
    neutral = (np.full(tuple(shape), n, x.dtype.numpy) for n in (1, 0))
    filled = [*given, *(g.constant(a) for a in list(neutral)[len(given) :])]
    return filled[:count]


def _of_one_dtype(op: OpView) -> bool:
    """Return whether the parameters have the dtype of x, as ONNX requires."""
    return len({v.type.dtype for v in op.operands}) == 1


def _has_norm(g: Emitter, op: OpView) -> bool:
    return not _is_f64(op) and _of_one_dtype(op)


@core("layer_norm", when=_has_norm)
def layer_norm(g, op: typed.LayerNorm, x, *parameters):
    axis, shape = op.axis, op.result.type.shape
    scale, *bias = _parameters(g, x, parameters, max(1, len(parameters)), shape[axis:])
    return g.emit("LayerNormalization", x, scale, *bias, axis=axis, epsilon=op.epsilon)


@core("rms_norm", when=lambda g, op: g.has("RMSNormalization") and _has_norm(g, op))
def rms_norm(g, op: typed.RmsNorm, x, *parameters):
    axis, shape = op.axis, op.result.type.shape
    (scale,) = _parameters(g, x, parameters, 1, shape[axis:])
    return g.emit("RMSNormalization", x, scale, axis=axis, epsilon=op.epsilon)


def _has_batch_norm(g: Emitter, op: typed.BatchNorm) -> bool:
    return op.axis == 1 and _exact(op, op.epsilon) and _of_one_dtype(op)


@core("batch_norm", when=_has_batch_norm)
def batch_norm(g, op: typed.BatchNorm, x, scale, bias, mean, variance):
    return g.emit("BatchNormalization", x, scale, bias, mean, variance, epsilon=op.epsilon)


def _has_group_norm(g: Emitter, op: typed.GroupNorm) -> bool:
    """Return whether ONNX has this group_norm: opset 18's scale is per group, not per channel."""
    return g.opset >= 21 and op.axis == 1 and _has_norm(g, op)


@core("group_norm", when=_has_group_norm)
def group_norm(g, op: typed.GroupNorm, x, *parameters):
    scale, bias = _parameters(g, x, parameters, 2, (op.result.type.shape[1],))
    return g.emit("GroupNormalization", x, scale, bias, num_groups=op.groups, epsilon=op.epsilon)


@core("instance_norm", when=lambda g, op: op.axis == 1 and _has_norm(g, op))
def instance_norm(g, op: typed.InstanceNorm, x, *parameters):
    scale, bias = _parameters(g, x, parameters, 2, (op.result.type.shape[1],))
    return g.emit("InstanceNormalization", x, scale, bias, epsilon=op.epsilon)


# -- attention -------------------------------------------------------------------------------------


def _has_attention(g: Emitter, op: typed.Attention) -> bool:
    kinds = op.q.type.dtype, op.operands[-1].type.dtype
    mixed = len(op.operands) > 3 and kinds[1].is_float and kinds[1] is not kinds[0]
    return g.has("Attention") and not (_is_f64(op) or mixed) and _agrees_on_hidden_rows(g, op)


@core("attention", when=_has_attention)
def attention(g, op: typed.Attention, q, k, v, *mask):
    """Emit ONNX's Attention, with four axes (batch, heads, length, width).

    It hides scores with -infinity, and returns 0 for a query without visible keys.
    """
    *lead, _, _ = wanted = op.result.type.shape
    outer = (1,) * (2 - len(lead)) + tuple(lead)
    outer = (prod(outer[:-1]), outer[-1])
    q, k, v = (
        g.reshape(x, (*outer, *value.type.shape[-2:]))
        for x, value in zip((q, k, v), op.operands, strict=False)
    )
    seen = [_mask(g, m, op, outer) for m in mask]
    made = g.emit("Attention", q, k, v, *seen, scale=op.scale, is_causal=1 if op.causal else None)
    return g.reshape(made, wanted)


def _lengths(op: typed.Attention) -> tuple[int, int]:
    """Return (queries, keys)."""
    return op.q.type.shape[-2], op.k.type.shape[-2]


def _mask(g: Emitter, mask: Tensor, op: typed.Attention, outer: Sequence[int]) -> Tensor:
    """Return the mask over (queries, keys) if all batches share it, else over four axes."""
    lead, shape = op.result.type.shape[:-2], op.operands[3].type.shape
    whole = (1,) * (len(lead) + 2 - len(shape)) + shape
    if prod(whole[:-2]) == 1:
        return g.expand(g.reshape(mask, whole[-2:]), _lengths(op))
    if len(lead) > 2:  # merge several batch axes
        return g.reshape(
            g.expand(g.reshape(mask, whole), (*lead, *_lengths(op))), (*outer, *_lengths(op))
        )
    whole = (1,) * (2 - len(lead)) + whole
    return g.expand(g.reshape(mask, whole), (*whole[:-2], *_lengths(op)))


def _has_finite_hidden_score(op: typed.Attention) -> bool:
    """Return whether hidden keys have finite scores: without visible keys all weights are equal."""
    masked = len(op.operands) > 3 and not op.operands[3].type.dtype.is_float
    return op.hidden != -inf and (masked or op.causal)


def _agrees_on_hidden_rows(g: Emitter, op: typed.Attention) -> bool:
    """Return whether ONNX computes the same for a query without visible keys, or there is none."""
    finite = _has_finite_hidden_score(op)
    if _lengths(op)[1] == 0 or (finite and (g.guards or op.hidden > VANISHES)):
        return False
    if len(op.operands) < 4 or (not finite and (op.empty_rows == "zero" or not g.guards)):
        return True
    held = g.stored(op.operands[3])
    if held is None:
        return not g.guards
    seen = held if held.dtype == np.bool_ else held != -np.inf
    seen = np.broadcast_to(seen, np.broadcast_shapes(seen.shape, _lengths(op)))
    if op.causal:
        seen = seen & np.tri(*_lengths(op), dtype=bool)
    return bool(seen.any(-1).all())
