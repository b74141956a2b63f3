"""Nearest interpolation: copies at torch's own positions."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc

torch = pytest.importorskip("torch")

SIZES = [
    ((1, 3, 5, 7), {"scale_factor": 2}),
    ((2, 3, 5, 7), {"size": (11, 13)}),
    ((1, 3, 9, 7), {"scale_factor": (1.7, 0.6)}),
    ((1, 3, 9, 7), {"scale_factor": 1.3, "recompute_scale_factor": True}),
    ((2, 3, 10), {"scale_factor": 3}),
    ((2, 3, 10), {"size": 7}),
    ((1, 2, 3, 4, 5), {"size": (7, 5, 3)}),
    ((1, 1, 5, 70), {"scale_factor": 7}),  # 1 / 7 is rounded
]


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("case", range(len(SIZES)))
def test_each_element_is_the_one_that_torch_copies(mode: str, case: int) -> None:
    shape, options = SIZES[case]

    class Resized(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.interpolate(x, mode=mode, **options)

    for dtype in (torch.float32, torch.bfloat16, torch.uint8):
        x = (torch.arange(np.prod(shape)) % 251).reshape(shape).to(dtype)
        (found,) = cc.compile(Resized(), (x,))(x)
        assert np.array_equal(np.asarray(found, np.float32), Resized()(x).float().numpy())
