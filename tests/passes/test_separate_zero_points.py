"""Zero points: products of bytes are corrected after the sum, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.passes.separate_zero_points import SeparateZeroPoints
from tests.examples import examples
from tests.passes import specs
from tests.passes.programs import program

NUMBERS = {"i8": np.int8, "ui8": np.uint8}


def linear(b, x, w, x_zero, w_zero):
    """``(x - x_zero) @ (w - w_zero)``, with one zero point a row and a column."""
    wide = [b.cast(v, dtype="i32") for v in (x, w)]
    rank = x.type.rank
    zeros = [
        b.broadcast(v, shape=t.type.shape, dims=(axis,))
        for v, t, axis in ((x_zero, x, rank - 2), (w_zero, w, rank - 1))
    ]
    return b.matmul(*(b.sub(v, z) for v, z in zip(wide, zeros, strict=True)))


def image(b, x, w, zero, w_zero=None, *, strides=(1, 1), pads=((1, 0), (2, 1)), groups=1):
    """A convolution of images with one zero point, padded; the weights may have one a channel."""
    centred = b.sub(b.cast(x, dtype="i32"), b.expand(zero, x.type.shape))
    low, high = zip(*pads, strict=True)
    facts = {"strides": strides, "dilations": (1, 1), "groups": groups, "low": low, "high": high}
    wide = b.cast(w, dtype="i32")
    if w_zero is not None:
        wide = b.sub(wide, b.broadcast(w_zero, shape=w.type.shape, dims=(0,) * w_zero.type.rank))
    return b.conv(centred, wide, **facts)


def _bytes(random, shape, kind):
    low, high = np.iinfo(NUMBERS[kind]).min, np.iinfo(NUMBERS[kind]).max
    return random.integers(low, high, shape, NUMBERS[kind], endpoint=True)


@given(st.data())
@settings(max_examples=examples(25), deadline=None)
def test_products_keep_their_bits(data):
    kinds = [data.draw(st.sampled_from(sorted(NUMBERS))) for _ in "xw"]
    batch = data.draw(st.sampled_from([(), (2,)]))
    m, k, n = (data.draw(st.integers(1, 6)) for _ in "mkn")
    pairs = list(zip(((*batch, m, k), (*batch, k, n)), kinds, strict=True))
    types = [f"{'x'.join(map(str, shape))}x{kind}" for shape, kind in pairs]
    module = program(linear, *types, f"{m}xi32", f"{n}xi32")
    after, rewrites = specs.apply(SeparateZeroPoints(), module)
    assert len(rewrites) == 1
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    arrays = [_bytes(random, shape, kind) for shape, kind in pairs]
    arrays += [random.integers(-300, 300, size, np.int32) for size in (m, n)]
    arrays[2][0] = np.iinfo(np.int32).max
    _assert_same_bits(module, after, arrays)


@given(st.data())
@settings(max_examples=examples(25), deadline=None)
def test_convolutions_keep_their_bits(data):
    kinds = [data.draw(st.sampled_from(sorted(NUMBERS))) for _ in "xw"]
    zeros = data.draw(st.sampled_from([(), ("i32",), ("4xi32",)]))
    groups, channels = data.draw(st.sampled_from([(1, 3), (1, 36), (2, 4)]))
    types = [f"2x{channels}x5x4x{kinds[0]}", f"4x{channels // groups}x3x2x{kinds[1]}", kinds[0]]
    strides = data.draw(st.sampled_from([(1, 1), (2, 1)]))
    pads = data.draw(st.sampled_from([((0, 0), (0, 0)), ((1, 0), (2, 1))]))

    def build(b, x, w, zero, *w_zero):
        zero = b.cast(zero, dtype="i32")
        return image(b, x, w, zero, *w_zero, strides=strides, pads=pads, groups=groups)

    module = program(build, *types, *zeros)
    after, rewrites = specs.apply(SeparateZeroPoints(), module)
    assert len(rewrites) == 1
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    shapes = (2, channels, 5, 4), (4, channels // groups, 3, 2), ()
    kinds = (*kinds, kinds[0])
    arrays = [_bytes(random, shape, t) for shape, t in zip(shapes, kinds, strict=True)]
    for kind in zeros:
        size = (4,) if kind == "4xi32" else ()
        arrays.append(random.integers(-(2**31), 2**31, size).astype(np.int32))
    _assert_same_bits(module, after, arrays)


def _assert_same_bits(before, after, arrays):
    got, expected = (specs.outputs(module, arrays) for module in (after, before))
    assert [a.tobytes() for a in got] == [a.tobytes() for a in expected]


def test_signed_bytes_are_shifted():
    """One operand must be unsigned for the instruction that adds four products."""

    def before(b, x, w):
        return b.matmul(b.cast(x, dtype="i32"), b.cast(w, dtype="i32"))

    after, rewrites = specs.apply(SeparateZeroPoints(), program(before, "3x4xi8", "4x5xi8"))
    assert [r.rule for r in rewrites] == ["sum (x - z) * w => sum x * w - z * sum w"]
    made = [k for k in specs.kinds(after) if k in ("xor", "bitcast", "matmul")]
    assert made == ["xor", "bitcast", "matmul"]


@pytest.mark.parametrize(
    ("x_kind", "w_kind", "zero", "products"),
    [("ui8", "i8", 0, 1), ("ui8", "ui8", 128, 1), ("ui8", "ui8", 7, 2), ("i8", "ui8", 0, 1)],
)
def test_constant_zero_points_that_vanish_cost_nothing(x_kind, w_kind, zero, products):
    """Quantisers store a zero point for each channel, all 0, or all 128 for unsigned weights."""
    random = np.random.default_rng(0)
    weights = _bytes(random, (96, 3, 3, 3), w_kind)

    def build(b, x):
        w, held = b.constant(weights), b.constant(np.full(96, zero, NUMBERS[w_kind]))
        one = b.constant(np.asarray(3, np.int32))
        return image(b, x, w, one, b.cast(held, dtype="i32"))

    module = program(build, f"1x3x6x6x{x_kind}")
    after, rewrites = specs.apply(SeparateZeroPoints(), module)
    assert len(rewrites) == 1 and specs.kinds(after).count("conv") == products
    _assert_same_bits(module, after, [_bytes(random, (1, 3, 6, 6), x_kind)])


def test_zero_points_that_are_all_0_are_dropped_where_nothing_else_is_separated():
    """Images behind a relu have the zero point 0: products of a ResNet were none of bytes."""
    random = np.random.default_rng(0)
    weights = _bytes(random, (96, 3, 3, 3), "i8")

    def build(b, x):
        zero = b.broadcast(
            b.cast(b.constant(np.zeros(96, np.int8)), dtype="i32"), shape=weights.shape, dims=(0,)
        )
        w = b.sub(b.cast(b.constant(weights), dtype="i32"), zero)
        window = {"strides": (1, 1), "dilations": (1, 1), "low": (1, 1), "high": (1, 1)}
        return b.conv(b.cast(x, dtype="i32"), w, **window)

    module = program(build, "1x3x6x6xui8")
    after, rewrites = specs.apply(SeparateZeroPoints(), module)
    assert len(rewrites) == 1
    makers = after.main.body.producers()
    conv = specs.root_of(after)
    assert [makers[v].kind for v in conv.operands] == ["core.cast", "core.cast"]
    _assert_same_bits(module, after, [_bytes(random, (1, 3, 6, 6), "ui8")])


def test_what_is_left_as_it_is():
    def plain(b, x, w):
        return b.matmul(b.cast(x, dtype="i32"), b.cast(w, dtype="i32"))

    def along_the_sum(b, x, w, zero):
        wide = b.sub(b.cast(x, dtype="i32"), b.broadcast(zero, shape=x.type.shape, dims=(1,)))
        return b.matmul(wide, b.cast(w, dtype="i32"))

    def any_number(b, x, w, zero):
        """An i32 that may be no byte cannot pad an image of bytes."""
        return image(b, x, w, zero)

    left = [
        (plain, "3x4xui8", "4x5xi8"),
        (plain, "3x4xi16", "4x5xi8"),
        (along_the_sum, "3x4xui8", "4x5xi8", "4xi32"),
        (any_number, "1x3x5x4xui8", "4x3x3x2xi8", "i32"),
    ]
    for build, *types in left:
        _, rewrites = specs.apply(SeparateZeroPoints(), program(build, *types))
        assert rewrites == [], build.__name__
