"""Ranges of a loop: the same bits, and vectors where an index is in range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.kernel_ir.interpreter import interpret
from core_compiler.kernel_ir.verifier import verify
from core_compiler.lowering.lower import lower_group
from core_compiler.scheduling.schedules import elementwise
from core_compiler.scheduling.transforms import Refused, interior, ranges
from core_compiler.scheduling.transforms.edit import find_loop
from tests.examples import examples
from tests.kernels.products import f32, group


def _padded(b, x, low, high):
    return b.pad(x, b.constant(1.5, "f32"), low=(0, low), high=(0, high), interior=(0, 0))


def _pooled(b, x, window, stride, low, high):
    facts = {"window": (window,), "strides": (stride,), "low": (low,), "high": (high,)}
    return b.max_pool(x, dilations=(1,), **facts)


def _run(function, lowered, op, seed=0):
    random = np.random.default_rng(seed)
    buffers = []
    for kind, number in lowered.buffers:
        shape = (op.operands if kind == "operand" else op.results)[number].type
        filled = random.standard_normal(shape.elements).astype(np.float32)
        buffers.append(filled if kind == "operand" else np.full_like(filled, np.nan))
    interpret(function, buffers, lowered.sizes)
    pairs = zip(buffers, lowered.buffers, strict=True)
    return [array.tobytes() for array, (kind, _) in pairs if kind == "result"]


@st.composite
def programs(draw):
    """Concatenations, padding, and shifts that concatenate slices, along the last axis."""
    size = draw(st.integers(1, 40))
    kind = draw(st.sampled_from(["concat", "pad", "nested", "sliced", "pool"]))
    if kind == "pad":
        low, high = draw(st.integers(-3, 20)), draw(st.integers(0, 20))
        low = max(low, 1 - size)
        return group([f32(3, size)], lambda b, x: _padded(b, x, low, high))
    if kind == "pool":
        window = draw(st.integers(1, min(5, size)))
        stride, pads = draw(st.integers(1, 2)), (window - 1) // 2
        return group([f32(1, 2, size)], lambda b, x: _pooled(b, x, window, stride, pads, pads))
    sizes = [draw(st.integers(1, 20)) for _ in range(draw(st.integers(2, 4)))]
    if kind == "nested":
        return group(
            [f32(2, n) for n in sizes],
            lambda b, *parts: _padded(b, b.concat(*parts, axis=1), 2, 5),
        )
    if kind == "sliced":
        first = draw(st.integers(0, sum(sizes) - 1))
        last = draw(st.integers(first + 1, sum(sizes)))

        def part(b, *parts):
            joined = b.concat(*parts, axis=1)
            return b.slice(joined, starts=(0, first), limits=(2, last), strides=(1, 1))

        return group([f32(2, n) for n in sizes], part)
    return group([f32(2, n) for n in sizes], lambda b, *parts: b.concat(*parts, axis=1))


@given(programs())
@settings(max_examples=examples(30), deadline=None)
def test_ranges_and_vectors_keep_the_bits(op):
    lowered = lower_group(op)
    expected = _run(lowered.function, lowered, op)
    for step in elementwise.schedule(lowered.function, 4, 16).steps:
        verify(step.function)
        assert _run(step.function, lowered, op) == expected, step.name


def test_a_part_is_read_inside_of_it_wherever_a_slice_ends():
    """The slice ends in the second part: positions of the first one are none of the second's."""

    def build(b, *parts):
        joined = b.concat(*parts, axis=1)
        return b.slice(joined, starts=(0, 3), limits=(2, 8), strides=(1, 1))

    op = group([f32(2, n) for n in (5, 9, 3)], build)
    lowered = lower_group(op)
    scheduled = elementwise.schedule(lowered.function, 4, 16).function
    assert _run(scheduled, lowered, op) == _run(lowered.function, lowered, op)


def test_a_concatenation_becomes_a_loop_for_each_part():
    op = group([f32(2, 5), f32(2, 9), f32(2, 3)], lambda b, *parts: b.concat(*parts, axis=1))
    function = lower_group(op).function
    split = interior(function, "i1")
    assert ranges(split, "i1") == ["i1_0", "i1_1", "i1_2"]
    for name in ranges(split, "i1"):
        body = list(find_loop(split, name).regions[0].ops)
        assert sum(op.kind == "kernel.load" for op in body) == 1
        assert not any(op.kind in ("kernel.select", "kernel.max") for op in body)


def test_what_has_no_ranges_is_refused():
    op = group([f32(4, 5)], lambda b, x: b.exp(x))
    with pytest.raises(Refused, match="no conditions or clamps"):
        interior(lower_group(op).function, "i0")
