"""Outline kernels: each group becomes a function of plain loops, and a launch of it."""

from __future__ import annotations

import numpy as np

from core_compiler.kernel_ir.interpreter import interpret
from tests.passes import specs
from tests.passes.programs import inputs, program


def added(b, x, y):
    return b.exp(b.add(x, y))


def test_a_group_becomes_a_kernel_and_its_launch():
    made = specs.reach("outline_kernels", added, *["3x4xf32"] * 2)
    assert specs.kinds(made.module) == ["group(add exp)"]
    assert specs.rules_fired(made.step().rewrites) == ["outline a kernel"]
    assert specs.kinds(made.module) == ["launch(add exp)"]
    (launch,) = made.module.main.body.ops
    assert launch["kernel"] == "add_exp"
    # Contiguous axes are one loop: twelve elements, whatever the shape.
    assert launch["arguments"] == (("operand", 0), ("operand", 1), ("result", 0), ("size", 12))
    kernel = made.module.functions["add_exp"]
    assert [op.kind for op in kernel.body.walk()].count("kernel.for") == 1


def test_the_kernel_computes_what_its_launch_means():
    made = specs.reach("outline_kernels", added, *["3x4xf32"] * 2)
    made.step()
    arrays = inputs(made.module)
    result = np.zeros(12, np.float32)
    interpret(made.module.functions["add_exp"], [*(a.reshape(-1) for a in arrays), result], [12])
    (wanted,) = specs.outputs(program(added, *["3x4xf32"] * 2), arrays)
    assert result.tobytes() == wanted.tobytes()


def test_groups_of_one_structure_share_a_kernel_of_any_size():
    def build(b, x, y, z, w):
        return b.exp(b.add(x, y)), b.exp(b.add(z, w))

    made = specs.reach("outline_kernels", build, "3x4xf32", "3x4xf32", "5x7xf32", "5x7xf32")
    made.step()
    launches = made.module.main.body.ops
    assert [op["kernel"] for op in launches] == ["add_exp", "add_exp"]
    assert [op["arguments"][-1] for op in launches] == [("size", 12), ("size", 35)]
