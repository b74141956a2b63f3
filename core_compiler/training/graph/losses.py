"""Losses as ops; formulas and defaults are those of ``torch.nn``.

A loss returns a total and a count; the mean divides once, even if the batch is cut into shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

import numpy as np
from typing_extensions import override

from core_compiler.ir import TensorType, Value, tensor
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype, widened
from core_compiler.ops.gradients.table import Term
from core_compiler.ops.rules import I64
from core_compiler.support.errors import UserError, nearest
from core_compiler.training.options import flag, number, whole


@dataclass(frozen=True)
class Classes:
    """The range of class targets: from 0 to below ``count``, or ``ignored``."""

    count: int
    ignored: int

    def check(self, targets: np.ndarray) -> None:
        """Raise a UserError that names the first invalid class, which the gather would misread.

        Also raise it if all targets are ignored, because the mean of no losses is undefined.
        """
        if targets.dtype.kind not in "iu" or not targets.size:
            return  # the step reports the expected dtype
        if targets.min() >= 0 and targets.max() < self.count:
            return
        if (targets == self.ignored).all():
            raise UserError(
                f"all targets of the batch are {self.ignored}, which is ignored: the "
                "loss is undefined",
                "loss",
                "leave such batches out; the iteration did not change the state",
            )
        wrong = ((targets < 0) | (targets >= self.count)) & (targets != self.ignored)
        if wrong.any():
            at = np.unravel_index(int(wrong.argmax()), wrong.shape)
            row, *inside = map(int, at) if at else (0,)
            place = f"row {row}" + (f", at {inside}" if inside else "")
            raise UserError(
                f"target {targets[at]} in {place} of the batch is out of range for {self.count} "
                "classes",
                "loss",
                f"pass targets from 0 to {self.count - 1}, or {self.ignored}, "
                "which is ignored; the iteration did not change the state",
            )


class Loss:
    """The base class of losses; ``target(output)`` is the type of the target."""

    def target(self, output: TensorType) -> TensorType:
        return output

    def classes(self, output: TensorType) -> Classes | None:
        """Return the valid targets if they are classes."""
        return None

    def hint(self, output: TensorType, shape: tuple[int, ...]) -> str:
        """Return the loss for which targets of another ``shape`` would be right, or ""."""
        return ""

    def totals(self, b: Builder, output: Value, target: Value) -> tuple[Value, Value]:
        """Return the sum of the losses and the divisor of their mean: rank 0, f32 (or f64)."""
        raise NotImplementedError


def _sum_all(b: Builder, x: Value) -> Value:
    return b.reduce_sum(x, axes=tuple(range(x.type.rank))) if x.type.rank else x


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Cross entropy of logits and classes (i64).

    ``axis`` is the class axis of the logits: 1 in torch, -1 (the last) in language models; for [N,
    C] they are the same.
    """

    axis: int = -1
    label_smoothing: float = 0.0
    ignore_index: int = -100

    def __post_init__(self) -> None:
        smoothing = number(
            "loss",
            "label_smoothing",
            self.label_smoothing,
            lambda v: 0 <= v <= 1,
            "pass a number from 0 to 1",
        )
        object.__setattr__(self, "label_smoothing", smoothing)
        for name in ("axis", "ignore_index"):
            held = whole(
                "loss", name, getattr(self, name), -(2**63), 2**63 - 1, "pass a whole number"
            )
            object.__setattr__(self, name, held)

    def _axis(self, output: TensorType) -> int:
        axis = self.axis + output.rank if self.axis < 0 else self.axis
        if not 0 <= axis < output.rank or output.rank < 2:
            raise UserError(
                f"the output {output} has no class axis {self.axis}",
                "loss",
                "pass the axis of the classes in an output [batch, .., classes]",
            )
        return axis

    @override
    def target(self, output: TensorType) -> TensorType:
        axis = self._axis(output)
        return tensor(tuple(d for i, d in enumerate(output.shape) if i != axis), I64)

    @override
    def hint(self, output: TensorType, shape: tuple[int, ...]) -> str:
        axes = [
            a for a in range(1, output.rank) if shape == (*output.shape[:a], *output.shape[a + 1 :])
        ]
        return f"CrossEntropy(axis={axes[0]})" if axes else ""

    @override
    def classes(self, output: TensorType) -> Classes | None:
        return Classes(int(output.shape[self._axis(output)]), self.ignore_index)

    @override
    def totals(self, b, output, target):
        axis, shape = self._axis(output.type), output.type.shape
        if axis != 1:  # move the classes to axis 1: one row per target
            if axis != len(shape) - 1:
                order = [i for i in range(len(shape)) if i != axis]
                output = b.transpose(output, permutation=(*order, axis))
            rows = prod(target.type.shape)
            output = b.reshape(output, shape=(rows, shape[axis]))
            target = b.reshape(target, shape=(rows,))
        total = b.cross_entropy(
            output,
            target,
            reduction="sum",
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )
        total = widened(b, total)
        counts = b.ne(target, b.scalar_like(self.ignore_index, target))
        return total, _sum_all(b, as_dtype(b, counts, total.type.dtype))


