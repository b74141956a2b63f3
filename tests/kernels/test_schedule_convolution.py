"""Convolutions: steps keep the bits, machine code has the reference's bits in every layout."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.numerics.reference import convolution as reference
from core_compiler.ops import evaluate_block
from core_compiler.scheduling.schedules import contraction, convolution
from core_compiler.scheduling.schedules.contraction import AVX2, AVX512
from core_compiler.scheduling.schedules.product import longest_chunk
from tests.kernels.products import NHWC, TINY, Case, byte_convolution, columns, linear, weights
from tests.kernels.products import convolution as conv
from tests.passes.programs import program
from tests.slow import slow_but

SMALL = {
    "3x3": conv(5, 6, 3, 1, 4, residual=True),
    "3x3 two blocks": conv(40, 5, 3, 2, 4),
    "1x1": conv(40, 9, 1, 1, 3),
    "1x1 stride 2": conv(6, 9, 1, 2, 5),
    "two images": conv(3, 6, 3, 2, 5, n=2),
    "NCHW": conv(3, 6, 3, 1, 4, order=None),
    "groups": conv(8, 6, 3, 1, 4, groups=2),
    "depthwise": conv(6, 6, 3, 1, 4, groups=6),
    "bf16": conv(5, 6, 3, 1, 4, residual=True, dtype="bf16"),
    "f16, depthwise": conv(6, 6, 3, 1, 4, groups=6, dtype="f16"),
    "bytes": byte_convolution(36, 5, 3, 1, 4),
    "bytes, three colours": byte_convolution(3, 6, 3, 2, 5),
    "bytes, NCHW": byte_convolution(6, 5, 3, 1, 4, order=None),
    "bytes, groups": byte_convolution(8, 6, 3, 1, 4, groups=2),
    "bytes, depthwise": byte_convolution(6, 6, 3, 1, 4, groups=6),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("operand", slow_but(("packed",), ("packed", "copied")))
@pytest.mark.parametrize("name", SMALL)
def test_every_step_keeps_the_bits(name, operand):
    case, packed = Case(SMALL[name]), operand == "packed"
    expected = case.meaning()
    scheduled = convolution.schedule(case.kernel, TINY, packed)
    steps = list(case.each_step(scheduled))
    assert [n for n, got in steps if got != expected] == []
    assert len(steps) > 5


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [AVX512, AVX2], ids=lambda t: t.name)
@pytest.mark.parametrize("layout", slow_but(("NHWC",), ("NHWC", "NCHW")))
@pytest.mark.parametrize(
    "shape",
    [
        (3, 20, 7, 2, 23),
        *(
            pytest.param(s, marks=pytest.mark.slow)
            for s in ((300, 24, 1, 2, 7), (40, 40, 3, 1, 9), (70, 33, 3, 2, 8))
        ),
    ],
    ids=str,
)
def test_machine_code_has_the_reference_bits(shape, layout, tiles):
    order = NHWC if layout == "NHWC" else None
    c, o, k, stride, size = shape
    case = Case(conv(c, o, k, stride, size, order=order))
    x = case.data[0].reshape((1, size, size, c) if order else (1, c, size, size))
    x = np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if order else x
    w, pad = case.data[1].reshape(o, c, k, k), k // 2
    y = reference.conv(x, w, (stride, stride), ((pad, pad), (pad, pad)))
    y = np.maximum(y + case.data[2].reshape(1, o, 1, 1), np.float32(0))
    expected = (y.transpose(0, 2, 3, 1) if order else y).tobytes()
    scheduled = convolution.schedule(
        case.kernel, tiles.holding(longest_chunk(case.kernel, case.sizes))
    )
    for slices in (1, 3):
        assert case.compiled(scheduled, slices, threads=slices) == expected


GRADIENTS = {
    "3x3": weights(5, 7, 3, 1, 5, n=2),
    "3x3 strided": weights(4, 9, 3, 2, 7, n=3),
    "1x1": weights(17, 6, 1, 1, 5, n=2),
    "three colours": weights(3, 8, 5, 2, 9, n=2),
    "groups": weights(8, 6, 3, 1, 5, n=2, groups=2),
    "depthwise": weights(6, 6, 3, 1, 4, n=2, groups=6),
    "columns": columns(7, 300, 9),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "known"),
    slow_but(
        (("3x3", False),),
        [*((n, False) for n in GRADIENTS), ("3x3", True), ("three colours", True)],
    ),
)
def test_every_step_of_a_weight_gradient_keeps_the_bits(name, known):
    """``known``: the sizes are, and with them whether the channels fill a vector."""
    case = Case(GRADIENTS[name])
    expected = case.meaning()
    scheduled = convolution.schedule(case.kernel, TINY, False, (case.sizes,) * known)
    steps = list(case.each_step(scheduled))
    assert [n for n, got in steps if got != expected] == []
    assert len(steps) > 5


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [AVX512, AVX2], ids=lambda t: t.name)
@pytest.mark.parametrize(
    "shape",
    [
        (20, 33, 3, 2, 9),
        pytest.param((3, 40, 5, 1, 8), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_weight_gradients_have_the_reference_bits(shape, tiles):
    c, o, k, stride, size = shape
    case = Case(weights(c, o, k, stride, size, n=3))
    out = (size - 1) // stride + 1
    shapes = (3, size, size, c), (3, out, out, o)
    x, dy = (a.reshape(s).transpose(0, 3, 1, 2) for a, s in zip(case.data, shapes, strict=False))
    pads = ((k // 2, k // 2),) * 2
    expected = reference.conv_weight_gradient(x, dy, (k, k), (stride, stride), pads).tobytes()
    scheduled = contraction.schedule(case.kernel, tiles, False, (case.sizes,))
    batches = len(scheduled.launch.product.batch)
    assert batches == (0 if c < tiles.width else 2), "taps are rows where a run is short"
    for slices in (1, 3):
        assert case.compiled(scheduled, slices, threads=slices) == expected


@pytest.mark.slow
def test_a_batch_of_three_has_the_rows_of_three_batches_of_one():
    whole = Case(conv(5, 6, 3, 1, 6, n=3))
    got = np.frombuffer(whole.compiled(convolution.schedule(whole.kernel)), np.float32)
    one = Case(conv(5, 6, 3, 1, 6))
    for image in range(3):
        one.data[0] = whole.data[0].reshape(3, -1)[image].copy()
        one.data[1:3] = whole.data[1:3]
        alone = one.compiled(convolution.schedule(one.kernel))
        assert got.reshape(3, -1)[image].tobytes() == alone


def test_convolutions_share_the_tiles_of_products():
    product = contraction.schedule(Case(linear(30, 300, 40)).kernel)
    pixels = convolution.schedule(Case(conv(40, 40, 3, 1, 9)).kernel)
    tiles = [{n for n in s.cores if n.startswith("tile")} for s in (product, pixels)]
    assert tiles[0] == tiles[1]


@pytest.mark.slow
def test_long_chunks_get_longer_rows():
    case = Case(conv(40, 4, 7, 1, 7))
    assert longest_chunk(case.kernel, case.sizes) == 32 * 49
    tiles = AVX512.holding(32 * 49)
    assert tiles.row_length >= 32 * 49 and tiles.row_length % 32 == 16
    scheduled = convolution.schedule(case.kernel, tiles)
    assert case.compiled(scheduled) == case.meaning()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("columns", [64, 37])
def test_a_row_of_few_columns_reads_them_where_they_are(columns, dtype):
    """The values of heads in a decoding step: each is used once, so that no panel is copied."""
    module = program(lambda b, p, v: b.matmul(p, v), f"3x1x300x{dtype}", f"3x300x{columns}x{dtype}")
    random = np.random.default_rng(0)
    kind = module.main.arguments[0].type.dtype.numpy
    arrays = [random.normal(size=v.type.shape).astype(kind) for v in module.main.arguments]
    compiled = compilation.start(module)
    (made,) = compiled.finish()(*arrays)
    assert made.tobytes() == evaluate_block(module.main.body, arrays)[0].tobytes()
    (schedule,) = compiled.facts["schedules"].values()
    assert not any(step.name.startswith("stage") for step in schedule.steps)
