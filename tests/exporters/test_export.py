"""A stage as files of other tools: what all formats do alike."""

from __future__ import annotations

import resource

import numpy as np
import pytest

from core_compiler.driver.export import export
from core_compiler.support.errors import UserError
from tests.passes.programs import program

ENDS = {"inputs": ["x"], "outputs": ["y"]}
#: Formats of two files, and the options that ask for them.
PAIRS = {
    "m.onnx": {"largest": 0},
    "m.py": {},
    "m.linalg.mlir": {"weights": "arguments"},
    "m.tosa.mlir": {"weights": "arguments"},
}


def plus(size: int, negations: int = 0):
    """A program of that many negations, with a weight of that many elements."""

    def build(b, x):
        for _ in range(negations):
            x = b.neg(x)
        return b.add(x, b.constant(np.ones(size, np.float32), name="w"))

    return program(build, f"{size}xf32")


@pytest.mark.slow
@pytest.mark.parametrize("larger", ["program", "weights"])
@pytest.mark.parametrize("name", PAIRS)
def test_a_disk_that_fills_at_one_of_two_files_leaves_both_as_they_were(tmp_path, name, larger):
    files = export(plus(500), tmp_path / name, **ENDS, **PAIRS[name])
    assert len(files) == 2
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    module = plus(512, 3000) if larger == "program" else plus(10_000)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))
    try:
        with pytest.raises(UserError, match="too large"):
            export(module, tmp_path / name, **ENDS, **PAIRS[name])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
