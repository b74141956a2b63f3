"""Models some of whose values have no element."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.pipelines.pipeline import PipelineEdit
from tests.frontends.programs import Program

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

CASES = {
    "sums and products": (lambda x: (x[:, 2:].sum(0), x[:, 2:].T @ x[:, 2:]), (2, 2)),
    "a product over nothing": (lambda x: x[:, 2:] @ x[:, 2:].T + 1, (2, 2)),
    "a histogram": (lambda x: (torch.histc(x, 4, -2, 2),), (3, 0)),
    "joined": (lambda x: (torch.cat([x[:, 2:], x * 2], 1), x[:0]), (2, 2)),
    "a triangle of nothing": (lambda x: (x.reshape(3, 0, 2).tril(1), x.sum(1)), (0, 2)),
}


@pytest.mark.parametrize("skip", [(), ("fold_constants",)], ids=["all passes", "not folded"])
@pytest.mark.parametrize("name", CASES)
def test_the_results_are_torchs(name, skip):
    function, shape = CASES[name]
    x = torch.linspace(-1, 1, shape[0] * shape[1]).reshape(shape)
    made = cc.compile(Program(function), (x,), check=True, edit=PipelineEdit(skip=skip))
    assert not [r.note for s in made.checks.values() for r in s if r.verdict == "failed"]
    wanted = function(x)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for found, theirs in zip(made(x), wanted, strict=True):
        assert found.shape == tuple(theirs.shape)
        np.testing.assert_allclose(found, theirs, rtol=1e-6)
