"""Scatters with equal places, scans, sorts with ties; values that are results too; shared memory.

After jax-ml/jax#22382, tinygrad/tinygrad#12296, #15698, microsoft/onnxruntime#2434, #4110,
pytorch/pytorch#114229, #100314, apache/tvm#19577.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import core_compiler as cc
from tests.frontends.onnx_models import F, model_of, ours
from tests.frontends.programs import agrees
from tests.trials.everywhere import arrays, everywhere, same


def test_scatters_into_equal_places():
    i, v = torch.tensor([0, 1, 1, 4, 1, 0]), torch.tensor([1.0, 2, 3, -4, 0.5, 6])

    def function(i, v):
        zeros, ones = torch.zeros(5), torch.ones(5)
        return (
            zeros.scatter_add(0, i, v),
            zeros.index_add(0, i, v, alpha=2),
            ones.scatter_reduce(0, i, v, "prod"),
            ones.scatter_reduce(0, i, v, "mean"),
            ones.scatter_reduce(0, i, v, "mean", include_self=False),
            zeros.scatter_reduce(0, i, v, "amax", include_self=False),
            ones.index_put((i,), v, accumulate=True),
        )

    agrees(function, i, v)


def test_einsum_with_repeated_labels():
    a, b = torch.randn(3, 3), torch.randn(3, 3, 3)
    spellings = ["ii->i", "ii", "ij->", "ba", "ij,ij->", "ij,jk,kl->il"]
    agrees(lambda a: tuple(torch.einsum(s, *[a] * (s.count(",") + 1)) for s in spellings), a)
    agrees(
        lambda b: (
            torch.einsum("iij->j", b),
            torch.einsum("bij,bkj->bik", b, b),
            torch.einsum("...i,...i", b, b),
            torch.einsum("iji->ji", b),
        ),
        b,
    )


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_sums_of_onnx(exclusive, reverse, axis):
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    node = helper.make_node("CumSum", ["x", "a"], ["y"], exclusive=exclusive, reverse=reverse)
    place = helper.make_tensor("a", TensorProto.INT64, (), [axis])
    proto = model_of([node], [("x", F, x.shape)], [("y", F, x.shape)], [place], opset=14)
    turned = np.flip(x, axis) if reverse else x
    wanted = np.cumsum(turned, axis) - (turned if exclusive else 0)
    same(ours(proto, {"x": x}), [np.flip(wanted, axis) if reverse else wanted])


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatter_nd_of_onnx(reduction):
    data, places = np.ones((4, 2), np.float32), np.array([[1], [1], [-1], [1]])
    updates = np.arange(8, dtype=np.float32).reshape(4, 2) - 3
    join = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    wanted = data.copy()
    for place, row in zip(places[:, 0], updates, strict=True):
        wanted[place] = join(wanted[place], row)
    node = helper.make_node("ScatterND", ["d", "i", "u"], ["y"], reduction=reduction)
    infos = [("d", F, data.shape), ("i", TensorProto.INT64, places.shape), ("u", F, updates.shape)]
    proto = model_of([node], infos, [("y", F, data.shape)])
    same(ours(proto, {"d": data, "i": places, "u": updates}), [wanted])


@pytest.mark.parametrize("largest", [0, 1])
def test_the_first_of_equals_comes_first(largest):
    x = np.zeros((2, 5000), np.float32)
    x[0, 4990:] = np.arange(10) % 3
    x[1, ::7] = np.nan
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], largest=largest)
    count = helper.make_tensor("k", TensorProto.INT64, (1,), [12])
    made = [("v", F, None), ("i", TensorProto.INT64, None)]
    proto = model_of([node], [("x", F, x.shape)], made, [count], opset=11)
    greatest = np.where(np.isnan(x), np.inf, x)
    wanted = np.argsort(-greatest if largest else greatest, 1, kind="stable")[:, :12]
    same(ours(proto, {"x": x}), [np.take_along_axis(x, wanted, 1), wanted])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool, torch.float16])
def test_stable_sorts_of_narrow_values(dtype):
    x = torch.randint(0, 3, (5, 9), generator=torch.Generator().manual_seed(0)).to(dtype)
    agrees(
        lambda x: (
            *torch.sort(x, stable=True, dim=1),
            *torch.sort(x, stable=True, dim=0, descending=True),
        ),
        x,
    )


@pytest.mark.slow
def test_values_inside_of_what_is_fused_are_results_too(tmp_path):
    class Norm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.linspace(0.5, 2, 6))

        def forward(self, x, r):
            h = x + r
            m = h.mean(-1, keepdim=True)
            d = h - m
            v = (d * d).mean(-1, keepdim=True)
            n = d / (v + 1e-5).sqrt()
            y = n * self.w + 1
            return y * 0.5 * (1 + torch.erf(y / 2**0.5)), y, n, v, d, m, h

    x, r = (torch.randn(3, 6, generator=torch.Generator().manual_seed(i)) for i in (0, 1))
    everywhere(
        Norm(), [x, r], Norm()(x, r), tmp_path, rtol=1e-5, atol=1e-6, guards=(False,), stages=(0, 8)
    )


class Shares(torch.nn.Module):
    """An input, one value twice, views of one value and a buffer among its results."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4, 4))

    def forward(self, x, y):
        a = x + y
        self.total.add_(a)
        held = self.total.clone()
        self.total.mul_(2)
        wide = a.half().float() + a.double().sum().float()
        joined = torch.cat([a, a, a.t()], 0)
        return (
            x,
            a,
            a,
            a.t(),
            held,
            self.total + 0,
            a.reshape(2, 8)[:, ::2],
            joined,
            wide,
            a[1:3],
            x.t(),
            joined[4:8] - a,
            torch.where(a > 0, a, a.t()),
        )


@pytest.mark.slow
def test_results_outlive_the_next_call_and_arguments_stay():
    model = Shares()
    generator = torch.Generator().manual_seed(0)
    calls = [[torch.randn(4, 4, generator=generator) for _ in "xy"] for _ in range(3)]
    calls.append([calls[0][0].t(), calls[0][1][:, [3, 2, 1, 0]]])
    compiled = cc.compile(copy.deepcopy(model), tuple(calls[0]), check=True)
    before = [[x.clone() for x in call] for call in calls]
    made = [arrays(compiled(*call)) for call in calls]
    wanted = [[r.clone() for r in model(*call)] for call in calls]
    for mine, theirs in zip(made, wanted, strict=True):  # looked at after all calls
        same(mine, theirs, rtol=1e-5, atol=1e-6)
    for call, kept in zip(calls, before, strict=True):
        same(call, kept)
