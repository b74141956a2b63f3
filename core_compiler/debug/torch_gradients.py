"""Comparison of gradients of single ops with torch's autograd, in f64, if torch is imported.

The table of counterparts is short: the ops that are most common in models.  An op without a
counterpart, or whose counterpart does not compute the same, is compared with numerical derivatives
alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from core_compiler.debug.gradients import SLOPE, GradientCheck, PeerResult, Point, failure
from core_compiler.debug.metric import distance
from core_compiler.debug.ties import point_of_ties
from core_compiler.ir import Op, TensorType, Value
from core_compiler.ir.views import OpView
from core_compiler.ops import typed
from core_compiler.ops.base import view


def version() -> str:
    """Return the version of torch if this process has imported it, else "".

    A torch model has imported it; others do not wait for the import.
    """
    torch = sys.modules.get("torch")
    return str(getattr(torch, "__version__", ""))


def _conv(torch: Any, op: typed.Conv, xs: Sequence[Any]) -> Any:
    x, weight, *bias = xs
    low, high = op.low, op.high
    if any(n < 0 for n in (*low, *high)):
        return None
    pads = [n for pair in reversed(list(zip(low, high, strict=True))) for n in pair]
    name = f"conv{len(low)}d"
    if not hasattr(torch.nn.functional, name) or bias:
        return None
    made = torch.nn.functional.pad(x, pads)
    return getattr(torch.nn.functional, name)(
        made, weight, stride=op.strides, dilation=op.dilations, groups=op.groups
    )


def _pool(torch: Any, op: typed.MaxPool, xs: Sequence[Any]) -> Any:
    low, high, window = op.low, op.high, op.window
    name = f"max_pool{len(window)}d"
    if tuple(low) != tuple(high) or not hasattr(torch.nn.functional, name):
        return None
    if any(2 * n > w for n, w in zip(low, window, strict=True)):
        return None
    return getattr(torch.nn.functional, name)(xs[0], window, op.strides, low, op.dilations)


def _layer_norm(torch: Any, op: typed.LayerNorm, xs: Sequence[Any]) -> Any:
    x, *rest = xs
    shape = x.shape[op.axis :]
    rest = [r.reshape(shape) for r in rest]
    return torch.nn.functional.layer_norm(x, shape, *rest, eps=op.epsilon)


def _cross_entropy(torch: Any, op: typed.CrossEntropy, xs: Sequence[Any]) -> Any:
    x, targets, *weight = xs
    return torch.nn.functional.cross_entropy(
        x,
        targets.long(),
        *weight,
        reduction=op.reduction,
        ignore_index=op.ignore_index,
        label_smoothing=op.label_smoothing,
    )


def _clamp(torch: Any, op: typed.Clamp, xs: Sequence[Any]) -> Any:
    if op.open:
        low, high = op.low, op.high
        if low is None or high is None:
            return None
        return torch.nn.functional.hardtanh(xs[0], low, high)
    return torch.clamp(xs[0], op.low, op.high)


def _sort(torch: Any, op: typed.Sort, xs: Sequence[Any]) -> Any:
    return torch.sort(xs[0], dim=op.axis, descending=op.descending, stable=True)[0]


def _one(name: str) -> Callable[[Any, OpView, Sequence[Any]], Any]:
    """Return a function of torch (or of its ``special``) of the operands alone."""

    def call(torch: Any, op: OpView, xs: Sequence[Any]) -> Any:
        function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
        return function(*xs)

    return call


_PLAIN = (
    "abs", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos",
    "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
    "sigmoid", "relu", "neg", "add", "sub", "mul", "div", "pow", "atan2", "matmul", "silu",
    "softsign", "selu",
)  # fmt: skip
#: Kind -> (torch, view of the op, operands) -> the result, or None if this form of the op has no
#: counterpart.
COUNTERPARTS: dict[str, Callable[[Any, Any, Sequence[Any]], Any]] = {
    **{f"core.{name}": _one(name) for name in _PLAIN},
    "core.max": _one("maximum"),
    "core.min": _one("minimum"),
    "core.conv": _conv,
    "core.max_pool": _pool,
    "core.layer_norm": _layer_norm,
    "core.cross_entropy": _cross_entropy,
    "core.clamp": _clamp,
    "core.sort": _sort,
    "core.select": lambda torch, op, xs: torch.where(*xs),
    "core.hard_swish": _one("hardswish"),
    "core.gelu": lambda torch, op, xs: torch.nn.functional.gelu(xs[0], approximate=op.approximate),
    "core.elu": lambda torch, op, xs: torch.nn.functional.elu(xs[0], op.alpha),
    "core.celu": lambda torch, op, xs: torch.nn.functional.celu(xs[0], op.alpha),
    "core.leaky_relu": lambda torch, op, xs: torch.nn.functional.leaky_relu(xs[0], op.slope),
    "core.softmax": lambda torch, op, xs: torch.softmax(xs[0], op.axis),
    "core.log_softmax": lambda torch, op, xs: torch.log_softmax(xs[0], op.axis),
    "core.logsumexp": lambda torch, op, xs: torch.logsumexp(xs[0], op.axes),
    "core.reduce_sum": lambda torch, op, xs: torch.sum(xs[0], op.axes),
    "core.mean": lambda torch, op, xs: torch.mean(xs[0], op.axes),
    "core.reduce_max": lambda torch, op, xs: torch.amax(xs[0], op.axes),
    "core.reduce_min": lambda torch, op, xs: torch.amin(xs[0], op.axes),
    "core.variance": lambda torch, op, xs: torch.var(xs[0], op.axes, correction=op.correction),
    "core.standard_deviation": lambda torch, op, xs: torch.std(
        xs[0], op.axes, correction=op.correction
    ),
    "core.cumsum": lambda torch, op, xs: (
        None if op.reverse or op.exclusive else torch.cumsum(xs[0], op.axis)
    ),
    "core.concat": lambda torch, op, xs: torch.cat(list(xs), op.axis),
    "core.transpose": lambda torch, op, xs: torch.permute(xs[0], op.permutation),
    "core.mse_loss": lambda torch, op, xs: torch.nn.functional.mse_loss(
        *xs, reduction=op.reduction
    ),
}


def compare(check: GradientCheck, points: Sequence[Point]) -> PeerResult | None:
    """Compare the contributions at ``points`` and at ties with torch's; None if no counterpart."""
    op = check.claim.forward[-1]
    counterpart = COUNTERPARTS.get(op.kind)
    if counterpart is None or not version() or len(check.claim.forward) > 1:
        return None
    if len(check.claim.given) != 1 or any(not isinstance(v.type, TensorType) for v in op.operands):
        return None
    import torch

    at_ties = point_of_ties(check)
    worst, compared = 0.0, 0
    for point in [*points, *([] if at_ties is None else [at_ties])]:
        theirs = _autograd(torch, check, counterpart, op, point)
        if theirs is None:
            continue
        compared += 1
        found = check.contributions(point)
        for value, want in theirs.items():
            usual = np.isfinite(want)
            a, b = np.where(usual, want, 0.0), np.where(usual, found[value], 0.0)
            size = float(np.max(np.abs(a), initial=0.0))
            off = distance(a, b)
            if off.relative > SLOPE and np.max(np.abs(a - b), initial=0.0) > SLOPE * (
                size or 1e-12
            ):
                return PeerResult(
                    off.relative,
                    "",
                    failure(
                        check,
                        value,
                        off.index,
                        float(a[off.index]),
                        float(b[off.index]),
                        off.relative,
                        f"torch's autograd at {point.name}",
                    ),
                )
            worst = max(worst, off.relative if np.isfinite(off.relative) else 0.0)
    return PeerResult(worst, "torch's autograd") if compared else None


def _autograd(torch, check, counterpart, op: Op, point: Point) -> dict[Value, np.ndarray] | None:
    """Return torch's cotangents of the operands, or None if it computes something else."""
    leaves = {v: torch.tensor(point.x[v] if v in point.x else check.fixed(v)) for v in op.operands}
    for value in check.varied:
        leaves[value].requires_grad_(True)
    ((result, cotangent),) = check.claim.given
    try:
        made = counterpart(torch, view(op), [leaves[v] for v in op.operands])
        if made is None or tuple(made.shape) != tuple(result.type.shape):
            return None
        ours = point.made[result]
        theirs = made.detach().numpy()
        usual = np.isfinite(ours) & np.isfinite(theirs)
        same = distance(np.where(usual, theirs, 0.0), np.where(usual, ours, 0.0))
        if same.relative > 1e-9:
            return None
        made.backward(torch.tensor(point.cotangents[cotangent]))
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None
    zeros = {v: np.zeros(v.type.shape) for v in check.varied}
    return {v: zeros[v] if leaves[v].grad is None else leaves[v].grad.numpy() for v in check.varied}
