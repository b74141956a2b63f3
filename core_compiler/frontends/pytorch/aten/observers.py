"""Observers of quantisation-aware training: running extremes, and scales that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from core_compiler.frontends.pytorch.aten.table import NotSupported, aten
from core_compiler.ir import Value, dtype
from core_compiler.ops.composite import quantised

F32, F64, I32 = map(dtype, ("f32", "f64", "i32"))
#: The least scale that torch chooses, and the one that it takes for a range of 0.
_LEAST, _OF_NOTHING = float(np.float32(6.1e-5)), 0.1


@aten("_fused_moving_avg_obs_fq_helper_functional")
def observed_fake(
    b,
    x,
    observes,
    quantises,
    least,
    most,
    scale,
    zero,
    rate,
    low,
    high,
    axis,
    per_row=False,
    symmetric=False,
):
    """Return x fake-quantised, the mask of what is within range, and the observer's new state."""
    channel = axis % x.type.rank if per_row else None
    count = 1 if channel is None else x.type.shape[channel]
    if {v.type.elements for v in (least, most, scale, zero)} != {count}:
        raise NotSupported("an observer of channels without ranges; call the model once before")
    seen = _moving_averages(b, b.stop_gradient(b.to(x, F32)), (least, most), rate, channel)
    extremes = _chosen(b, observes, seen, (least, most))
    least, most = (b.reshape(v, shape=(count,)) for v in extremes)
    made = _parameters(b, least, most, int(low), int(high), symmetric)
    parameters = _chosen(b, quantises, made, (scale, zero))
    factor, point = (b.reshape(v, shape=() if channel is None else (count,)) for v in parameters)
    limits = {"low": int(low), "high": int(high)}
    made = b.fake_quantize(x, factor, point, axis=channel, reciprocal=True, **limits)
    steps = quantised(b, b.to(x, F32), factor, point, channel, reciprocal=True)
    within = b.and_(*(t(steps, b.scalar_like(n, steps)) for t, n in ((b.ge, low), (b.le, high))))
    is_on = _is_on(b, quantises, x)
    return (b.select(is_on, made, x), b.or_(within, b.not_(is_on)), *extremes, *parameters)


def _chosen(b, switch: Value, new: Iterable[Value], old: Iterable[Value]) -> tuple[Value, ...]:
    """Return the new values if a switch is on, in the shapes of the old ones."""
    return tuple(
        b.select(_is_on(b, switch, was), b.reshape(made, shape=was.type.shape), was)
        for made, was in zip(new, old, strict=True)
    )


def _is_on(b, switch: Value, like: Value) -> Value:
    number = b.reshape(switch, shape=())
    is_on = b.ne(number, b.scalar_like(0, number))
    return b.broadcast(is_on, shape=like.type.shape, dims=())


def _moving_averages(
    b, x: Value, running: Sequence[Value], rate: float, axis: int | None
) -> Iterator[Value]:
    """Yield the new running extremes, in f32 [count]; infinite ones become those of x."""
    axes = tuple(i for i in range(x.type.rank) if i != axis)
    for reduce, old in zip((b.reduce_min, b.reduce_max), running, strict=True):
        old = b.reshape(old, shape=(old.type.elements,))
        new = b.reshape(reduce(x, axes=axes), shape=old.type.shape)
        moved = b.add(old, b.mul(b.scalar_like(rate, old), b.sub(new, old)))
        yield b.select(b.eq(b.abs(old), b.scalar_like(np.inf, old)), new, moved)


def _parameters(
    b, least: Value, most: Value, low: int, high: int, symmetric: bool
) -> tuple[Value, Value]:
    """Return the scales in f32 and the zero points in i32 of ranges, widened to contain 0.

    They have the bits of ``ChooseQuantizationParams`` of torch (quant_utils.h): in f64, with ranges
    in f32.
    """

    def number(n: float, like: Value) -> Value:
        return b.scalar_like(n, like)

    nothing = number(0, least)
    if symmetric:
        half = (high - low) // 2
        ends = -(half + 1), half
        largest = b.max(
            *(b.abs(b.div(v, number(n, v))) for v, n in zip((least, most), ends, strict=True))
        )
        both = b.and_(b.lt(least, nothing), b.gt(most, nothing))
        least, most = (
            b.select(both, b.mul(largest, number(n, largest)), v)
            for v, n in zip((least, most), ends, strict=True)
        )
    least, most = b.min(least, nothing), b.max(most, nothing)
    wide = b.div(b.sub(*(b.cast(v, dtype=F64) for v in (most, least))), _wide(b, high - low, least))
    narrow = b.cast(wide, dtype=F32)
    inverse = b.div(number(1, narrow), narrow)
    none = b.or_(b.eq(narrow, nothing), b.eq(inverse, number(np.inf, inverse)))
    wide = b.select(none, _wide(b, _OF_NOTHING, least), wide)
    is_small = b.lt(wide, _wide(b, _LEAST, least))
    growth = b.div(number(_LEAST, least), b.cast(wide, dtype=F32))
    span = number(float(np.float32(_LEAST) * np.float32(high - low)), least)
    grown = (
        b.select(b.eq(most, nothing), b.neg(span), b.mul(least, growth)),
        b.select(b.eq(least, nothing), span, b.mul(most, growth)),
    )
    least, most = (b.select(is_small, g, v) for g, v in zip(grown, (least, most), strict=True))
    wide = b.select(is_small, _wide(b, _LEAST, least), wide)
    points, errors = [], []
    for extreme, limit in ((least, low), (most, high)):
        steps = b.div(b.cast(extreme, dtype=F64), wide)
        points.append(b.sub(_wide(b, limit, least), steps))
        errors.append(b.sub(_wide(b, abs(limit), least), b.abs(steps)))
    zero = b.select(b.lt(*errors), *points)
    if symmetric:
        both = b.and_(b.lt(least, nothing), b.gt(most, nothing))
        zero = b.select(both, _wide(b, (low + high) / 2, least), zero)
    zero = b.clamp(b.round(zero), low=float(low), high=float(high))
    return b.cast(wide, dtype=F32), b.cast(zero, dtype=I32)


def _wide(b, n: float, like: Value) -> Value:
    return b.broadcast(b.constant(n, F64), shape=like.type.shape, dims=())
