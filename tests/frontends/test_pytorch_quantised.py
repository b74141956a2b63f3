"""The quantised ops of PyTorch's exported graphs, against torch's own."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc

torch = pytest.importorskip("torch", reason="torch is the oracle")
_decomposed = pytest.importorskip(
    "torch.ao.quantization.fx._decomposed", reason="registers quantized_decomposed"
)


class _Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def _numbers(*shape: int, seed: int = 0):
    return 20 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _bytes(*shape: int, kind=torch.int8, seed: int = 0):
    limits = torch.iinfo(kind)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(limits.min, limits.max + 1, shape, generator=generator).to(kind)


def _same(function, *given) -> None:
    """Our bits are torch's."""
    model = _Model(function)
    made = cc.compile(model, given)
    for x in (given, tuple(v.flip(0) if v.dim() else v for v in given)):
        ours, theirs = made(*x), model(*x)
        pairs = zip(ours, theirs if isinstance(theirs, tuple) else (theirs,), strict=True)
        for mine, wanted in pairs:
            np.testing.assert_array_equal(np.asarray(mine), wanted.numpy())


OPS = torch.ops.quantized_decomposed


@pytest.mark.parametrize("scale", [0.1, 0.0123456789, 1 / 3])
@pytest.mark.parametrize(
    ("kind", "zero", "low", "high"),
    [
        (torch.int8, 3, -128, 127),
        (torch.int8, 0, -127, 127),
        (torch.uint8, 128, 0, 255),
        (torch.int16, 0, -32768, 32767),
    ],
)
def test_whole_tensors(kind, zero, low, high, scale):
    def there(x):
        return OPS.quantize_per_tensor(x, scale, zero, low, high, kind)

    def back(q):
        return OPS.dequantize_per_tensor(q, scale, zero, low, high, kind)

    _same(there, _numbers(5, 7))
    _same(back, _bytes(5, 7, kind=kind))
    _same(lambda x: back(there(x)), _numbers(5, 7))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_channels(axis):
    x = _numbers(4, 5, 3)
    count = x.shape[axis]
    scales = torch.rand(count, generator=torch.Generator().manual_seed(1)) + 0.05
    zeros = torch.arange(count)

    def there(x):
        return OPS.quantize_per_channel(x, scales, zeros, axis, -128, 127, torch.int8)

    def back(q):
        return OPS.dequantize_per_channel(q, scales, zeros, axis, -128, 127, torch.int8)

    _same(there, x)
    _same(back, _bytes(4, 5, 3))
    _same(
        lambda q: OPS.dequantize_per_channel(q, scales, None, axis, -128, 127, torch.int8),
        _bytes(4, 5, 3),
    )


def test_a_bias_of_32_bits():
    whole = torch.tensor([2**31 - 1, -(2**31), 2**24 + 1, -5, 0], dtype=torch.int32)
    limits = -(2**31), 2**31 - 1
    _same(lambda q: OPS.dequantize_per_tensor(q, 0.01, 0, *limits, torch.int32), whole)


def test_parameters_of_the_data():
    def dynamic(x):
        scale, zero = OPS.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
        q = OPS.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
        return OPS.dequantize_per_tensor.tensor(q, scale, zero, -128, 127, torch.int8)

    _same(dynamic, _numbers(6, 5))
    _same(dynamic, _numbers(6, 5).abs())
    _same(dynamic, torch.zeros(6, 5))


def test_fake_quantisation():
    scales, zeros = torch.tensor([0.1, 0.25, 0.3]), torch.tensor([0, 5, -7], dtype=torch.int32)
    _same(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127), _numbers(4, 3))
    _same(
        lambda x: torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -127, 127),
        _numbers(4, 3),
    )


def test_quantisation_aware_training_has_torchs_gradients():
    """The straight-through estimator: no gradient where a value was limited."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(_numbers(4, 6, seed=3) / 20)

        def forward(self, x):
            weight = torch.fake_quantize_per_tensor_affine(self.weight, 0.01, 0, -127, 127)
            x = torch.fake_quantize_per_tensor_affine(x, 0.2, 5, -128, 127)
            return x @ weight.T

    torch.manual_seed(0)
    model, x, y = Layer(), _numbers(8, 6), _numbers(8, 4)
    step = cc.compile(
        model,
        (x.numpy(), y.numpy()),
        training=cc.Training(loss="mse", optimizer="sgd", keep_gradients=True),
    )
    loss = step(x.numpy(), y.numpy())
    wanted = torch.nn.functional.mse_loss(model(x), y)
    wanted.backward()
    assert abs(loss - wanted.item()) <= 1e-6 * abs(wanted.item())
    (made,) = step.gradients.values()
    gradient = model.weight.grad.numpy()
    assert (gradient == 0).any()  # some weights are limited
    np.testing.assert_allclose(made, gradient, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(made) == 0, gradient == 0)
