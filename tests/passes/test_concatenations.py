"""Concatenations of many parts: written part by part, by kernels that parts of one kind share."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.debug.check import summary
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.passes.concatenations import MOST_PARTS
from tests.passes.programs import program


def _rows(number: int) -> int:
    """How many rows a part has; some have none."""
    return 2 if number % 7 else 0


def _compiled(count: int):
    def build(b, x):
        parts = (
            b.slice(x, starts=(i, 0), limits=(i + _rows(i), 4), strides=(1, 1))
            for i in range(count)
        )
        return b.concat(*parts, axis=0)

    module = program(build, f"{count + 2}x4xf32")
    x = np.random.default_rng(0).standard_normal((count + 2, 4)).astype(np.float32)
    return compilation.start(module, "cpu", Options(check=True), [x]).finish(), x


@pytest.mark.parametrize("count", [MOST_PARTS + 1, 600])
def test_every_part_is_in_its_place(count: int) -> None:
    """600 parts in one expression are deeper than Python recurses."""
    made, x = _compiled(count)
    want = np.concatenate([x[i : i + _rows(i)] for i in range(count)])
    (got,) = made(x)
    assert got.tobytes() == want.tobytes()
    assert summary(made.checks)["failed"] == 0
    kernels = {op["kernel"] for op in made.module.main.body.ops if op.kind == "target.launch"}
    assert len(kernels) < 10


@pytest.mark.parametrize(("count", "columns", "launches"), [(8, 4, 1), (12, 4, 12), (12, 2048, 1)])
def test_few_parts_are_one_kernel_and_more_of_a_small_tensor_are_not(
    count: int, columns: int, launches: int
) -> None:
    def build(b, x):
        limits = [(2 * i + 2, columns) for i in reversed(range(count))]
        parts = (
            b.slice(x, starts=(end - 2, 0), limits=(end, n), strides=(1, 1)) for end, n in limits
        )
        return b.concat(*parts, axis=0)

    module = program(build, f"{2 * count}x{columns}xf32")
    made = compilation.start(module).finish()
    assert sum(op.kind == "target.launch" for op in made.module.main.body.ops) == launches
    x = np.random.default_rng(0).standard_normal((2 * count, columns)).astype(np.float32)
    (got,) = made(x)
    assert got.tobytes() == x.reshape(count, 2, columns)[::-1].tobytes()
