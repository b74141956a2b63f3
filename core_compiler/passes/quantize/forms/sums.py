"""Sums, means and sums with constants, in i32."""

from __future__ import annotations

from math import prod

import numpy as np

from core_compiler.ir import Op, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ops import typed
from core_compiler.passes.quantize.forms.base import CENTRED, I32, Form, Stored
from core_compiler.passes.quantize.roles import constant_of, is_constant

#: Bits below the point of the operands of a sum, which have the larger of both scales.
SUM_BITS = 20
#: The greatest magnitude of constant factors as integers of 16 bits.
FACTOR = (1 << 15) - 1


def total(form: Form, maker: Op) -> Value | Refusal:
    """Add or subtract two values, both first in steps of the larger scale, divided by 2**20."""
    pair = form.both(maker)
    if isinstance(pair, Refusal):
        return pair
    unit = 2 * max(each.scale for each in pair) / (1 << SUM_BITS)
    terms = [_in_steps(form, each, unit) for each in pair]
    return _added(form, maker, terms, unit)


def _in_steps(form: Form, x: Stored, unit: float) -> Value | Refusal:
    return form.scaled(x.q, np.array(x.scale / unit), None, I32, x.zero, 0)


def _added(form: Form, maker: Op, terms: list, unit: float) -> Value | Refusal:
    for each in terms:
        if isinstance(each, Refusal):
            return each
    made = form.b.sub(*terms) if typed.Sub.match(maker) else form.b.add(*terms)
    return form.rescaled(made, np.array(unit / form.result.scale))


def with_constant(form: Form, maker: Op) -> Value | Refusal:
    """Add a tensor of constants, or multiply by it, in as many bits as i32 has room for."""
    (value,) = (v for v in dict.fromkeys(maker.operands) if not is_constant(v, form.rewriter))
    x = form.stored(value)
    if isinstance(x, Refusal):
        return x
    (held,) = (v for v in maker.operands if v is not value)
    array = constant_of(held, form.rewriter, form.module).astype(np.float64)
    if typed.Div.match(maker):
        with np.errstate(divide="ignore"):
            array = 1 / array
    if not np.isfinite(array).all():
        return refuse("finite constants", "{0} has constants that are not finite", maker)
    largest = float(np.abs(array).max())
    if typed.Add.match(maker) or typed.Sub.match(maker):
        unit = 2 * max(x.scale, largest / CENTRED) / (1 << SUM_BITS)
        steps = form.b.constant(np.rint(array / unit).astype(np.int32))
        terms = [_in_steps(form, x, unit), steps]
        return _added(form, maker, terms if maker.operands[0] is value else terms[::-1], unit)
    unit = (largest or 1.0) / FACTOR
    factors = form.b.constant(np.rint(array / unit).astype(np.int32))
    made = form.b.mul(x.centred(form.b), form.b.expand(factors, value.type.shape))
    return form.rescaled(made, np.array(x.scale * unit / form.result.scale))


# -- means -----------------------------------------------------------------------------------------


def mean(form: Form, maker: Op) -> Value | Refusal:
    """Return the mean over axes: an exact sum, divided by the rescale."""
    x = form.stored(maker.operands[0])
    if isinstance(x, Refusal):
        return x
    axes = typed.Mean.of(maker).axes
    count = prod(maker.operands[0].type.shape[a] for a in axes)
    room = form.room(count, CENTRED, maker)
    if isinstance(room, Refusal):
        return room
    made = form.b.reduce_sum(x.centred(form.b), axes=axes)
    if made.type.shape != form.result.q.type.shape:
        made = form.b.reshape(made, shape=form.result.q.type.shape)
    return form.rescaled(made, np.array(x.scale / (count * form.result.scale)))


def mean_of_windows(form: Form, maker: Op) -> Value | Refusal:
    """Return the means of windows: exact sums, by a convolution with ones.

    Windows with fewer positions inside (``count_padding`` is false) are first multiplied by
    integers of 15 bits, the largest for the fewest positions.
    """
    b, pool = form.b, typed.AvgPool.of(maker)
    x = form.stored(maker.operands[0])
    if isinstance(x, Refusal):
        return x
    channels = maker.result.type.shape[1]
    counts = _counts(pool)
    least = int(counts.min())
    if least < 1:
        return refuse("windows of numbers", "{0} has windows of padding only", maker)
    room = form.room(
        prod(pool.window), CENTRED * (FACTOR if len(set(counts.flat)) > 1 else 1), maker
    )
    if isinstance(room, Refusal):
        return room
    ones = b.constant(np.ones((channels, 1, *pool.window), np.int32))
    made = b.conv(
        x.centred(b),
        ones,
        strides=pool.strides,
        low=pool.low,
        high=pool.high,
        dilations=pool.dilations,
        groups=channels,
    )
    unit = x.scale / least
    if (counts != least).any():
        factors = b.constant(np.rint(FACTOR * least / counts).astype(np.int32))
        made = b.mul(made, b.expand(factors, made.type.shape))
        unit /= FACTOR
    return form.rescaled(made, np.array(unit / form.result.scale))


def _counts(pool: typed.AvgPool) -> np.ndarray:
    """Return the number by which each window's sum is divided, over the spatial axes."""
    sizes = pool.x.type.shape[2:]
    made = np.ones((1,) * len(sizes), np.int64)
    for axis, size in enumerate(sizes):
        window, step, low = pool.window[axis], pool.strides[axis], pool.low[axis]
        starts = np.arange(pool.op.result.type.shape[axis + 2])[:, None] * step - low
        at = starts + np.arange(window) * pool.dilations[axis]
        inside = ((at >= 0) & (at < size)).sum(1)
        shape = [-1 if a == axis else 1 for a in range(len(sizes))]
        made = made * (np.full_like(inside, window) if pool.count_padding else inside).reshape(
            shape
        )
    return made
