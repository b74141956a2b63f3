"""Depthwise convolutions: a kernel without loops over the one channel of a group, same bits."""

from __future__ import annotations

import pytest

from core_compiler.kernel_ir.abi import index_arguments
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.schedules import convolution
from core_compiler.scheduling.schedules.contraction import AVX2, AVX512
from core_compiler.scheduling.schedules.product import read_product
from core_compiler.scheduling.transforms import Refused, find_loop, single_term
from tests.kernels.products import NHWC, TINY, Case, byte_convolution, linear
from tests.kernels.products import convolution as conv
from tests.slow import slow_but

CASES = {
    "pixels": conv(6, 6, 3, 1, 4, groups=6, order=None, pad=0),
    "channels": conv(6, 6, 3, 1, 4, groups=6),
    "channels, stride 2": conv(37, 37, 3, 2, 6, groups=37),
    "more channels than a block": conv(150, 150, 3, 1, 4, groups=150),
    "5x5": conv(18, 18, 5, 1, 6, groups=18),
    "bf16": conv(21, 21, 3, 1, 4, groups=21, dtype="bf16"),
    "f16": conv(21, 21, 3, 1, 4, groups=21, dtype="f16"),
    "f64": conv(9, 9, 3, 1, 4, groups=9, dtype="f64"),
    "bytes": byte_convolution(150, 150, 3, 1, 4, groups=150),
    "bytes, pixels": byte_convolution(6, 6, 3, 1, 20, groups=6, order=None),
}


def is_single(scheduled) -> bool:
    return any(step.name.startswith("single_term(") for step in scheduled.steps)


@pytest.mark.parametrize("name", slow_but(("pixels", "channels", "bytes", "bf16"), tuple(CASES)))
def test_the_steps_keep_the_bits(name):
    case = Case(CASES[name])
    scheduled = convolution.schedule(case.kernel, TINY, launches=[case.sizes])
    assert is_single(scheduled)
    expected = case.meaning()
    assert [n for n, got in case.each_step(scheduled) if got != expected] == []


QUICK = [(name, AVX512) for name in ("channels", "more channels than a block", "bf16", "bytes")]
QUICK += [("bytes, pixels", AVX512), ("bytes", AVX2)]


@pytest.mark.parametrize(
    ("name", "tiles"),
    slow_but(QUICK, [(name, tiles) for name in CASES for tiles in (AVX512, AVX2)]),
)
def test_machine_code_has_the_bits_of_the_loops(name, tiles):
    case = Case(CASES[name])
    scheduled = convolution.schedule(case.kernel, tiles, launches=[case.sizes])
    assert is_single(scheduled)
    for slices in (1, 3):
        assert case.compiled(scheduled, slices) == case.meaning()


def test_a_launch_with_more_terms_takes_the_loops():
    """The kernel is generic in sizes: it is right for sums of several terms, too."""
    case = Case(CASES["channels"])
    scheduled = convolution.schedule(case.kernel, TINY, False, launches=[case.sizes])
    assert is_single(scheduled)
    chunk = find_loop(case.kernel, read_product(case.kernel).chunk)
    number = index_arguments(case.kernel).index(For.of(chunk).upper)
    sizes = [3 if i == number else n for i, n in enumerate(case.sizes)]
    single = case.meaning()
    expected = case.interpreted(case.kernel, {}, sizes, case.data)
    assert case.interpreted(scheduled.function, {}, sizes, case.data) == expected != single


def test_sums_over_more_channels_keep_their_loops():
    case = Case(conv(8, 6, 3, 1, 4, groups=2))
    scheduled = convolution.schedule(case.kernel, TINY, launches=[case.sizes])
    assert not is_single(scheduled)


@pytest.mark.parametrize(
    ("loop", "chunk", "message"),
    [("n", "m", "m is not inside n"), ("chunk", "k", "iterations of chunk are sequential")],
)
def test_what_is_no_sum_inside_of_the_loop_is_refused(loop, chunk, message):
    kernel = Case(linear(4, 5, 6, "none")).kernel
    with pytest.raises(Refused, match=message):
        single_term(kernel, loop, chunk, (chunk,))


def test_channels_are_the_lanes_of_images_with_channels_last():
    case = Case(conv(40, 40, 3, 1, 4, groups=40, order=NHWC))
    scheduled = convolution.schedule(case.kernel, AVX512, launches=[case.sizes])
    assert any("vectors(lane" in step.name for step in scheduled.steps)
