"""Schedule kernels: named steps, each with the bits of the one before."""

from __future__ import annotations

import numpy as np

from core_compiler.ir.text import print_function
from core_compiler.kernel_ir.interpreter import interpret
from tests.passes import specs


def added(b, x, y):
    return b.add(x, y)


def scheduled():
    made = specs.reach("schedule_kernels", added, *["9x70xf32"] * 2)
    before = made.module.functions["add"]
    made.step()
    return made, before, made.facts["schedules"]["add"]


def test_an_elementwise_kernel_is_split_into_blocks_and_vectorised():
    _, before, kernel = scheduled()
    assert [step.name.split("(")[0] for step in kernel.steps[:2]] == ["unscheduled", "split"]
    assert 'loop = "vector"' not in print_function(before)
    text = print_function(kernel.function)
    assert 'loop = "parallel", name = "i0_block"' in text
    assert 'loop = "vector", name = "i0"' in text


def test_every_step_has_the_same_bits():
    _, _, kernel = scheduled()
    assert len(kernel.steps) > 2
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(630).astype(np.float32) for _ in range(2))
    for step in kernel.steps:
        result = np.zeros(630, np.float32)
        interpret(step.function, [x, y, result], [630])
        assert result.tobytes() == (x + y).tobytes(), step.name


def test_the_module_holds_the_kernel_as_its_last_step_leaves_it():
    made, before, kernel = scheduled()
    assert made.module.functions["add"] is kernel.function is not before
    assert kernel.steps[0].function is before