class _Pointwise(Loss):
    """A loss of each element; the mean divides by the number of elements."""

    def each(self, x: Term, y: Term) -> Term:
        raise NotImplementedError

    def count(self, output: TensorType) -> int:
        return output.elements

    @override
    def totals(self, b, output, target):
        if output.type.shape != target.type.shape:
            raise UserError(
                f"the output is {output.type} but the target is {target.type}",
                "loss",
                "pass targets of the output's shape",
            )
        x, y = widened(b, output), widened(b, target)
        total = _sum_all(b, self.each(Term(b, x), Term(b, y)).value)
        return total, b.constant(self.count(output.type), total.type.dtype)


@dataclass(frozen=True)
class MeanSquaredError(_Pointwise):
    """The squared difference ``(x - y)^2``."""

    @override
    def each(self, x, y):
        d = x - y
        return d * d


@dataclass(frozen=True)
class L1(_Pointwise):
    """The absolute difference ``|x - y|``."""

    @override
    def each(self, x, y):
        return (x - y).call("abs")


@dataclass(frozen=True)
class Huber(_Pointwise):
    """``d^2 / 2`` up to ``delta``, then ``delta * (|d| - delta / 2)`` (Huber, 1964)."""

    delta: float = 1.0

    def __post_init__(self) -> None:
        delta = number(
            "loss", "delta", self.delta, lambda v: 0 < v < inf, "pass a finite number above 0"
        )
        object.__setattr__(self, "delta", delta)

    @override
    def each(self, x, y):
        d = x - y
        size = d.call("abs")
        far = (size - self.delta / 2) * self.delta
        return (d * d * 0.5).where(size <= self.delta, far)


@dataclass(frozen=True)
class BCEWithLogits(_Pointwise):
    """Binary cross entropy of logits: ``(1 - y) * x + softplus(-x)``."""

    @override
    def each(self, x, y):
        return (1 - y) * x + (-x).call("softplus")


@dataclass(frozen=True)
class KLDivergence(_Pointwise):
    """y * (log y - x) for log probabilities x, 0 where y is 0.

    With ``batch`` the mean is over the batch (torch's ``batchmean``), otherwise over all elements.
    """

    batch: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", flag("loss", "batch", self.batch))

    @override
    def each(self, x, y):
        return (y * (y.call("log") - x)).unless(y.same(0))

    @override
    def count(self, output: TensorType) -> int:
        if not self.batch or not output.rank:
            return output.elements
        return int(output.elements // max(1, prod(map(int, output.shape[1:]))))


@dataclass(frozen=True)
class Own(Loss):
    """The model's first result as the loss; there is no target."""

    @override
    def target(self, output: TensorType) -> TensorType:
        raise UserError("the model's own loss takes no targets", "loss", "leave the targets out")

    @override
    def totals(self, b, output, target=None):
        if output.type.elements != 1 or not output.type.dtype.is_float:
            raise UserError(
                f"expected a loss as the model's first result, got {output.type}",
                "loss",
                "pass a loss, or let the model return one float",
            )
        total = widened(b, output)
        if total.type.rank:
            total = b.reshape(total, shape=())
        return total, b.constant(1, total.type.dtype)


#: The losses by the names that the command line and :class:`Training` accept.
LOSSES = {
    "cross_entropy": CrossEntropy,
    "mse": MeanSquaredError,
    "l1": L1,
    "huber": Huber,
    "bce_with_logits": BCEWithLogits,
    "kl": KLDivergence,
    "own": Own,
}


def loss(what: str | Loss | None) -> Loss:
    """Return a loss, given as itself or by name with its defaults; None is the model's own loss."""
    if isinstance(what, Loss):
        return what
    if what is None:
        return Own()
    if what not in LOSSES:
        fix = nearest(str(what), LOSSES, f"choose {', '.join(LOSSES)}")
        raise UserError(f"unknown loss {what!r}", "loss", fix)
    return LOSSES[what]()
