"""Composites spelled out in primitives, the ways that exporters and people write them.

Each function answers ``build(builder, *values) -> value``; its arguments choose the spelling.
``shape`` is that of x, ``axes`` those that are reduced, ``keep`` how a reduced value goes back:
``broadcast`` directly, ``reshape`` by way of axes of size 1, ``ones`` by a broadcast to these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, prod, sqrt

import numpy as np

from core_compiler.ir import Value

Build = Callable[..., Value]
KEEPS = ("broadcast", "reshape", "ones")


def like(b, number, x):
    return b.scalar_like(number, x)


def back(b, small, x, axes, keep="broadcast", last: Callable | None = None):
    """``small``, reduced along ``axes``, at x's shape again; ``last(small)`` is taken on the way,
    where the reduced axes are of size 1."""
    shape, last = x.type.shape, last or (lambda v: v)
    dims = tuple(a for a in range(len(shape)) if a not in axes)
    if keep == "broadcast":
        return b.broadcast(last(small), shape=shape, dims=dims)
    ones = tuple(1 if a in axes else d for a, d in enumerate(shape))
    if keep == "reshape":
        small = b.reshape(small, shape=ones)
    else:
        small = b.broadcast(small, shape=ones, dims=dims)
    return b.broadcast(last(small), shape=shape, dims=tuple(range(len(shape))))


def mean(b, x, axes, how="mean"):
    """The mean: the op, a sum divided by n, or a sum times 1 / n."""
    if how == "mean":
        return b.mean(x, axes=axes)
    total, n = b.reduce_sum(x, axes=axes), prod(x.type.shape[a] for a in axes)
    if how == "div":
        return b.div(total, like(b, n, total))
    return b.mul(total, like(b, 1 / n, total))


# -- activations -----------------------------------------------------------------------------------


def halved(gate, way: int) -> Build:
    """The three ways to write x * gate / 2."""

    def build(b, x):
        half = like(b, 0.5, x)
        if way == 0:
            return b.mul(b.mul(half, x), gate(b, x))
        return b.mul(b.mul(x, gate(b, x)), half) if way == 1 else b.mul(x, b.mul(gate(b, x), half))

    return build


#: How 1 + erf(x / sqrt 2) is written; ``root`` is sqrt 2 where the form is right.
ERF_GATES: dict[str, Callable] = {
    "erf(x / c) + 1": lambda b, x, root: b.add(b.erf(b.div(x, like(b, root, x))), like(b, 1, x)),
    "1 + erf(c x)": lambda b, x, root: b.add(like(b, 1, x), b.erf(b.mul(like(b, 1 / root, x), x))),
    "erfc(-x c)": lambda b, x, root: b.erfc(b.mul(b.neg(x), like(b, 1 / root, x))),
    "erfc(-x / c)": lambda b, x, root: b.erfc(b.div(b.neg(x), like(b, root, x))),
    "erfc(-(x c))": lambda b, x, root: b.erfc(b.neg(b.mul(x, like(b, 1 / root, x)))),
    "erfc(x (-c))": lambda b, x, root: b.erfc(b.mul(x, like(b, -1 / root, x))),
    "erfc(x / -c)": lambda b, x, root: b.erfc(b.div(x, like(b, -root, x))),
}


def gelu(form: str, way: int, root: float = sqrt(2)) -> Build:
    return halved(lambda b, x: ERF_GATES[form](b, x, root), way)


def _cube(b, x, how):
    return b.pow(x, like(b, 3, x)) if how == "pow" else b.mul(x, b.mul(x, x))


def _bend(b, x, how: str, c: float):
    """sqrt(2 / pi) (x + c x**3)."""
    beta = like(b, sqrt(2 / pi), x)
    if how in ("pow", "mul"):
        return b.mul(b.add(b.mul(_cube(b, x, how), like(b, c, x)), x), beta)
    line = b.add(like(b, 1, x), b.mul(like(b, c, x), b.mul(x, x)))
    return b.mul(b.mul(x, line), beta) if how == "line" else b.mul(b.mul(beta, x), line)


BENDS = ("pow", "mul", "line", "scaled line")


def gelu_tanh(bend: str, way: int, c: float = 0.044715) -> Build:
    return halved(lambda b, x: b.add(b.tanh(_bend(b, x, bend, c)), like(b, 1, x)), way)


def sigmoid(b, x):
    return b.div(like(b, 1, x), b.add(like(b, 1, x), b.exp(b.neg(x))))


def _chosen(b, x, test: str, above, under):
    condition = getattr(b, test)(x, like(b, 0, x))
    return (
        b.select(condition, above, under) if test[0] == "g" else b.select(condition, under, above)
    )


TESTS = ("gt", "ge", "lt", "le")


def leaky_relu(test: str, slope: float) -> Build:
    return lambda b, x: _chosen(b, x, test, x, b.mul(like(b, slope, x), x))


def _growth(b, x, how: str):
    zero = like(b, 0, x)
    kept = {"plain": x, "select": b.select(b.gt(x, zero), zero, x), "min": b.min(x, zero)}
    if how == "exp":
        return b.sub(b.exp(x), like(b, 1, x))
    return b.expm1(kept[how])


GROWTHS = ("plain", "select", "min", "exp")


def elu(test: str, growth: str, alpha: float) -> Build:
    def build(b, x):
        under = _growth(b, x, growth)
        under = under if alpha == 1 else b.mul(like(b, alpha, x), under)
        return _chosen(b, x, test, x, under)

    return build


SELU = 1.0507009873554805, 1.6732632423543772


SELU_FORMS = ("outside", "inside", "apart", "a exp(x) - a")


def selu(test: str, growth: str, where: str, scale: float = SELU[0]) -> Build:
    """The scale outside of the choice, or inside of both branches, there times alpha or apart."""
    if where == "outside":
        return lambda b, x: b.mul(elu(test, growth, SELU[1])(b, x), like(b, scale, x))

    def build(b, x):
        alpha = like(b, SELU[1], x)
        if where == "inside":
            under = b.mul(_growth(b, x, growth), like(b, scale * SELU[1], x))
        elif where == "apart":
            under = b.mul(b.mul(alpha, _growth(b, x, growth)), like(b, scale, x))
        else:
            under = b.mul(like(b, scale, x), b.sub(b.mul(alpha, b.exp(x)), alpha))
        return _chosen(b, x, test, b.mul(x, like(b, scale, x)), under)

    return build


def softplus(form: str, beta: float = 1.0, threshold: float = 20.0) -> Build:
    def build(b, x):
        if form in ("stable", "guarded"):
            zero = like(b, 0, x)
            made = b.add(b.max(x, zero), b.log1p(b.exp(b.neg(b.abs(x)))))
            return b.select(b.ne(x, x), x, made) if form == "guarded" else made
        steep = x if form == "threshold" else b.mul(x, like(b, beta, x))
        made = b.log1p(b.exp(steep))
        if form == "over beta":
            made = b.div(made, like(b, beta, x))
        elif form == "times 1 / beta":
            made = b.mul(made, like(b, 1 / beta, x))
        return b.select(b.gt(steep, like(b, threshold, x)), x, made)

    return build


def bounded(form: str, low: float, high: float) -> Build:
    def build(b, x):
        bottom, top = like(b, low, x), like(b, high, x)
        if form == "min(max)":
            return b.min(b.max(x, bottom), top)
        if form == "max(min)":
            return b.max(b.min(x, top), bottom)
        if form == "clamps":
            return b.clamp(b.clamp(x, low=low), high=high)
        inner = b.select(b.lt(x, bottom), bottom, x)
        return b.select(b.gt(x, top), top, inner)

    return build


def _six(b, x):
    return b.clamp(b.add(x, like(b, 3, x)), low=0.0, high=6.0)


def hard_sigmoid(form: str, alpha: float = 0.2, beta: float = 0.5) -> Build:
    def build(b, x):
        if form == "line":
            line = b.add(b.mul(x, like(b, alpha, x)), like(b, beta, x))
            return b.clamp(line, low=0.0, high=1.0)
        if form == "x / 6":
            return b.div(_six(b, x), like(b, 6, x))
        return b.mul(_six(b, x), like(b, 1 / 6, x))

    return build


def hard_swish(form: str) -> Build:
    def build(b, x):
        if form == "sigmoid":
            return b.mul(x, b.hard_sigmoid(x, alpha=1 / 6, beta=0.5))
        product = b.mul(x, _six(b, x))
        if form == "x / 6":
            return b.div(product, like(b, 6, x))
        return b.mul(product, like(b, 1 / 6, x))

    return build


# -- softmax ---------------------------------------------------------------------------------------


def softmax(axes: Sequence[tuple], keeps=("broadcast", "broadcast"), log=False, of=None) -> Build:
    """``axes`` of the largest and of the sum; ``of``: what the largest is taken of instead of x."""

    def build(b, x):
        largest = b.reduce_max(of(b, x) if of else x, axes=axes[0])
        shifted = b.sub(x, back(b, largest, x, axes[0], keeps[0]))
        weights = b.exp(shifted)
        total = b.reduce_sum(weights, axes=axes[1])
        if log:
            return b.sub(shifted, back(b, total, x, axes[1], keeps[1], b.log))
        return b.div(weights, back(b, total, x, axes[1], keeps[1]))

    return build


def softmax_moved(b, x):
    """The largest is taken before a transpose, as ``jax.vmap`` writes it."""
    moved = b.transpose(x, permutation=(1, 0, 2))
    largest = b.transpose(b.reduce_max(x, axes=(2,)), permutation=(1, 0))
    weights = b.exp(b.sub(moved, back(b, largest, moved, (2,))))
    return b.div(weights, back(b, b.reduce_sum(weights, axes=(2,)), moved, (2,)))


# -- normalisations --------------------------------------------------------------------------------

VARIANCES = ("deviations", "squares", "squares held at 0")
FORMS = ("/ sqrt", "* rsqrt", "* 1 / sqrt", "* pow", "* (rsqrt * scale)", "apart")


def normalised(
    form: str,
    variance: str,
    axes: tuple[int, ...],
    keep="reshape",
    how="mean",
    eps: float = 1e-5,
    along: tuple[int, ...] = (),
    other: tuple[int, ...] | None = None,
    centred: bool = True,
) -> Build:
    """(x - mean) / sqrt(variance + eps) over ``axes``; the forms with a scale (and bias) take them
    as further values that lie ``along`` these axes.  ``other``: axes of the variance, if not
    those."""

    def build(b, x, *parameters):
        average = mean(b, x, axes, how)
        d = b.sub(x, back(b, average, x, axes, keep)) if centred else x
        over = other or axes
        if variance == "deviations":
            spread = mean(b, b.mul(d, d), over, how)
        elif variance == "variance":
            spread = b.variance(x, axes=over)
        else:
            square = mean(b, b.mul(x, x), over, how)
            spread = b.sub(square, b.mul(average, average))
            if variance == "squares held at 0":
                spread = b.max(spread, like(b, 0.0, spread))

        def root(v):
            v = b.add(v, like(b, eps, v))
            if form == "/ sqrt":
                return b.sqrt(v)
            if form == "* 1 / sqrt":
                return b.div(like(b, 1, v), b.sqrt(v))
            return b.pow(v, like(b, -0.5, v)) if form == "* pow" else b.rsqrt(v)

        r = back(b, spread, x, over, keep, root)
        if form == "/ sqrt":
            return b.div(d, r)
        if form not in FORMS[4:]:
            return b.mul(d, r)
        wide = [b.broadcast(p, shape=x.type.shape, dims=along) for p in parameters]
        a = b.mul(r, wide[0]) if wide else r
        if form == "* (rsqrt * scale)":
            return b.mul(d, a)
        rest = b.mul(b.neg(back(b, average, x, axes, keep)), a)
        return b.add(b.mul(x, a), b.add(rest, wide[1]) if wide else rest)

    return build


def affine(norm: Build, along: tuple[int, ...], bias: bool) -> Build:
    """``norm(x) * scale (+ bias)``, parameters along the axes ``along``."""

    def build(b, x, *parameters):
        made = norm(b, x)
        wide = [b.broadcast(p, shape=made.type.shape, dims=along) for p in parameters]
        made = b.mul(made, wide[0])
        return b.add(wide[1], made) if bias else made

    return build


def grouped(groups: int, form: str, variance: str, channel: int, keep="reshape") -> Build:
    """Group norm of x with its channels at ``channel``: split, normalised, put together again."""

    def build(b, x):
        shape = x.type.shape
        split = (*shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :])
        axes = tuple(a for a in range(len(split)) if a not in (0, channel))
        norm = normalised(form, variance, axes, keep)
        return b.reshape(norm(b, b.reshape(x, shape=split)), shape=shape)

    return build


def batch_norm(form: str, channel: int, eps: float = 1e-5) -> Build:
    def build(b, x, scale, bias, average, variance):
        def wide(v):
            return b.broadcast(v, shape=x.type.shape, dims=(channel,))

        d, v = b.sub(x, wide(average)), b.add(variance, like(b, eps, variance))
        if form == "/ sqrt":
            made = b.mul(b.div(d, wide(b.sqrt(v))), wide(scale))
        elif form == "* rsqrt":
            made = b.mul(b.mul(d, wide(b.rsqrt(v))), wide(scale))
        else:
            made = b.mul(d, wide(b.mul(b.rsqrt(v), scale)))
        return b.add(made, wide(bias))

    return build


# -- attention -------------------------------------------------------------------------------------

LAYOUTS = ("bhqd", "bqhd", "(bh)qd")
SCALES = ("mul", "div", "q", "both", "late", "none")
MASKS = ("none", "bias", "keys", "heads", "seen", "hidden", "causal", "causal and bias")


def attention(
    layout: str,
    scale: str,
    mask: str,
    groups: int = 1,
    low: float = -np.inf,
    last: int = -1,
    between: Callable | None = None,
) -> Build:
    """softmax(q k^T / sqrt(width) + mask) v; q is [b, h * groups, t, d] in the order of ``layout``,
    k and v have h heads.  ``last``: the axis of the softmax, ``between``: done to the scores."""

    def build(b, q, k, v, *masks):
        width = q.type.shape[-1]
        by = {"q": width**-0.5, "both": width**-0.25, "late": width**-0.25}.get(scale)
        if by is not None:
            q = b.mul(q, like(b, by, q))
        if scale == "both":
            k = b.mul(k, like(b, by, k))
        scores = _scores(b, layout, q, k, groups, by if scale == "late" else None)
        if scale in ("mul", "div"):
            number = like(b, width**-0.5 if scale == "mul" else width**0.5, scores)
            scores = b.mul(scores, number) if scale == "mul" else b.div(scores, number)
        scores = between(b, scores) if between else scores
        scores = _masked(b, scores, mask, masks, low)
        axis = range(scores.type.rank)[last]
        return _valued(b, layout, b.softmax(scores, axis=axis), v, groups)

    return build


def _repeated(b, x, groups: int, axis: int):
    """Each head ``groups`` times, as ``repeat_interleave`` does."""
    if groups == 1:
        return x
    shape = x.type.shape
    split = (*shape[: axis + 1], groups, *shape[axis + 1 :])
    dims = tuple(a for a in range(len(split)) if a != axis + 1)
    wide = b.broadcast(x, shape=split, dims=dims)
    return b.reshape(wide, shape=(*shape[:axis], shape[axis] * groups, *shape[axis + 1 :]))


def _scores(b, layout, q, k, groups, late):
    """[b, h, q, k]."""
    if layout == "bqhd":
        k = _repeated(b, k, groups, 2)
        return b.contract(q, k, batch_a=(0, 2), batch_b=(0, 2), contract_a=(3,), contract_b=(3,))
    k = b.transpose(_repeated(b, k, groups, 1), permutation=(0, 1, 3, 2))
    k = k if late is None else b.mul(k, like(b, late, k))
    if layout == "bhqd":
        return b.matmul(q, k)
    shape = (*q.type.shape[:-1], k.type.shape[-1])
    q, k = (_joined(b, x) for x in (q, k))
    return b.reshape(b.matmul(q, k), shape=shape)


def _joined(b, x):
    """Batch and heads as one axis."""
    return b.reshape(x, shape=(prod(x.type.shape[:2]), *x.type.shape[2:]))


def _masked(b, scores, mask, masks, low):
    shape = scores.type.shape
    if mask == "none":
        return scores
    if mask == "bias":
        return b.add(scores, masks[0])
    if mask in ("keys", "heads"):  # [b, k]; [h, q, k]
        dims = (0, 3) if mask == "keys" else (1, 2, 3)
        return b.add(b.broadcast(masks[0], shape=shape, dims=dims), scores)
    hidden = like(b, low, scores)
    if mask in ("seen", "hidden"):  # [b, q, k]
        wide = b.broadcast(masks[0], shape=shape, dims=(0, 2, 3))
        sides = (scores, hidden) if mask == "seen" else (hidden, scores)
        return b.select(wide, *sides)
    if mask == "causal and bias":
        scores = b.add(scores, masks[0])
    below = b.constant(np.tri(*shape[-2:], dtype=bool))
    return b.select(b.expand(below, shape), scores, hidden)


def _valued(b, layout, shares, v, groups):
    if layout == "bqhd":
        v = _repeated(b, v, groups, 2)
        made = b.contract(
            v, shares, batch_a=(0, 2), batch_b=(0, 1), contract_a=(1,), contract_b=(3,)
        )
        return b.transpose(made, permutation=(0, 3, 1, 2))
    v = _repeated(b, v, groups, 1)
    if layout == "bhqd":
        return b.matmul(shares, v)
    shape = (*shares.type.shape[:-1], v.type.shape[-1])
    return b.reshape(b.matmul(_joined(b, shares), _joined(b, v)), shape=shape)


# -- losses ----------------------------------------------------------------------------------------


def one_hot(classes: int, dtype="f32", first=0, axis=-1) -> Build:
    def build(b, index):
        shape = (*index.type.shape, classes)
        axis_ = range(len(shape))[axis]
        wide = b.broadcast(index, shape=shape, dims=tuple(range(len(shape) - 1)))
        counted = b.constant(np.arange(first, first + shape[axis_]).astype(np.int64))
        counted = b.broadcast(counted, shape=shape, dims=(axis_,))
        return b.cast(b.eq(wide, counted), dtype=dtype)

    return build


def _column(b, t):
    return b.reshape(t, shape=(t.type.shape[0], 1, *t.type.shape[1:]))


def picked(ignore: int | None, reduction: str, log=False, weighted=False, wrap=True) -> Build:
    """-x[n, t[n, ..], ..] of targets that may be ignored, its sum or mean."""

    def build(b, x, t, *weight):
        x = b.log_softmax(x, axis=1) if log else x
        scores = b.mul(x, b.broadcast(weight[0], shape=x.type.shape, dims=(1,))) if weight else x
        if ignore is None:
            zero = like(b, 0, t)
            t = b.select(b.lt(t, zero), b.add(t, like(b, x.type.shape[1], t)), t) if wrap else t
            losses = b.neg(b.take_along(scores, _column(b, t), axis=1))
            losses = b.reshape(losses, shape=t.type.shape)
            every = tuple(range(losses.type.rank))
            return losses if reduction == "none" else b.mean(losses, axes=every)
        counts = b.ne(t, like(b, ignore, t))
        kept = _column(b, b.select(counts, t, like(b, 0, t)))
        found = b.reshape(b.take_along(scores, kept, axis=1), shape=t.type.shape)
        losses = b.select(counts, b.neg(found), like(b, 0, found))
        every = tuple(range(losses.type.rank))
        if reduction == "none":
            return losses
        total = b.reduce_sum(losses, axes=every)
        if reduction == "sum":
            return total
        if not weight:
            number = b.reduce_sum(b.cast(counts, dtype="i64"), axes=every)
            return b.div(total, b.cast(number, dtype=x.type.dtype))
        wide = b.broadcast(weight[0], shape=x.type.shape, dims=(1,))
        used = b.reshape(b.take_along(wide, kept, axis=1), shape=t.type.shape)
        return b.div(total, b.reduce_sum(b.select(counts, used, like(b, 0, used)), axes=every))

    return build


def smoothed(share: float, left: float | None = None) -> Build:
    """Cross entropy with label smoothing; ``left``: the factor of the target's own loss."""

    def build(b, x, t):
        shares = b.log_softmax(x, axis=1)
        ignored = b.eq(t, like(b, -100, t))
        hard = picked(-100, "mean")(b, shares, t)
        losses = b.neg(b.reduce_sum(shares, axes=(1,)))
        every = tuple(range(losses.type.rank))
        total = b.reduce_sum(b.select(ignored, like(b, 0, losses), losses), axes=every)
        number = b.reduce_sum(b.cast(b.not_(ignored), dtype="i64"), axes=every)
        soft = b.div(total, b.cast(number, dtype=x.type.dtype))
        kept = 1 - share if left is None else left
        return b.add(
            b.mul(hard, like(b, kept, hard)), b.mul(soft, like(b, share / x.type.shape[1], soft))
        )

    return build


