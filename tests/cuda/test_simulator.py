"""Generated CUDA source in numba-cuda's simulator: the reference's bits without NVVM and PTX."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.codegen.cuda.source import generate
from core_compiler.kernel_ir.abi import scratch_allocations, scratch_bytes, work_items
from core_compiler.lowering.lower import lower_group
from core_compiler.scheduling.schedules import gpu
from tests.cuda import simulator
from tests.kernels import definitions
from tests.kernels.kernel_helpers import (
    assert_same_bits,
    from_memory,
    group,
    group_buffers,
    normal,
    reference,
)
from tests.slow import slow_but


def _linear(b, x, w, bias):
    return b.relu(b.add(b.matmul(x, w), b.broadcast(bias, shape=(9, 37), dims=(1,))))


#: What a group is, and a word that its source must have.
GROUPS = {
    "product": ("shared_f32", _linear, normal(9, 260), normal(260, 37), normal(37)),
    "softmax": ("barrier()", lambda b, x: b.softmax(x, axis=1), normal(2, 70)),
    "row sum": ("shared_f32", lambda b, x: b.reduce_sum(x, axes=(1,)), normal(3, 133)),
    "sort": (
        "scratch + block()",
        lambda b, x: b.sort(x, axis=0, descending=True),
        np.array([[3, 1], [np.nan, 2], [1, 2], [0, -0.0], [-0.0, 0], [3, np.nan]], np.float32),
    ),
    "elementwise": (
        "load_f32x4",
        lambda b, x, y: b.gelu(b.add(b.exp(x), y), approximate="none"),
        normal(5, 7),
        normal(5, 7),
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", slow_but(GROUPS.keys() - {"product"}, GROUPS))
def test_the_source_gives_the_references_bits(name):
    word, build, *given = GROUPS[name]
    op = group(build, *given)
    lowered = lower_group(op)
    function = gpu.schedule(lowered.function, [lowered.sizes]).function
    source = generate(function).text
    assert word in source
    buffers, results = group_buffers(op, lowered, given)
    places = [next(n for n, b in enumerate(buffers) if b is r) for r in results]
    arguments = [*buffers, *lowered.sizes]
    grid = work_items(function, lowered.sizes)
    if scratch_allocations(function):
        bytes_ = grid * scratch_bytes(function, lowered.sizes)
        arguments.append(np.full(bytes_, 0x7F, np.uint8))
    left = simulator.launch(source, grid, arguments)
    made = [from_memory(left[p], v.type) for p, v in zip(places, op.results, strict=True)]
    assert_same_bits(made, reference(op, given), name)


def test_its_fma_rounds_once():
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(400).astype(np.float32) for _ in range(2))
    c = -(a.astype(np.float64) * b).astype(np.float32)  # what is left is one rounding's error
    c[::2] = (rng.standard_normal(200) * 2.0 ** rng.integers(-60, 40, 200)).astype(np.float32)
    tiny = np.float32(2.0**-149)
    more = [
        (tiny, 0.5, 0),
        (tiny, 0.5, tiny),
        (-0.0, 1, -0.0),
        (1, -1, 1),
        (3e38, 2, -3e38),
        (np.inf, 0, 1),
        (1, 1, np.nan),
        (1 + 2**-23, 1 + 2**-23, 2**-60),
    ]
    a, b, c = (
        np.append(x, np.array(y, np.float32))
        for x, y in zip((a, b, c), zip(*more, strict=True), strict=True)
    )
    with np.errstate(all="ignore"):
        made, twice = simulator.fma(a, b, c), a * b + c
    wanted = np.array([definitions.fma(*t) for t in zip(a, b, c, strict=True)], np.float32)
    assert definitions.same_bits(made, wanted)
    assert (twice != wanted).sum() > 50  # the simulator's own fma would be found out
