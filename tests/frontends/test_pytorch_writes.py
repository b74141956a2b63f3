"""Assignment through masks and scattering in torch programs: equal to torch, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from core_compiler.debug.evaluate import Evaluator
from core_compiler.frontends.pytorch import import_module

#: Multiples of 1/8: their sums are exact in any order.
X = (torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0)) * 8).round() / 8
AT = torch.tensor([[[0, 2]], [[1, 0]], [[2, 2]], [[0, 0]]])


def _assigned(x: torch.Tensor, mask: torch.Tensor, value) -> torch.Tensor:
    x = x.clone()
    x[mask] = value(x[mask]) if callable(value) else value
    return x


def _reduced(x, kind: str, own: bool, reduce: str = "mean") -> torch.Tensor:
    x = (x * 8).to(getattr(torch, kind))
    return torch.scatter_reduce(x, 1, AT.expand(4, 3, 2), x.flip(1), reduce, include_self=own)


def _largest_doubled(x: torch.Tensor, again: bool) -> tuple[torch.Tensor, ...]:
    largest, places = torch.topk(x, 2, 1)
    seen = largest.flip(1) if again else places
    view = largest[:, :1]
    largest *= 2.0
    return largest, seen, view if again else places


CASES: dict[str, Callable] = {
    # The experts of a mixture: one of the two results of topk is written, in place.
    "one of two results": lambda x: _largest_doubled(x, False)[0],
    "positions beside it": lambda x: _largest_doubled(x, False)[1],
    "read before it is written": lambda x: _largest_doubled(x, True)[1],
    "a view of it": lambda x: _largest_doubled(x, True)[2],
    # Torch pads circularly by writes into a new tensor, in C++.
    "circular padding": lambda x: torch.nn.functional.pad(x, (1, 2), mode="circular"),
    "circular padding of planes": lambda x: torch.nn.functional.pad(
        x[None], (1, 1, 2, 0), mode="circular"
    ),
    "a number": lambda x: _assigned(x, x > 0, 7.0),
    "a number for rows": lambda x: _assigned(x, x[..., 0] > 0, -1.0),
    "a row for rows": lambda x: _assigned(x, x[:, 0, 0] > 0, x[0]),
    "what the mask takes": lambda x: _assigned(x, x > 0, lambda taken: taken * 2),
    "rows that the mask takes": lambda x: _assigned(x, x[..., 1] > 0, lambda taken: 1 - taken),
    "added": lambda x: x.clone().index_put_((x > 0,), torch.tensor(3.0), accumulate=True),
    "means": lambda x: _reduced(x, "float32", True),
    "means without its own": lambda x: _reduced(x, "float32", False),
    "means of integers": lambda x: _reduced(x, "int64", True),
    "means of integers without its own": lambda x: _reduced(x, "int64", False),
    "stable sort": lambda x: torch.sort(x.round(), stable=True, dim=1, descending=True).indices,
}


class _Of(torch.nn.Module):
    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_torch_computes(name: str) -> None:
    model = _Of(CASES[name])
    want = model(X).numpy()
    imported = import_module(model, (X,))
    (found,) = Evaluator(imported.module.weights).block(imported.module.main.body, [X.numpy()])
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)
