"""All windows of a tensor, and padding, from PyTorch."""

from __future__ import annotations

import pytest

import core_compiler as cc
from core_compiler.training.optimisers.optimizers import SGD

torch = pytest.importorskip("torch", reason="torch is the oracle")
unfold, pad = torch.nn.functional.unfold, torch.nn.functional.pad

IMAGES, ROWS = (2, 3, 9, 8), (4, 17)
CASES = {
    "columns": (IMAGES, lambda x: unfold(x, 3, padding=1)),
    "of one image": (IMAGES[1:], lambda x: unfold(x, (2, 3))),
    "strides and dilations": (
        IMAGES,
        lambda x: unfold(x, (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)),
    ),
    "rows": (ROWS, lambda x: x.unfold(-1, 5, 3)),
    "rows and columns": (ROWS, lambda x: x.unfold(0, 2, 1).unfold(1, 16, 1)),
    "one window": (ROWS, lambda x: x.unfold(1, 17, 40)),
    "a product of windows": (ROWS, lambda x: x.remainder(8).unfold(1, 4, 1) @ torch.ones(4).to(x)),
    "a number": ((), lambda x: x.unfold(0, 1, 1)),
    "edges": (IMAGES, lambda x: pad(x, (2, 3, 1, 0), mode="replicate")),
    "edges, cropped": (IMAGES, lambda x: pad(x, (-2, 3, 1, -1), mode="replicate")),
    "reflections": (IMAGES, lambda x: pad(x, (2, 3, 1, 0), mode="reflect")),
    "reflections, cropped": (IMAGES, lambda x: pad(x, (-2, 3, 1, -1), mode="reflect")),
    "a torus": (IMAGES, lambda x: pad(x, (2, 3, 1, 0), mode="circular")),
    "rolled along two axes": (ROWS, lambda x: x.roll((1, -5), (0, 1))),
    "turned": (ROWS, lambda x: x.flip(0, 1) + x.flip(1)),
}


class _Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_the_elements_are_torch_s(name, kind):
    shape, function = CASES[name]
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape).remainder(251).to(kind)
    (made,) = cc.compile(_Model(function), (x,), threads=1)(x)
    expected = function(x)
    assert torch.from_numpy(made.astype("float64")).equal(expected.double())
    assert made.shape == tuple(expected.shape)


def test_gradients_add_up_where_windows_overlap():
    x, wanted, weights = torch.randn(2, 3, 7, 6), torch.zeros(2), torch.rand(12, 20)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(3, 7, 6))

        def forward(self, x):
            return (unfold(x * self.scale, 2, dilation=2) * weights).sum((1, 2))

    model = Model()
    how = cc.Training(loss="mse", optimizer=SGD(1.0))
    step = cc.compile(model, (x, wanted), training=how)
    step(x, wanted)
    torch.nn.functional.mse_loss(model(x), wanted).backward()
    expected = (model.scale - model.scale.grad).detach()
    torch.testing.assert_close(torch.from_numpy(step.state_dict()["scale"]), expected)
