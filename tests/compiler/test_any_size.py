"""Any size that a model permits, also where other kernels or decompositions are chosen for it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import core_compiler as cc
from core_compiler.numerics.reference.digest import same_bits
from tests.examples import examples

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(12, 20), nn.LayerNorm(20), nn.Linear(20, 5)

    def forward(self, x):
        return F.softmax(self.second(self.norm(F.relu(self.first(x)))), -1)


class Columns(nn.Module):
    """Reductions along the size and across it, as a sequence and by lanes."""

    def forward(self, x):
        return x.sum(0), x.mean(), x.sum(1), x.softmax(0), x.cumsum(0)


class Lines(nn.Module):
    def forward(self, x):
        return x.sum(1), x.mean(1), x.softmax(1), x.cumsum(1)


class Products(nn.Module):
    def forward(self, x):
        return x @ x.t(), x.t() @ x, x @ torch.ones(12, 3)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.inside(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.first(x))).mean((2, 3)))


#: The model, the shape of its input and the axis that varies.
MODELS = {
    "perceptron, rows": (Perceptron, (4, 12), 0),
    "columns": (Columns, (4, 6), 0),
    "lines": (Lines, (3, 40), 1),
    "products": (Products, (6, 12), 0),
    "attention, length": (Attention, (2, 10, 8), 1),
    "attention, batch": (Attention, (2, 10, 8), 0),
    "pictures, batch": (Pictures, (2, 3, 9, 9), 0),
    "pictures, height": (Pictures, (2, 3, 9, 9), 2),
}
#: Beyond these, chunks of the contract's sums and other kernels begin.
THRESHOLDS = (0, 1, 2, 16, 32, 64, 256, 4096)
LONG = ("columns", "lines")


@cache
def exported(name: str):
    kind, shape, axis = MODELS[name]
    torch.manual_seed(0)
    module, dynamic = kind().eval(), {axis: torch.export.Dim.DYNAMIC}
    program = torch.export.export(module, (torch.randn(*shape),), dynamic_shapes=(dynamic,))
    return module, program, cc.compile(program)


@st.composite
def calls(draw):
    name = draw(st.sampled_from(list(MODELS)))
    most = 4096 if name in LONG else 256
    near = st.sampled_from([n for n in THRESHOLDS if n <= most])
    size = draw(st.one_of(near, st.builds(lambda n, d: abs(n + d), near, st.integers(-1, 1))))
    return name, max(size, 3) if name == "pictures, height" else size


@pytest.mark.slow
@settings(max_examples=examples(24), deadline=None)
@given(calls())
def test_it_has_the_bits_of_a_compile_for_the_size(call) -> None:
    name, size = call
    module, program, made = exported(name)
    _, shape, axis = MODELS[name]
    shape = (*shape[:axis], size, *shape[axis + 1 :])
    x = np.random.default_rng(size).standard_normal(shape).astype(np.float32)
    found = made(x)
    for one, other in zip(found, cc.compile(program, (x,))(x), strict=True):
        assert same_bits(one, other)
    with torch.no_grad():
        wanted = module(torch.from_numpy(x))
    for one, theirs in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert one.shape == tuple(theirs.shape)
        np.testing.assert_allclose(one, theirs.numpy(), rtol=1e-4, atol=1e-4)
