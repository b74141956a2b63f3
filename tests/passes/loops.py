"""Small programs with loops whose end depends on data, for tests of passes and devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from core_compiler.ir import Block, Module, Value
from core_compiler.ops.builder import Builder


def region(types: Sequence, build: Callable) -> Block:
    arguments = tuple(Value(t) for t in types)
    builder = Builder()
    outputs = build(builder, *arguments)
    outputs = (outputs,) if isinstance(outputs, Value) else tuple(outputs)
    return Block(arguments, tuple(builder.ops), outputs)


def loop(b: Builder, carried: Sequence[Value], go: Callable, body: Callable):
    types = [v.type for v in carried]
    return b.op("core.while", carried, regions=(region(types, go), region(types, body)))


def below(limit: int) -> Callable:
    return lambda b, i, *rest: b.lt(i, b.scalar_like(limit, i))


def next_(b: Builder, i: Value) -> Value:
    return b.add(i, b.scalar_like(1, i))


def doubling(b, i, x):
    return loop(b, (i, x), below(5), lambda b, i, x: (next_(b, i), b.add(x, x)))


def _swapping(b, i, x, y):
    """Carried values that exchange places, one that stays, one that is in two places."""

    def body(b, i, x, y, z, w):
        return next_(b, i), y, x, z, y

    return loop(b, (i, x, y, x, x), below(4), body)


def product(b, i, x, y):
    """The body has a product, reads a value from outside and makes temporaries of its own."""
    outside = b.exp(b.neg(y))

    def body(b, i, x):
        return next_(b, i), b.tanh(b.add(b.matmul(x, outside), b.transpose(x, permutation=(1, 0))))

    i, x = loop(b, (i, x), below(6), body)
    return i, b.mul(x, outside)


def _nested(b, i, x):
    """A loop in the body of another, and one in its condition."""

    def inner(b, i, x):
        return loop(
            b,
            (b.scalar_like(0, i), x),
            below(3),
            lambda b, j, x: (next_(b, j), b.sub(b.mul(x, x), b.scalar_like(0.5, x))),
        )

    def go(b, i, x):
        count, _ = inner(b, i, x)
        return b.lt(i, count)

    return loop(b, (i, x), go, lambda b, i, x: (next_(b, i), inner(b, i, x)[1]))


def _branch(b, i, x):
    def body(b, i, x):
        odd = b.eq(b.rem(i, b.scalar_like(2, i)), b.scalar_like(1, i))
        arms = (Block((), (), (x,)), region([], lambda b: b.neg(b.add(x, x))))
        return next_(b, i), b.op("core.if", (odd,), regions=arms)

    return loop(b, (i, x), below(5), body)


def _constant_flag(b, i, x):
    """The condition is what the body has made: nothing is computed to ask it."""
    go = b.lt(i, b.scalar_like(3, i))

    def body(b, go, i, x):
        i = next_(b, i)
        return b.lt(i, b.scalar_like(3, i)), i, b.add(x, x)

    return loop(b, (go, i, x), lambda b, go, i, x: go, body)


CASES = {
    "doubling": (doubling, "i32", "3x4xf32"),
    "swapping": (_swapping, "i32", "5xf32", "5xf32"),
    "product": (product, "i64", "7x7xf32", "7x7xf32"),
    "nested": (_nested, "i32", "4xf32"),
    "branch": (_branch, "i32", "2x3xf32"),
    "flag": (_constant_flag, "i32", "3xf32"),
}


def given_arrays(module: Module, first: int) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [
        np.array(first, a.type.dtype.numpy)
        if not a.type.shape
        else random.standard_normal(a.type.shape).astype(np.float32)
        for a in module.main.arguments
    ]
