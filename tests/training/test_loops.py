"""Gradients of loops that say how often their bodies run."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ir import Block, Module, Value
from core_compiler.ir.verifier import verify
from core_compiler.legality import levels
from core_compiler.ops import Builder, evaluate_block
from core_compiler.passes.base import PassContext
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.passes.simplify_loops import SimplifyLoops
from core_compiler.training.autodiff import pullback
from tests.passes.loops import below, loop, next_
from tests.passes.programs import program

STEP = 1e-6


def zero(b: Builder, dtype: str = "i32") -> Value:
    return b.constant(0, dtype)


def part(b: Builder, xs: Value, i: Value) -> Value:
    """``xs[i]``."""
    starts = (i, *[b.constant(0, i.type.dtype)] * (xs.type.rank - 1))
    sizes = (1, *xs.type.shape[1:])
    return b.reshape(b.dynamic_slice(xs, *starts, sizes=sizes), shape=sizes[1:])


def put(b: Builder, xs: Value, i: Value, x: Value) -> Value:
    """``xs`` with ``x`` at ``i``."""
    starts = (i, *[b.constant(0, i.type.dtype)] * (xs.type.rank - 1))
    return b.dynamic_update_slice(xs, b.reshape(x, shape=(1, *x.type.shape)), *starts)


def recurrent(b, w, xs, h):
    """Carried state, a part of an input and a part of a result for each iteration, a weight."""
    ys = b.scalar_like(0, xs)

    def body(b, i, h, ys):
        h = b.tanh(b.add(part(b, xs, i), b.matmul(h, w)))
        return next_(b, i), h, put(b, ys, i, b.mul(h, h))

    made = loop(b, (zero(b), h, ys), below(xs.type.shape[0]), body)
    return made[1], made[2]


def powers(b, x):
    """The result of one iteration is all that the next one reads; the counter is read too."""

    def body(b, i, x):
        place = b.expand(b.cast(i, dtype="f64"), x.type.shape)
        return next_(b, i), b.add(b.mul(x, x), b.mul(place, x))

    return loop(b, (b.constant(1, "i64"), x), below(4), body)[1]


def exchanged(b, x, y):
    """Values that change places, one that is in two, one that is carried and not differentiated."""

    def body(b, i, x, y, z, n):
        return next_(b, i), y, b.mul(x, b.sin(y)), b.add(x, z), b.add(n, n)

    made = loop(b, (zero(b), x, y, x, b.constant(1, "i64")), below(5), body)
    return made[1], made[3]


def nested(b, w, x):
    """A loop in the body of another; both read the weight and count."""

    def body(b, i, x):
        def inner(b, j, y):
            place = b.cast(b.add(i, b.mul(j, j)), dtype="f64")
            return next_(b, j), b.tanh(b.add(b.mul(y, w), b.expand(place, y.type.shape)))

        x = loop(b, (zero(b), x), below(3), inner)[1]
        return next_(b, i), b.mul(x, b.exp(b.neg(b.mul(w, x))))

    return loop(b, (zero(b), x), below(4), body)[1]


def branching(b, w, x):
    """An ``if`` in the body, on the counter."""

    def body(b, i, x):
        odd = b.eq(b.rem(i, b.constant(2, "i32")), b.constant(1, "i32"))
        arms = []
        for build in (lambda b: b.mul(x, b.sin(w)), lambda b: b.add(x, b.mul(w, w))):
            inner = Builder()
            arms.append(Block((), (), (build(inner),)).with_(ops=tuple(inner.ops)))
        return next_(b, i), b.op("core.if", (odd,), regions=tuple(arms))

    return loop(b, (zero(b), x), below(5), body)[1]


def table(b, xs, x):
    """A part of what is carried is read and replaced, at places that come twice."""

    def body(b, i, xs, x):
        place = b.rem(i, b.constant(3, "i32"))
        old = part(b, xs, place)
        return next_(b, i), put(b, xs, place, b.mul(old, x)), b.add(x, b.cos(old))

    made = loop(b, (zero(b), xs, x), below(5), body)
    return made[1], made[2]


def countdown(b, xs, w):
    """From the last part of an input to the first; the step is not 1, the start comes from a
    result of another loop."""

    def body(b, i, h):
        read = b.add(b.mul(h, w), part(b, xs, i))
        return b.sub(i, b.constant(2, "i32")), b.tanh(read)

    def go(b, i, h):
        return b.ge(i, b.constant(0, "i32"))

    return loop(b, (b.constant(5, "i32"), b.scalar_like(0, w)), go, body)[1]


def no_iteration(b, x):
    return loop(b, (b.constant(4, "i32"), x), below(4), lambda b, i, x: (
        next_(b, i), b.mul(x, x)))[1]  # fmt: skip


def composites(b, x, w):
    """Ops that are differentiated through their decompositions."""

    def body(b, i, x):
        x = b.softmax(b.mul(x, w), axis=1)
        return next_(b, i), b.silu(b.layer_norm(x, w, w, axis=1, epsilon=1e-3))

    return loop(b, (zero(b), x), below(3), body)[1]


CASES = {
    "recurrent": (recurrent, "3x3xf64", "5x2x3xf64", "2x3xf64"),
    "powers": (powers, "3xf64"),
    "exchanged": (exchanged, "3xf64", "3xf64"),
    "nested": (nested, "2xf64", "2xf64"),
    "branching": (branching, "3xf64", "3xf64"),
    "table": (table, "3x2xf64", "2xf64"),
    "countdown": (countdown, "6x2xf64", "2xf64"),
    "no iteration": (no_iteration, "3xf64"),
}


def simplified(module: Module) -> Module:
    for pass_ in (SimplifyLoops(), EliminateDeadCode()):
        module = pass_.run(module, PassContext())
    return module


def gradient_of(module: Module) -> Module:
    made = pullback(simplified(module))
    assert not [str(d) for d in verify(made, levels()) if d.severity == "error"]
    return made


def slopes(module: Module, arrays, way, given) -> float:
    """The derivative along ``way`` of the sum of the results times ``given``."""

    def there(sign: int) -> float:
        moved = [a + sign * STEP * w for a, w in zip(arrays, way, strict=True)]
        made = evaluate_block(module.main.body, moved, module.weights)
        return sum(float((r * g).sum()) for r, g in zip(made, given, strict=True))

    return (there(1) - there(-1)) / (2 * STEP)


def numbers(values, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [0.7 * random.standard_normal(v.type.shape) for v in values]


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_a_loop_is_its_slope(name):
    build, *types = CASES[name]
    module = program(build, *types)
    arrays, way = (numbers(module.main.arguments, seed) for seed in (0, 1))
    given = numbers(module.main.outputs, 2)
    back = gradient_of(module)
    found = evaluate_block(back.main.body, [*arrays, *given], back.weights)
    ours = sum(float((f * w).sum()) for f, w in zip(found, way, strict=True))
    assert ours == pytest.approx(slopes(module, arrays, way, given), rel=2e-6, abs=1e-8)
