"""Sizes that depend on data, from PyTorch: one import answers for every input, as torch does."""

from __future__ import annotations

import pytest

import core_compiler as cc
from core_compiler.frontends.pytorch import import_module
from core_compiler.frontends.pytorch.tensors import to_numpy
from core_compiler.support.errors import UserError
from tests.frontends.onnx_models import execute

torch = pytest.importorskip("torch", reason="torch is the oracle")

CASES = {
    "the elements of a mask": lambda x: x[x > 0],
    "rows of a mask": lambda x: x[x[:, 0] > 0],
    "places": lambda x: torch.nonzero(x > 0),
    "their sum": lambda x: x[x > 0].sum(),
    "their mean": lambda x: x[x[:, 0] > 0].mean(0),
    "a sum by their number": lambda x: (lambda kept: kept.sum(0) / kept.shape[0])(x[x[:, 0] > 0]),
    "softmax of them": lambda x: torch.softmax(x[x > 0], 0),
    "softmax of rows": lambda x: torch.softmax(x[x[:, 1] > 0], 1),
    "products of rows": lambda x: x[x[:, 0] > 0] @ x.T,
    "products over rows": lambda x: x[x[:, 0] > 0].T @ x[x[:, 0] > 0],
    "joined": lambda x: torch.cat([x[x[:, 0] > 0], x, x[x[:, 1] > 0]]),
    "an embedding": lambda x: torch.nn.functional.embedding(torch.nonzero(x[:, 0] > 0)[:, 0], x),
    "a mask of kept ones": lambda x: (lambda kept: kept[kept < 1])(x[x > 0]),
    "the largest": lambda x: x[x[:, 0] > 0].amax(0),
    "masked select": lambda x: torch.masked_select(x, x[:, :1] > 0) * 2,
}


class _Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def _x(seed: int):
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
    x[0, :2] = 0.5  # something is kept in every input
    return x


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_one_import_answers_for_every_input(name):
    model = _Model(CASES[name])
    imported = import_module(model, [_x(0)])
    for seed in range(10):
        (made,) = imported.trimmed(execute(imported, [to_numpy(_x(seed))]))
        torch.testing.assert_close(torch.from_numpy(made.copy()), model(_x(seed)))


def test_a_compiled_model_gives_results_of_the_sizes_that_the_data_make():
    model = _Model(CASES["rows of a mask"])
    made = cc.compile(model, [_x(0)])
    for seed in range(4):
        torch.testing.assert_close(
            torch.from_numpy(made(to_numpy(_x(seed)))[0].copy()), model(_x(seed))
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x[x > 0].var(), "depends on data"),
        (lambda x: torch.arange(torch.nonzero(x).shape[0]), "depends on data"),
    ],
    ids=["variance", "arange"],
)
def test_what_has_no_form_is_refused_in_words(function, reason):
    with pytest.raises(UserError, match=reason):
        import_module(_Model(function), [_x(0)])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_counts_have_the_minimal_length(dtype, weighted):
    model = _Model(lambda x: torch.bincount(x, x * 0.3 if weighted else None, minlength=8) / 2)
    numbers = torch.tensor([1, 2, 3, 2, 1, 5]).to(dtype)
    compiled = cc.compile(model, (numbers,))
    for given in (numbers, numbers.flip(0) + 2):
        (made,) = compiled(given)
        torch.testing.assert_close(torch.from_numpy(made.copy()), model(given), rtol=0, atol=0)
    numbers[3] = 8
    with pytest.raises(UserError, match=r"index 8 at \[3\].*aten.bincount \(size 8\)"):
        compiled(numbers)


def test_counts_have_the_length_of_their_numbers_up_to_a_bound():
    def bounded(x):
        counts = torch.bincount(x)
        torch._check(counts.shape[0] <= 16)
        return counts, counts.float() / counts.shape[0]

    model, numbers = _Model(bounded), torch.tensor([1, 2, 3, 2, 1, 5])
    compiled = cc.compile(model, (numbers,))
    for given in (numbers, numbers + 4, numbers * 0):
        for made, expected in zip(compiled(given), model(given), strict=True):
            torch.testing.assert_close(torch.from_numpy(made.copy()), expected, rtol=0, atol=0)
    with pytest.raises(UserError, match=r"aten.bincount \(size 16\)"):
        compiled(numbers * 4)


def test_counts_without_a_bound_are_refused():
    with pytest.raises(UserError, match="pass minlength=the largest number"):
        cc.compile(_Model(torch.bincount), (torch.tensor([1, 2]),))
