"""Recompose on spellings drawn at random: shapes, axes, dtypes; ordinary and special numbers.

Every rewrite is evaluated before and after on the same boundary values (debug/check.py), and the
whole program on inputs with zeros, infinities, NaN and subnormal numbers: what is not finite must
stay so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core_compiler.debug.bits import same_bits
from core_compiler.debug.check import Checker, worst_error
from core_compiler.passes.recompose import Recompose
from tests.examples import examples
from tests.passes import specs
from tests.passes import spellings as s
from tests.passes.programs import SPECIAL, inputs, program, tensor_type

DTYPES = st.sampled_from(["f32", "f64"])
SIZE = st.integers(1, 5)
few = settings(max_examples=examples(40), deadline=None)


@dataclass(frozen=True)
class Drawn:
    """A program, its argument types, the op that it is; ``largest``: beyond it numbers overflow or
    lose digits in one of the two forms only (None: in both alike)."""

    build: object
    types: tuple[str, ...]
    kind: str
    largest: float | None = None


#: Of these every operand may hold what is not finite; of others the parameters are ordinary.
_ALL_SPECIAL = frozenset({"attention", "nll_loss", "cross_entropy", "mse_loss"})


def typed(shape, dtype: str) -> str:
    return "x".join([*map(str, shape), dtype])


def shapes(low: int, high: int):
    return st.lists(SIZE, min_size=low, max_size=high).map(tuple)


def holds(drawn: Drawn, seed: int) -> None:
    module = program(drawn.build, *drawn.types)
    made, rewrites = specs.apply(Recompose(), module)
    assert drawn.kind in {o.kind[5:] for o in specs.live(made).main.body.ops}, drawn
    ordinary = inputs(module, seed)
    special = inputs(module, seed, special=True)
    if drawn.largest is not None:  # what is not finite in x, and numbers up to that
        special = [
            a
            if a.dtype.kind != "f"
            else np.where(np.isfinite(a), np.clip(a, -drawn.largest, drawn.largest), a).astype(
                a.dtype
            )
            for a in special
        ]
        special[1:] = special[1:] if drawn.kind in _ALL_SPECIAL else ordinary[1:]
    for record in Checker(module, ordinary).stage(rewrites, False, module, made):
        assert record.verdict in ("bitwise", "within"), (drawn, record.rewrite.rule, record.note)
    allowed = 1e-6 + sum(r.tolerance or 0 for r in rewrites)
    for old, new in zip(specs.outputs(module, special), specs.outputs(made, special), strict=True):
        assert worst_error(old, new)[0] <= allowed, drawn


seeds = st.integers(0, 2**16)


# -- activations -----------------------------------------------------------------------------------


@st.composite
def activations(draw):
    pick = lambda *options: draw(st.sampled_from(options))  # noqa: E731
    test, growth, way = pick(*s.TESTS), pick(*s.GROWTHS), draw(st.integers(0, 2))
    number = draw(st.floats(0.0625, 4, width=32))
    low = draw(st.floats(-4, 4, width=32))
    build, kind = pick(
        (s.gelu(pick(*s.ERF_GATES), way), "gelu"),
        (s.gelu_tanh(pick(*s.BENDS), way), "gelu"),
        (s.sigmoid, "sigmoid"),
        (lambda b, x: b.mul(x, s.sigmoid(b, x)), "silu"),
        (s.leaky_relu(test, number), "leaky_relu"),
        (s.elu(test, growth, number), "elu"),
        (s.selu(test, growth, pick(*s.SELU_FORMS)), "selu"),
        (s.softplus(pick("stable", "guarded", "threshold")), "softplus"),
        (s.softplus(pick("over beta", "times 1 / beta"), number), "softplus"),
        (s.bounded(pick("min(max)", "max(min)", "clamps", "select"), low, low + number), "clamp"),
        (s.hard_sigmoid("line", number, low), "hard_sigmoid"),
        (s.hard_sigmoid(pick("x / 6", "x * 1 / 6")), "hard_sigmoid"),
        (s.hard_swish(pick("sigmoid", "x / 6", "x * 1 / 6")), "hard_swish"),
        (lambda b, x: b.mul(x, b.tanh(s.softplus("stable")(b, x))), "mish"),
        (lambda b, x: b.div(x, b.add(s.like(b, 1, x), b.abs(x))), "softsign"),
    )
    # beta * x overflows, and the threshold's branch has x itself.
    largest = 1e30 if kind == "softplus" else None
    return Drawn(build, (typed(draw(shapes(0, 3)), draw(DTYPES)),), kind, largest)


@pytest.mark.slow
@few
@given(activations(), seeds)
def test_activations(drawn, seed):
    holds(drawn, seed)


# -- rows ------------------------------------------------------------------------------------------


@st.composite
def rows(draw):
    shape = draw(shapes(1, 4).filter(lambda d: max(d) > 1))
    axis = draw(st.sampled_from([a for a, size in enumerate(shape) if size > 1]))
    keeps = tuple(draw(st.sampled_from(s.KEEPS)) for _ in range(2))
    log = draw(st.booleans())
    build = s.softmax(((axis,), (axis,)), keeps, log)
    return Drawn(build, (typed(shape, draw(DTYPES)),), "log_softmax" if log else "softmax")


@few
@given(rows(), seeds)
def test_softmax_and_its_logarithm(drawn, seed):
    holds(drawn, seed)


# -- normalisations --------------------------------------------------------------------------------


@st.composite
def normalisations(draw):
    """Over the last axes, or all but the batch and one of channels; with and without parameters."""
    shape = draw(st.lists(st.integers(2, 4), min_size=2, max_size=4).map(tuple))
    rank, dtype = len(shape), draw(DTYPES)
    channel = rank - 1 if rank > 2 and draw(st.booleans()) else None
    axes = tuple(range(draw(st.integers(1, rank - 1)), rank))
    axes = axes if channel is None else tuple(range(1, channel))
    along = axes if channel is None else (channel,)
    rms = channel is None and draw(st.booleans())
    form = draw(st.sampled_from(s.FORMS[:5] if rms else s.FORMS))
    variance = "deviations" if rms else draw(st.sampled_from(s.VARIANCES))
    build = s.normalised(
        form,
        variance,
        axes,
        draw(st.sampled_from(s.KEEPS)),
        draw(st.sampled_from(["mean", "div", "mul"])),
        draw(st.sampled_from([1e-3, 1e-5])),
        along,
        centred=not rms,
    )
    parameter = typed((shape[a] for a in along), dtype)
    count = {"* (rsqrt * scale)": 1, "apart": 2 * draw(st.booleans())}.get(form, 0)
    kind = "rms_norm" if rms else "layer_norm" if channel is None else "instance_norm"
    # Digits are lost where the mean is large; x * (r * scale) overflows elsewhere than x * r.
    raw = variance != "deviations" or form == "apart"
    largest = 4.0 if raw else 1e6 if count else None
    return Drawn(build, (typed(shape, dtype), *[parameter] * count), kind, largest)


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(normalisations(), seeds)
def test_normalisations(drawn, seed):
    holds(drawn, seed)


@st.composite
def groups(draw):
    count, each = draw(st.integers(2, 3)), draw(st.integers(2, 3))
    spatial = draw(st.lists(st.integers(2, 3), min_size=1, max_size=2))
    last = draw(st.booleans())
    shape = (2, *spatial, count * each) if last else (2, count * each, *spatial)
    channel, dtype = (len(shape) - 1 if last else 1), draw(DTYPES)
    variance = draw(st.sampled_from(s.VARIANCES[:2]))
    build = s.grouped(count, draw(st.sampled_from(s.FORMS[:4])), variance, channel)
    parameters = draw(st.integers(0, 2))
    if parameters:
        build = s.affine(build, (channel,), parameters == 2)
    types = (typed(shape, dtype), *[typed((count * each,), dtype)] * parameters)
    return Drawn(build, types, "group_norm", None if variance == "deviations" else 4.0)


@pytest.mark.slow
@few
@given(groups(), seeds)
def test_groups_of_channels(drawn, seed):
    holds(drawn, seed)


@few
@given(st.sampled_from(["/ sqrt", "* rsqrt", "* (rsqrt * scale)"]), shapes(2, 4), st.data(), DTYPES)
def test_statistics_of_channels(form, shape, data, dtype):
    channels = [a for a, size in enumerate(shape) if size > 1]
    assume(channels)
    channel = data.draw(st.sampled_from(channels))
    parameter = typed((shape[channel],), dtype)

    def build(b, x, scale, bias, average, variance):
        return s.batch_norm(form, channel)(b, x, scale, bias, average, b.mul(variance, variance))

    holds(Drawn(build, (typed(shape, dtype), *[parameter] * 4), "batch_norm"), 0)


# -- attention -------------------------------------------------------------------------------------


@st.composite
def attentions(draw):
    layout, mask = draw(st.sampled_from(s.LAYOUTS)), draw(st.sampled_from(s.MASKS))
    scale = draw(st.sampled_from([x for x in s.SCALES if layout != "bqhd" or x != "late"]))
    batch, heads, groups, queries, width, last = (draw(st.integers(1, 3)) for _ in range(6))
    keys = draw(st.integers(2, 5))
    low, dtype = draw(st.sampled_from([-np.inf, -1e9, -1e4])), draw(DTYPES)

    def lie(count, length, size):
        order = (batch, count, length, size) if layout != "bqhd" else (batch, length, count, size)
        return typed(order, dtype)

    full = (batch, heads * groups, queries, keys)
    masks = {
        "none": (),
        "causal": (),
        "bias": (full,),
        "causal and bias": (full,),
        "keys": ((batch, keys),),
        "heads": (full[1:],),
        "seen": ((batch, queries, keys),),
    }
    masks["hidden"] = masks["seen"]
    kind = "i1" if mask in ("seen", "hidden") else dtype
    types = (lie(heads * groups, queries, width), lie(heads, keys, width), lie(heads, keys, last))
    build = s.attention(layout, scale, mask, groups, low)
    return Drawn(build, (*types, *(typed(m, kind) for m in masks[mask])), "attention", 8.0)


@settings(max_examples=examples(80), deadline=None)
@given(attentions(), seeds)
def test_attention(drawn, seed):
    holds(drawn, seed)


# -- losses ----------------------------------------------------------------------------------------


@few
@given(
    st.sampled_from(["none", "sum", "mean"]),
    st.sampled_from([-100, 0, 2]),
    st.booleans(),
    st.booleans(),
    st.integers(2, 5),
    shapes(1, 2),
    DTYPES,
    seeds,
)
def test_losses_over_classes(reduction, ignore, log, weighted, classes, where, dtype, seed):
    """Targets out of range too: a gather clamps them, in both programs."""
    x, targets = (where[0], classes, *where[1:]), typed(where, "i64")
    build = s.picked(ignore, reduction, log)
    types = (typed(x, dtype), targets, *[typed((classes,), dtype)] * weighted)
    holds(Drawn(build, types, "cross_entropy" if log else "nll_loss", 8.0), seed)


@few
@given(
    st.sampled_from(["mean", "sum"]),
    st.sampled_from(["mean", "div", "mul"]),
    shapes(1, 3),
    DTYPES,
    seeds,
)
def test_squared_errors(reduction, how, shape, dtype, seed):
    assume(np.prod(shape) != 1)
    holds(Drawn(s.squared_error(reduction, how), (typed(shape, dtype),) * 2, "mse_loss", 1e6), seed)


# -- what is not raised ----------------------------------------------------------------------------


@few
@given(normalisations(), seeds)
def test_narrow_floats_stay_in_primitives(drawn, seed):
    """They are rounded after each op, which no tolerance of the rules covers."""
    types = [t.rpartition("f")[0] + "f16" for t in drawn.types]
    module = program(drawn.build, *types)
    made, rewrites = specs.apply(Recompose(), module)
    assert all(r.tolerance is None for r in rewrites)
    assert drawn.kind not in {o.kind[5:] for o in made.main.body.ops}


def test_special_numbers_are_among_the_inputs():
    module = program(lambda b, x: b.neg(x), typed((4, 4), "f32"))
    (array,) = inputs(module, 0, special=True)
    assert {float(np.float32(v)) for v in SPECIAL if v == v} <= set(map(float, array.reshape(-1)))
    assert np.isnan(array).any() and tensor_type("4x4xf32").elements == 16


# -- rotary embeddings -----------------------------------------------------------------------------


@st.composite
def rotaries(draw):
    lead, pairs = draw(shapes(0, 3)), draw(SIZE)
    apart = draw(st.sampled_from(["whole", "halves", "strides", "pairs"]))
    if apart == "whole":
        build, angles = s.turned_whole, (*lead, 2 * pairs)
    else:
        build, angles = s.turned_pairs(apart, draw(st.booleans())), (*lead, pairs)
    dtype = draw(st.sampled_from(["f16", "bf16", "f32", "f64"]))
    types = typed((*lead, 2 * pairs), dtype), *[typed(angles, dtype)] * 2
    return Drawn(build, types, "rotary_embedding")


@few
@given(rotaries(), seeds)
def test_rotary_embeddings_keep_every_bit(drawn, seed):
    module = program(drawn.build, *drawn.types)
    made, rewrites = specs.apply(Recompose(), module)
    assert drawn.kind in {o.kind[5:] for o in specs.live(made).main.body.ops}
    assert all(r.tolerance is None for r in rewrites)
    for special in (False, True):
        given = inputs(module, seed, special=special)
        pair = zip(specs.outputs(module, given), specs.outputs(made, given), strict=True)
        assert all(same_bits(old, new) for old, new in pair)
