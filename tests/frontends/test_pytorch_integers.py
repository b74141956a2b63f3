"""Operations of integers and booleans: torch's results, by a translation of our own each.

A translation whose result has another dtype than torch's is replaced by torch's decomposition,
where it has one: right numbers, and a red check of the import.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import core_compiler as cc
from core_compiler.frontends.pytorch import import_module
from core_compiler.frontends.pytorch.tensors import to_numpy
from core_compiler.ops.evaluation import evaluate_block
from core_compiler.support.errors import UserError


def scattered(x, updates, reduce: str, include_self: bool):
    rows = torch.arange(len(updates)) % (len(x) - 1)
    return x.scatter_reduce(0, rows, updates, reduce, include_self=include_self)


DTYPES = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)
OPERATIONS = {
    "linear": (F.linear, (2, 3), (4, 3)),
    "linear with a bias": (F.linear, (2, 3), (4, 3), (4,)),
    "product of vectors": (torch.matmul, (3,), (3,)),
    "product of many": (torch.matmul, (2, 2, 3), (3, 2)),
    "product of each": (torch.matmul, (2, 2, 3), (2, 3, 2)),
    "mv": (torch.mv, (2, 3), (3,)),
    "addmm": (torch.addmm, (2, 2), (2, 3), (3, 2)),
    "einsum": (lambda x, y: torch.einsum("ij,kj->ik", x, y), (2, 3), (4, 3)),
    "convolution": (F.conv2d, (1, 2, 4, 4), (3, 2, 2, 2)),
    "convolution with a bias": (F.conv1d, (1, 2, 4), (3, 2, 2), (3,)),
    "transposed convolution": (F.conv_transpose2d, (1, 2, 4, 4), (2, 3, 2, 2)),
    "outer": (torch.outer, (2,), (3,)),
    "square": (torch.square, (3,)),
    "largest of two": (torch.max, (4,), (4,)),
    "smallest of two": (torch.min, (4,), (4,)),
    **{
        f"scatter_reduce {kind}{'' if own else ' of updates alone'}": (
            functools.partial(scattered, reduce=kind, include_self=own),
            (4,),
            (7,),
        )
        for kind in ("sum", "prod", "amax", "amin", "mean")
        for own in (True, False)
    },
}


class Function(torch.nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


@pytest.mark.parametrize("name", OPERATIONS)
def test_integers_are_as_torch_has_them(name):
    function, *shapes = OPERATIONS[name]
    tried = []
    for dtype in DTYPES:
        torch.manual_seed(5)
        inputs = tuple(
            torch.randint(0, 2 if dtype is torch.bool else 100, s).to(dtype) for s in shapes
        )
        try:
            wanted = to_numpy(function(*inputs))
        except RuntimeError:  # not implemented for this dtype
            continue
        made = import_module(Function(function), inputs)
        (ours,) = evaluate_block(
            made.module.main.body, [to_numpy(x) for x in inputs], made.module.weights
        )
        assert made.facts["stood_in"] == [], dtype
        assert (ours.dtype, ours.tolist()) == (wanted.dtype, wanted.tolist()), dtype
        tried.append(dtype)
    assert torch.int64 in tried


def _equal(function, *inputs):
    expected = function(*inputs)
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    got = cc.compile(Function(function), inputs)(*inputs)
    for mine, theirs in zip(got, expected, strict=True):
        assert np.asarray(mine).dtype == theirs.numpy().dtype
        np.testing.assert_array_equal(mine, theirs.numpy())


def test_products_of_bytes_are_summed_in_i32():
    torch.manual_seed(0)
    x, y = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((32, 64), (64, 40)))
    _equal(torch._int_mm, x, y)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_each_element_is_repeated_its_own_number_of_times(axis):
    x = torch.arange(15.0).reshape(3, 5)
    times = {None: torch.tensor([0, 2, 4, 0, 1] * 3), 0: torch.tensor([2, 0, 3])}.get(
        axis, torch.tensor([0, 2, 4, 0, 1])
    )
    total = int(times.sum())
    _equal(lambda x, t: torch.repeat_interleave(x, t, axis, output_size=total), x, times)


def test_without_its_size_a_repeated_tensor_is_refused_with_the_reason():
    with pytest.raises(UserError, match="size depends on data"):
        cc.compile(Function(torch.repeat_interleave), (torch.ones(3), torch.tensor([1, 2, 0])))


@pytest.mark.parametrize("function", [torch.cummax, torch.cummin])
def test_running_extremes_have_the_position_of_the_last_of_equals(function):
    x = torch.tensor([[1.0, 3, -0.0, 3, 2], [0.0, -0.0, 0, 4, 4], [1, torch.nan, 5, torch.nan, 0]])
    _equal(lambda x: function(x, 1), x)
    _equal(lambda x: function(x, 0), x)
    _equal(lambda x: function(x, 0), torch.randint(0, 5, (300, 2)))


class _IntegerWeights(torch.nn.Module):
    """A linear layer whose weights are bytes, with a scale for each row, as gpt-fast has them."""

    def __init__(self, kind):
        super().__init__()
        low, high = torch.iinfo(kind).min, torch.iinfo(kind).max
        self.register_buffer("weight", torch.randint(low, high + 1, (70, 300), dtype=kind))
        self.register_buffer("scale", torch.rand(70) / 100)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight.to(x.dtype)) * self.scale.to(x.dtype)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "weights", [torch.int8, *(pytest.param(d, marks=SLOW) for d in (torch.uint8, torch.int16))]
)
@pytest.mark.parametrize(
    "kind", [torch.float32, *(pytest.param(d, marks=SLOW) for d in (torch.bfloat16, torch.float16))]
)
def test_products_read_weights_of_bytes_as_they_are(kind, weights):
    model = _IntegerWeights(weights)
    for rows in (1, 60):
        x = torch.randn(rows, 300).to(kind)
        compiled = cc.compile(model, (x,), threads=2)
        (made,) = compiled(x)
        module = compiled.stages[0].module
        (expected,) = evaluate_block(module.main.body, [to_numpy(x)], module.weights)
        assert made.tobytes() == expected.tobytes()
        assert len(compiled.executable.program.launches) == 1


VIEWED = ("uint8", "int16", "float16", "bfloat16", "int32", "float32", "int64", "float64")


@pytest.mark.parametrize("of", VIEWED)
@pytest.mark.parametrize("kind", VIEWED)
def test_the_same_bytes_as_another_dtype(kind, of):
    class View(torch.nn.Module):
        def forward(self, x):
            return x.view(getattr(torch, of))

    raw = np.random.default_rng(0).integers(0, 256, (3, 16)).astype(np.uint8)
    x = torch.from_numpy(raw).view(getattr(torch, kind))
    (made,) = cc.compile(View(), (x,))(x)
    wanted = View()(x).view(torch.uint8).numpy()
    np.testing.assert_array_equal(np.asarray(made).view(np.uint8), wanted)
