"""Products and convolutions as tiled CUDA kernels: the reference's bits from the generated PTX."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from core_compiler.codegen.cuda.compile import compile_source
from core_compiler.codegen.cuda.listing import inner_loop, mix
from core_compiler.codegen.cuda.source import generate
from core_compiler.lowering.lower import lower_group
from core_compiler.scheduling.schedules.gpu import product
from core_compiler.scheduling.schedules.product import read_product
from tests.cuda.helpers import CAPABILITIES, on_gpu
from tests.cuda.lint import complaints, complaints_about
from tests.cuda.ptx import read
from tests.kernels.kernel_helpers import assert_same_bits, group, integers, normal, reference
from tests.slow import slow_but


def _linear(b, x, w, bias, residual):
    y = b.add(b.matmul(x, w), b.broadcast(bias, shape=residual.type.shape, dims=(1,)))
    return b.mul(b.gelu(y, approximate="none"), residual)


def _conv(stride, pad, groups=1):
    def build(b, x, w):
        return b.conv(
            x,
            w,
            strides=(stride, stride),
            low=(pad, pad),
            high=(pad, pad),
            dilations=(1, 1),
            groups=groups,
        )

    return build


DTYPES = {
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8": ml_dtypes.float8_e4m3fn,
}
GROUPS = {
    "linear": (_linear, normal(9, 270), normal(270, 37), normal(37), normal(9, 37)),
    "transposed": (
        lambda b, x, w: b.matmul(x, b.transpose(w, permutation=(1, 0))),
        normal(9, 270),
        normal(37, 270),
    ),
    "transposed result": (
        lambda b, x, w: b.transpose(b.matmul(x, w), permutation=(1, 0)),
        normal(9, 7),
        normal(7, 37),
    ),
    "batch": (lambda b, x, w: b.matmul(x, w), normal(3, 9, 20), normal(3, 20, 17)),
    "vector": (lambda b, x, w: b.matmul(x, w), normal(1, 270), normal(270, 37)),
    "no terms": (lambda b, x, w: b.matmul(x, w), normal(3, 0), normal(0, 5)),
    **{
        name: (
            lambda b, x, w: b.matmul(x, w),
            normal(9, 70).astype(kind),
            normal(70, 37).astype(kind),
        )
        for name, kind in DTYPES.items()
    },
    "3x3 bf16": (
        _conv(1, 1),
        normal(1, 5, 7, 6).astype(ml_dtypes.bfloat16),
        normal(9, 5, 3, 3).astype(ml_dtypes.bfloat16),
    ),
    "i8": (
        lambda b, x, w: b.matmul(x, w),
        integers(-100, 100, (9, 70), np.int8),
        integers(-100, 100, (70, 37), np.int8),
    ),
    "3x3": (_conv(1, 1), normal(1, 5, 7, 6), normal(9, 5, 3, 3)),
    "3x3 stride 2": (_conv(2, 1), normal(2, 40, 7, 6), normal(9, 40, 3, 3)),
    "1x1": (_conv(1, 0), normal(1, 300, 5, 6), normal(9, 300, 1, 1)),
    "7x7": (_conv(2, 3), normal(1, 3, 15, 16), normal(9, 3, 7, 7)),
    "groups": (_conv(1, 1, 3), normal(1, 6, 5, 6), normal(9, 2, 3, 3)),
    "depthwise": (_conv(1, 1, 6), normal(1, 6, 5, 6), normal(6, 1, 3, 3)),
}


TILES = {f"{t.rows}x{t.columns}": t for t in product.TILINGS["default"]}


def _check(name, capability, tiles):
    build, *given = GROUPS[name]
    op = group(build, *given)
    made, ptx = on_gpu(op, given, capability, tiles)
    assert_same_bits(made, reference(op, given), f"{name} for {capability}")
    assert complaints(ptx) == []
    assert read(ptx).local_bytes == 0


#: The others take seconds each to compile and to interpret.
QUICK = ("linear", "3x3 stride 2", "depthwise", "f16", "i8", "no terms", "vector", "transposed")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", slow_but(QUICK, GROUPS))
def test_a_product_gives_the_references_bits(name):
    _check(name, (9, 0), "default")


@pytest.mark.slow
@pytest.mark.parametrize("tiles", ["default", "small"])
@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda c: f"sm_{c[0]}{c[1]}")
@pytest.mark.parametrize("name", GROUPS)
def test_a_product_gives_them_for_every_architecture_and_tiling(name, capability, tiles):
    _check(name, capability, tiles)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"),
    slow_but((("linear", "64x64"),), itertools.product(("linear", "3x3"), TILES)),
)
def test_a_load_from_shared_memory_feeds_eight_products(name, size):
    """The machine code of the inner loop, and no memory of a thread but registers."""
    build, *given = GROUPS[name]
    kernel = lower_group(group(build, *given)).function
    function = product.schedule(kernel, read_product(kernel), TILES[size]).function
    made = compile_source(generate(function), (9, 0))
    inner = mix(inner_loop(made.assembly))
    assert inner.fmas / inner.shared >= 8
    assert inner.fma_share > 0.6  # 0.47 with Numba's iterators over ranges
    assert made.facts["stack"] == made.facts["spilled"] == 0
    assert complaints_about(made) == []
