"""What failed in a checked compile, as rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.ops.base import REGISTRY
from core_compiler.training.config import Training
from workbench.model import failures

torch: Any = pytest.importorskip("torch", reason="the model is torch's")


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 36).reshape(1, 1, 6, 6))

    def forward(self, x):
        return torch.nn.functional.avg_pool2d(x * self.weight, 2).flatten(1)


def test_a_reference_that_two_checks_disagree_with_is_named_itself(monkeypatch):
    """Neither the gradient rule that makes the op nor the kernel that it becomes is at fault."""
    kind = "core.avg_pool_gradient"
    declared = REGISTRY[kind]

    def doubled(arrays, attributes, types):
        return tuple(2 * made for made in declared.reference(arrays, attributes, types))

    monkeypatch.setitem(REGISTRY, kind, replace(declared, reference=doubled))
    random = np.random.default_rng(0)
    inputs = (random.standard_normal((2, 1, 6, 6)).astype(np.float32), np.array([1, 4]))
    made = cc.compile(
        Pooled(),
        tuple(map(torch.from_numpy, inputs)),
        training=Training(loss="cross_entropy"),
        check=True,
    )
    first, *others = failures.rows(made.compilation)
    assert (first["pass"], first["rule"]) == (failures.REFERENCE, kind)
    blamed = {row["pass"] for row in others}
    assert {"differentiate"} <= blamed and len(blamed) > 1
