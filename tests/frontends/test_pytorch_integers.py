"""Operations of integers and booleans: torch's results, by a translation of our own each.

A translation whose result has another dtype than torch's is replaced by torch's decomposition,
where it has one: right numbers, and a red check of the import.
"""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F

from core_compiler.frontends.pytorch import import_module
from core_compiler.frontends.pytorch.tensors import to_numpy
from core_compiler.ops.evaluation import evaluate_block


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
