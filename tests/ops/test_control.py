"""Nested regions, values of the blocks around, and composites inside loops."""

from __future__ import annotations

import numpy as np

from core_compiler.ir import Block, Value, tensor
from core_compiler.ops import Builder, cost, evaluate_block
from tests.ops.samples.effects import COUNTER, VECTOR, block


def test_regions_nest_and_read_the_values_around_them():
    """y = outer; while i < 4: y = y + 10 if i is even else y * outer; i += 1"""
    outer = Value(tensor((4,), "f32"), "outer")

    def step(b, i, y):
        two = b.scalar_like(2, i)
        even = b.eq(b.mod(i, two), b.scalar_like(0, i))
        then = block([], lambda c: c.add(y, c.scalar_like(10, y)))
        other = block([], lambda c: c.mul(y, outer))
        return b.add(i, b.scalar_like(1, i)), b.if_(even, regions=(then, other))

    go = block([COUNTER, VECTOR], lambda b, i, y: b.lt(i, b.scalar_like(4, i)))
    builder = Builder()
    start = builder.constant(0, "i32")
    _, result = builder.while_(start, outer, regions=(go, block([COUNTER, VECTOR], step)))
    x = np.array([1, 2, -3, 0.5], np.float32)
    (found,) = evaluate_block(Block((outer,), tuple(builder.ops), (result,)), (x,))
    wanted = x
    for i in range(4):
        wanted = wanted + 10 if i % 2 == 0 else wanted * x
    np.testing.assert_array_equal(found, wanted)


def test_a_group_means_its_region():
    x = Value(tensor((3, 5), "f32"))
    inside = block(
        [((3, 5), "f32")], lambda b, x: (b.softmax(x, axis=1), b.reduce_max(x, axes=(1,)))
    )
    builder = Builder()
    outputs = builder.group(x, regions=(inside,))
    assert [v.type.shape for v in outputs] == [(3, 5), (3,)]
    array = np.linspace(-3, 3, 15, dtype=np.float32).reshape(3, 5)
    found = evaluate_block(Block((x,), tuple(builder.ops), outputs), (array,))
    apart = evaluate_block(inside, (array,))
    for a, b in zip(found, apart, strict=True):
        np.testing.assert_array_equal(a, b)
    assert cost(builder.ops[-1]).flops == sum(cost(op).flops for op in inside.ops)
