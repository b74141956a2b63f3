"""Interpolation with ``antialias=True``, and of bytes: torch as the oracle, at any sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.framework import compare
from core_compiler.frontends.pytorch import import_module
from tests.examples import examples

MODES = ["bilinear", "bicubic"]
if hasattr(torch.ops.aten, "_upsample_lanczos2d_aa"):  # torch 2.13
    MODES.append("lanczos")


class Resized(torch.nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.how = how

    def forward(self, x):
        return torch.nn.functional.interpolate(x, **{"antialias": True} | self.how)


@settings(max_examples=examples(18), deadline=None)
@given(
    st.sampled_from(MODES),
    st.tuples(*[st.integers(1, 19)] * 2),
    # Torch (2.13) makes all rows of a result that is 1 wide the first one.
    st.tuples(st.integers(1, 9), st.integers(2, 9)),
    st.booleans(),
)
def test_sizes(mode, before, after, align_corners):
    corners = align_corners if mode != "lanczos" else False  # which torch has not
    agrees(before, mode=mode, size=after, align_corners=corners)


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None)
@given(
    st.sampled_from(MODES),
    st.tuples(*[st.integers(3, 19)] * 2),
    st.sampled_from([0.4, 0.55, 1.7, (0.5, 2.3)]),
    st.booleans(),
)
def test_scales(mode, before, factor, recompute):
    agrees(before, mode=mode, scale_factor=factor, recompute_scale_factor=recompute)


def agrees(before, **how):
    x = torch.randn(2, 3, *before, generator=torch.Generator().manual_seed(sum(before)))
    module = Resized(**how)
    found = import_module(module, (x,))
    main = found.module.main
    (made,) = Evaluator(found.module.weights).block(main.body, [x.numpy()])
    want = module(x).numpy()
    assert made.shape == want.shape
    np.testing.assert_allclose(made, want, rtol=0, atol=2e-6 * max(np.abs(want).max(), 1e-3))
    assert compare(found.module, [x.numpy()], found.nodes, 1).verdict in ("equal", "within")


@settings(max_examples=examples(24), deadline=None)
@given(
    st.sampled_from(MODES),
    st.booleans(),
    st.tuples(*[st.integers(1, 19)] * 2),
    st.tuples(st.integers(1, 30), st.integers(2, 30)),
    st.booleans(),
    st.integers(0, 9),
)
def test_images_of_bytes_have_the_bits_of_torch(mode, antialias, before, after, corners, seed):
    """In fixed point, rows before columns: one rounding for both would be another number in 20%."""
    plain = {"antialias": antialias or mode == "lanczos", "align_corners": corners}
    module = Resized(mode=mode, size=after, **plain if mode != "lanczos" else {})
    x = torch.randint(
        0, 256, (2, 3, *before), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    found = import_module(module, (x,))
    (made,) = Evaluator(found.module.weights).block(found.module.main.body, [x.numpy()])
    assert found.facts["stood_in"] == []
    np.testing.assert_array_equal(made, module(x).numpy())


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("factor", [0.4, 1.7, (0.5, 2.3)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_of_bytes_by_a_factor(mode, factor, recompute):
    module = Resized(
        mode=mode, scale_factor=factor, recompute_scale_factor=recompute, antialias=False
    )
    x = torch.randint(0, 256, (1, 3, 9, 11), dtype=torch.uint8)
    found = import_module(module, (x,))
    (made,) = Evaluator(found.module.weights).block(found.module.main.body, [x.numpy()])
    np.testing.assert_array_equal(made, module(x).numpy())
