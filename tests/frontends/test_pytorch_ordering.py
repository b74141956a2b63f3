"""What follows from an order, from PyTorch: medians, insertion points, distinct elements."""

from __future__ import annotations

import math

import pytest

import core_compiler as cc
from core_compiler.support.errors import UserError

torch = pytest.importorskip("torch", reason="torch is the oracle")


class _Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def _normal(seed: int, *shape: int):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _numbers(seed: int):
    return torch.randint(0, 6, (5, 7), generator=torch.Generator().manual_seed(seed))


def _with_nan(seed: int):
    x = _normal(seed, 6, 5)
    x[1, 2] = x[1, 0] = math.nan
    x[4] = math.nan
    return x


SORTED, ROWS = torch.sort(_normal(0, 11)).values, torch.sort(_normal(1, 4, 7)).values
WANTED = _normal(2, 4, 3)
WANTED[0, 0], WANTED[1, 1], WANTED[2, 2] = math.nan, SORTED[3], ROWS[2, 4]
TIES = torch.tensor([1, 1, 2, 2, 2, 5])
FLOATS, INTEGERS = ((_normal(0, 6, 5),), (_with_nan(1),)), ((_numbers(0),), (_numbers(1) // 2,))

#: A function, the inputs it is compiled for and others.
CASES = {
    "median": (torch.median, *FLOATS),
    "median of integers": (torch.median, *INTEGERS),
    "median of rows": (lambda x: torch.median(x, 1), *FLOATS),
    "median of columns": (lambda x: torch.median(x, 0, keepdim=True), *FLOATS),
    "nanmedian": (torch.nanmedian, *FLOATS),
    "nanmedian of rows": (lambda x: torch.nanmedian(x, 1).values, *FLOATS),
    "searchsorted": (torch.searchsorted, (SORTED, WANTED), (SORTED + 0.1, WANTED)),
    "from the right": (
        lambda rows, x: torch.searchsorted(rows, x, side="right", out_int32=True),
        (ROWS, WANTED),
        (ROWS + 1, WANTED),
    ),
    "ties": (torch.searchsorted, (TIES, TIES), (TIES, TIES + 1)),
    "ties from the right": (
        lambda rows, x: torch.searchsorted(rows, x, right=True),
        (TIES, TIES),
        (TIES, TIES + 1),
    ),
    "a number": (lambda x: torch.searchsorted(x, 0.25), (SORTED,), (SORTED - 1,)),
    "a sorter": (
        lambda rows, x: torch.searchsorted(rows, x, sorter=torch.argsort(rows)),
        (_normal(3, 9), WANTED),
        (_normal(4, 9), WANTED),
    ),
    "bucketize": (torch.bucketize, (WANTED, SORTED), (WANTED, SORTED + 1)),
    "unique": (torch.unique, *INTEGERS),
    "unique, positions and counts": (
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        *INTEGERS,
    ),
    "unique of floats": (lambda x: torch.unique(x, return_counts=True), *FLOATS),
    "a sum of unique": (lambda x: (lambda u: u.sum() * u.shape[0])(torch.unique(x)), *INTEGERS),
    "runs": (
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        *INTEGERS,
    ),
    "put": (
        lambda x: x.put(torch.tensor([1, 3, -1]), torch.tensor([1.0, 2.0, 3.0])),
        *FLOATS,
    ),
    "put, added": (
        lambda x: x.put(torch.tensor([1, 3, 1]), torch.tensor([1.0, 2.0, 3.0]), accumulate=True),
        *FLOATS,
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_one_compile_gives_torch_s_results_for_all_inputs(name):
    function, *inputs = CASES[name]
    compiled = cc.compile(_Model(function), inputs[0])
    for given in inputs:
        expected = function(*given)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for made, wanted in zip(compiled(*given), expected, strict=True):
            made = torch.from_numpy(made.copy())
            torch.testing.assert_close(made, wanted, rtol=0, atol=0, equal_nan=True)


def test_runs_of_rows_are_refused():
    with pytest.raises(UserError, match="runs of equal rows"):
        cc.compile(_Model(lambda x: torch.unique_consecutive(x, dim=0)), (_numbers(0),))
