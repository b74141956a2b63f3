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


def test_few_parts_are_one_kernel() -> None:
    made, _ = _compiled(8)
    assert sum(op.kind == "target.launch" for op in made.module.main.body.ops) == 1
