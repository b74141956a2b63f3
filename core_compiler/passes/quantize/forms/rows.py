"""Softmax and normalisation in integers (core.integer_softmax, core.integer_normalize)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from core_compiler.ir import Op, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.kernel_ir.scalars import integer_range
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import others, spread
from core_compiler.ops.integer_functions import (
    EXPONENT_BITS,
    LONGEST_NORMALIZE,
    LONGEST_SOFTMAX,
    SHARE_BITS,
    exponentials,
    inverse_roots,
    normalized_bits,
    variance_bits,
)
from core_compiler.ops.quantised import fixed_point
from core_compiler.passes.quantize.forms.base import WIDE, Form, Stored
from core_compiler.passes.quantize.roles import constant_of, hidden_by, is_constant

#: A score that is hidden is so much below all others that its share is 0: exp(-30).
BELOW = 30
#: The greatest magnitude of a normalisation's factors: products of 16 bits with them fit 31.
FACTOR = (1 << 14) - 1


def softmax(form: Form, maker: Op) -> Value | Refusal:
    """Return softmax along an axis; where a constant hides scores, their shares are 0."""
    b = form.b
    axis = typed.Softmax.of(maker).axis
    size = maker.result.type.shape[axis]
    if size > LONGEST_SOFTMAX:
        return refuse("short rows", "{0} adds {1} exponentials", maker, size)
    read, hides = hidden_by(maker, form.rewriter)
    x = form.stored(read, WIDE)
    if isinstance(x, Refusal):
        return x
    point = fixed_point(x.scale * (1 << EXPONENT_BITS))
    if point is None or not point[0]:
        return refuse("factors of 31 bits", "the scale of {0} is {1}", maker, x.scale)
    q = x.q
    visible: tuple[Value, ...] = ()
    if hides is not None:
        seen = _visible(form, hides, x, axis)
        if isinstance(seen, Refusal):
            return seen
        q, visible = seen[0], (seen[1],)
        form.ops.append(hides)
    tables = [b.constant(part) for part in exponentials()]
    factor = {"multiplier": point[0], "shift": point[1]}
    made = b.integer_softmax(q, *tables, *visible, axis=axis, **factor)
    return form.rescaled(made, np.array(2.0**-SHARE_BITS / form.result.scale))


def _visible(form: Form, hides: Op, x: Stored, axis: int) -> tuple[Value, Value] | Refusal:
    """Return the scores, and which of them a select keeps.

    Where a row keeps none, its shares are 0 if -infinity hides them, and equal if a number does.
    """
    b = form.b
    seen = b.expand(hides.operands[0], x.q.type.shape)
    hidden = float(constant_of(hides.operands[2], form.rewriter, form.module).flat[0])
    least = integer_range(x.q.type.dtype)[0]
    if not hidden <= (least - x.zero) * x.scale - BELOW:
        return refuse("scores out of sight", "{0} hides scores by {1}", hides, hidden)
    if not np.isfinite(hidden):
        return x.q, seen
    q = b.select(seen, x.q, b.scalar_like(least, x.q))
    some = spread(b, b.reduce_or(seen, axes=(axis,)), seen, others(seen.type.rank, (axis,)))
    return q, b.or_(seen, b.not_(some))


def normalization(form: Form, maker: Op) -> Value | Refusal:
    """Return a norm: integers normalised, times factors of 15 bits, plus a bias."""
    b = form.b
    rows = _rows(maker)
    if isinstance(rows, Refusal):
        return rows
    x = form.stored(maker.operands[0])
    if isinstance(x, Refusal):
        return x
    shape = x.q.type.shape
    count = prod(rows.shape[rows.axis :])
    if not 0 < count <= LONGEST_NORMALIZE:
        return refuse("sums of 32 bits", "{0} normalises {1} numbers", maker, count)
    epsilon = round(rows.epsilon / x.scale**2 * count * (1 << variance_bits(count)))
    if epsilon >= 1 << 30:
        return refuse("an epsilon of 30 bits", "epsilon is most of the variance of {0}", maker)
    made = b.integer_normalize(
        x.q if rows.shape == shape else b.reshape(x.q, shape=rows.shape),
        b.constant(inverse_roots()),
        axis=rows.axis,
        zero_point=x.zero,
        epsilon=epsilon,
        centre=rows.centre,
    )
    if rows.shape != shape:
        made = b.reshape(made, shape=shape)
    unit = 2.0 ** -normalized_bits(count)
    if rows.scale is not None:
        factors = _constant(form, rows.scale)
        if isinstance(factors, Refusal):
            return factors
        step = (float(np.abs(factors).max()) or 1.0) / FACTOR
        whole = np.rint(factors / step).astype(np.int32)
        made, unit = b.mul(made, _spread(b, whole, rows, shape)), unit * step
    if rows.bias is not None:
        added = _constant(form, rows.bias)
        if isinstance(added, Refusal):
            return added
        steps = np.rint(added / unit)
        if np.abs(steps).max() >= 1 << 30:
            return refuse("a bias of 30 bits", "the bias of {0} is larger than the rest", maker)
        made = b.add(made, _spread(b, steps.astype(np.int32), rows, shape))
    return form.rescaled(made, np.array(unit / form.result.scale))


@dataclass(frozen=True)
class _Rows:
    """A norm as it is computed: the axes of ``shape`` from ``axis`` on; its factors and bias."""

    shape: tuple[int, ...]
    axis: int
    epsilon: float
    centre: bool
    scale: Value | None
    bias: Value | None
    #: Whether factors and bias are those of channels, axis 1.
    by_channel: bool = False


def _rows(maker: Op) -> _Rows | Refusal:
    shape = maker.result.type.shape
    if layer := typed.LayerNorm.match(maker):
        return _Rows(shape, layer.axis, layer.epsilon, True, layer.scale, layer.bias)
    if rms := typed.RmsNorm.match(maker):
        return _Rows(shape, rms.axis, rms.epsilon, False, rms.scale, None)
    group = typed.GroupNorm.match(maker)
    found = group or typed.InstanceNorm.of(maker)
    if found.axis != 1:
        return refuse("channels first", "{0} has its channels on axis {1}", maker, found.axis)
    groups = shape[1] if group is None else group.groups
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    return _Rows(split, 2, found.epsilon, True, found.scale, found.bias, by_channel=True)


def _spread(b: Builder, array: np.ndarray, rows: _Rows, shape: tuple[int, ...]) -> Value:
    """Return factors or biases for each element."""
    if rows.by_channel:
        array = array.reshape(-1, *[1] * (len(shape) - 2))
    return b.expand(b.constant(array), shape)


def _constant(form: Form, value: Value) -> np.ndarray | Refusal:
    if is_constant(value, form.rewriter):
        array = constant_of(value, form.rewriter, form.module).astype(np.float64)
        if np.isfinite(array).all():
            return array
    return refuse("constant factors", "a factor or bias of {0} is computed", form.ops[-1])
