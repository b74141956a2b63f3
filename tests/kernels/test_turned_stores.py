"""Results whose rows are adjacent (channels first) are turned in registers: the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ir import tensor
from core_compiler.kernel_ir.abi import index_arguments
from core_compiler.scheduling.schedules import contraction, convolution
from core_compiler.scheduling.schedules.contraction import AVX2, AVX512
from core_compiler.scheduling.schedules.product import longest_chunk
from core_compiler.scheduling.transforms import Refused, turn_stores
from tests.kernels.products import NHWC, TINY, Case, byte_convolution, group, linear
from tests.kernels.products import convolution as conv
from tests.slow import slow_but

FIRST = {
    "3x3": conv(5, 33, 3, 1, 6, order=None),
    "rows of three pixels": conv(5, 32, 3, 1, 3, order=None),
    "two images": conv(3, 40, 3, 2, 9, n=2, order=None),
    "many small images": conv(3, 32, 1, 1, 2, n=9, order=None),
    "1x1": conv(20, 64, 1, 1, 5, order=None),
    "residual": conv(5, 32, 3, 1, 6, residual=True, order=None),
    "groups": conv(8, 66, 3, 1, 5, groups=2, order=None),
    "f64": conv(5, 33, 3, 1, 6, order=None, dtype="f64"),
    "bf16": conv(5, 33, 3, 1, 6, order=None, dtype="bf16"),
    "f16": conv(5, 33, 3, 1, 6, order=None, dtype="f16"),
    "bytes": byte_convolution(6, 33, 3, 1, 5, order=None),
    "fewer channels than a tile": conv(5, 7, 3, 1, 6, order=None),
}


def of_rank(spatial: int, n: int = 1):
    """A convolution of images with ``spatial`` axes, channels first."""
    sizes = (7, 4, 5)[:spatial]
    none, one = (0,) * spatial, (1,) * spatial

    def build(b, x, w):
        return b.conv(x, w, strides=one, low=none, high=none, dilations=one, groups=1)

    return group([tensor((n, 6, *sizes), "f32"), tensor((34, 6, *[2] * spatial), "f32")], build)


RANKS = {f"{s} axes, {n} images": of_rank(s, n) for s in (1, 2, 3) for n in (1, 3)}

NAMES = (*FIRST, *RANKS)


def is_turned(scheduled) -> bool:
    return any(step.name.startswith("turn_stores(") for step in scheduled.steps)


@pytest.mark.parametrize(
    ("name", "tiles"),
    slow_but(
        [*((name, AVX512) for name in NAMES), ("two images", AVX2), ("3 axes, 3 images", AVX2)],
        [(name, tiles) for name in NAMES for tiles in (AVX512, AVX2)],
    ),
)
def test_machine_code_has_the_bits_of_the_loops(name, tiles):
    case = Case({**FIRST, **RANKS}[name])
    fitting = tiles.holding(longest_chunk(case.kernel, case.sizes))
    scheduled = convolution.schedule(case.kernel, fitting)
    assert is_turned(scheduled)
    for threads in (1, 3):
        assert case.compiled(scheduled, threads, threads) == case.meaning()


@pytest.mark.parametrize("name", ["3x3", "two images", "many small images", "f64", "bytes"])
def test_the_step_keeps_the_bits(name):
    case = Case(FIRST[name])
    scheduled = convolution.schedule(case.kernel, TINY)
    assert is_turned(scheduled)
    expected = case.meaning()
    assert [n for n, got in case.each_step(scheduled) if got != expected] == []


def test_rows_that_are_apart_are_stored_one_by_one():
    """Images with gaps between rows, as of a view into larger ones: the kernel tests for them."""
    case = Case(FIRST["two images"])
    names = [str(v.name) for v in index_arguments(case.kernel)]
    result = case.kernel.arguments[case.outputs[0]].type
    assert list(result.shape)[-1] in names and result.strides[-1] == 1
    row, gap = result.strides[-2], 3
    sizes = dict(zip(names, case.sizes, strict=True))
    n, channels, height, width = (sizes[d] for d in result.shape)
    wide = {result.strides[0]: channels * height * (width + gap)}
    wide |= {result.strides[1]: height * (width + gap), row: width + gap}
    case.sizes = [wide.get(name, sizes[name]) for name in names]
    case.data[case.outputs[0]] = np.full(n * channels * height * (width + gap), -1, np.float32)
    scheduled = convolution.schedule(case.kernel, AVX512)
    assert is_turned(scheduled)
    got = case.compiled(scheduled, 2)
    assert got == case.meaning()
    apart = np.frombuffer(got, np.float32).reshape(n, channels, height, width + gap)
    assert (apart[..., width:] == -1).all() and (apart[..., :width] >= 0).all()


@pytest.mark.parametrize(
    ("op", "schedule"),
    [
        (conv(5, 33, 3, 1, 6, order=NHWC), convolution.schedule),
        (linear(20, 9, 40), contraction.schedule),
    ],
    ids=["channels last", "product"],
)
def test_adjacent_columns_are_not_turned(op, schedule):
    case = Case(op)
    scheduled = schedule(case.kernel, AVX512)
    assert not is_turned(scheduled)
    before = next(s for s in reversed(scheduled.steps) if s.name.startswith("vectorise(jj_out"))
    with pytest.raises(Refused, match=r"the columns of .* are adjacent"):
        turn_stores(before.function, "ii_out_full", "jj_out_full", AVX512.rows)