def squared_error(reduction: str, how: str = "mean") -> Build:
    def build(b, x, y):
        d = b.sub(x, y)
        every = tuple(range(d.type.rank))
        squares = b.mul(d, d)
        return (
            b.reduce_sum(squares, axes=every)
            if reduction == "sum"
            else mean(b, squares, every, how)
        )

    return build


# -- rotary embeddings -----------------------------------------------------------------------------


def cut(b, x, start: int, stop: int, step: int = 1):
    """``x[..., start:stop:step]``."""
    *lead, _ = x.type.shape
    return b.slice(
        x,
        starts=(*(0 for _ in lead), start),
        limits=(*lead, stop),
        strides=(*(1 for _ in lead), step),
    )


def turned_whole(b, x, cos, sin):
    """x * cos + (-v, u) * sin, angles for every element."""
    width, axis = x.type.shape[-1], x.type.rank - 1
    turned = b.concat(b.neg(cut(b, x, width // 2, width)), cut(b, x, 0, width // 2), axis=axis)
    return b.add(b.mul(turned, sin), b.mul(x, cos))


def turned_pairs(apart: str, swapped: bool) -> Build:
    """(u cos - v sin, u sin + v cos), an angle for each pair; ``apart``: where the two of a pair
    are: ``halves``, ``strides`` (neighbours) or ``pairs`` (neighbours, cut by way of an axis)."""

    def build(b, x, cos, sin):
        *lead, width = x.type.shape
        if apart == "halves":
            u, v = cut(b, x, 0, width // 2), cut(b, x, width // 2, width)
        elif apart == "strides":
            u, v = cut(b, x, 0, width, 2), cut(b, x, 1, width, 2)
        else:
            two = b.reshape(x, shape=(*lead, width // 2, 2))
            u, v = (b.reshape(cut(b, two, i, i + 1), shape=(*lead, width // 2)) for i in (0, 1))
        real = b.sub(b.mul(u, cos), b.mul(sin, v))
        imaginary = (b.mul(u, sin), b.mul(v, cos))
        imaginary = b.add(*(imaginary[::-1] if swapped else imaginary))
        if apart == "halves":
            return b.concat(real, imaginary, axis=len(lead))
        parts = [b.reshape(p, shape=(*lead, width // 2, 1)) for p in (real, imaginary)]
        return b.reshape(b.concat(*parts, axis=len(lead) + 1), shape=x.type.shape)

    return build
