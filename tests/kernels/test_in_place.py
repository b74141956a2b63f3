"""Which kernels may write where an operand lies."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.lowering.in_place import may_share


def _kernel(fill):
    kb = KernelBuilder("k")
    x = kb.buffer("x", ("n",), "f32", strides=(1,))
    y = kb.buffer("y", ("n",), "f32", strides=(1,))
    n = kb.size("n")
    fill(kb, x, y, n)
    return kb.function(), x, y


def _each(kb, x, y, n):
    with kb.loop("i", 0, n, loop="vector") as i:
        kb.store(kb.mul(kb.load(x, i), kb.number(2.0, "f32")), y, i)


def _each_with_indices_computed_twice(kb, x, y, n):
    with kb.loop("i", 0, n) as i:
        read = kb.load(x, kb.add(i, 0))
        kb.store(read, y, kb.mul(i, 1))


def _backwards(kb, x, y, n):
    with kb.loop("i", 0, n) as i:
        kb.store(kb.load(x, kb.sub(kb.sub(n, 1), i)), y, i)


def _neighbours(kb, x, y, n):
    with kb.loop("i", 1, n) as i:
        kb.store(kb.add(kb.load(x, i), kb.load(x, kb.sub(i, 1))), y, i)


def _first_then_each(kb, x, y, n):
    first = kb.load(x, 0)
    with kb.loop("i", 0, n) as i:
        kb.store(kb.add(kb.load(x, i), first), y, i)


def _through_the_result(kb, x, y, n):
    with kb.loop("i", 0, n) as i:
        kb.store(kb.number(0.0, "f32"), y, i)
    with kb.loop("j", 0, n) as j:
        kb.store(kb.add(kb.load(y, j), kb.load(x, j)), y, j)


def _again_after_the_store(kb, x, y, n):
    with kb.loop("i", 0, n) as i:
        kb.store(kb.load(x, i), y, i)
        kb.store(kb.load(x, i), y, i)


def _another_number(kb, x, y, n):
    with kb.loop("i", 0, n) as i:
        kb.load(x, i)
        kb.store(kb.number(1.0, "f32"), y, i)


@pytest.mark.parametrize("fill", [_each, _each_with_indices_computed_twice])
def test_it_may(fill):
    function, x, y = _kernel(fill)
    assert may_share(function, x, y, {})


@pytest.mark.parametrize(
    "fill",
    [
        _backwards,
        _neighbours,
        _first_then_each,
        _through_the_result,
        _again_after_the_store,
        _another_number,
    ],
)
def test_it_may_not(fill):
    function, x, y = _kernel(fill)
    assert not may_share(function, x, y, {})


def test_what_is_said_to_share_gives_the_same_bits_shared():
    from core_compiler.kernel_ir.interpreter import interpret

    function, _, _ = _kernel(_each)
    x = np.arange(40, dtype=np.float32)
    apart, shared = np.zeros_like(x), x.copy()
    interpret(function, [x, apart], [40])
    interpret(function, [shared, shared], [40], reverse=True)
    assert apart.tobytes() == shared.tobytes()
