"""Models that torchao has quantised, against torch's own execution of them."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc

torch = pytest.importorskip("torch", reason="torch is the oracle")
pytest.importorskip("torchao", reason="torchao quantises the models (extra: test)")

from torchao.quantization import (  # noqa: E402
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    PerAxis,
    PerGroup,
    quantize_,
)

GROUPS = PerGroup(32)
CONFIGURATIONS = {
    "int8": Int8WeightOnlyConfig(),
    "int8 in groups": Int8WeightOnlyConfig(granularity=GROUPS),
    "int4 in groups": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=GROUPS),
    "int4 in rows": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerAxis(0)),
    "int2 in groups": IntxWeightOnlyConfig(weight_dtype=torch.int2, granularity=GROUPS),
    "int8 times int8": Int8DynamicActivationInt8WeightConfig(),
    "int8 times int4": Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=GROUPS
    ),
}


def _layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 32, bias=False)
    ).eval()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_products_with_quantised_weights(name):
    model = _layers()
    quantize_(model, CONFIGURATIONS[name])
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    compiled = cc.compile(model, (x,), check=True)
    (made,) = compiled(x)
    np.testing.assert_allclose(made, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    weights = {(96, 64), (64, 96), (32, 96), (96, 32)}
    module = compiled.stages[-1].module
    constants = [op.result.type for op in module.main.body.ops if op.kind == "target.constant"]
    assert not any(kind.dtype.is_float and kind.shape in weights for kind in constants)


def test_rows_of_a_quantised_table():
    model = torch.nn.Embedding(10, 64)
    quantize_(model, CONFIGURATIONS["int4 in groups"], filter_fn=lambda module, name: True)
    indices = torch.tensor([[3, 9], [0, 3]])
    (made,) = cc.compile(model, (indices,), check=True)(indices)
    np.testing.assert_array_equal(made, model(indices).detach().numpy())


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_quantised_and_back(axis):
    """The bits of torchao's ops, with one scale and one for each position of an axis."""
    shape = (6, 4)
    count = 1 if axis is None else shape[axis]
    block = list(shape) if axis is None else [1 if i == axis else n for i, n in enumerate(shape)]
    scale = torch.rand(count, generator=torch.Generator().manual_seed(1)) + 0.05
    zero = torch.arange(count, dtype=torch.int8)

    class There(torch.nn.Module):
        def forward(self, x):
            q = torch.ops.torchao.quantize_affine(x, block, scale, zero, torch.int8, -8, 7)
            return q, torch.ops.torchao.dequantize_affine(q, block, scale, zero, torch.int8, -8, 7)

    x = 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    compiled = cc.compile(There(), (x,), check=True)
    kinds = {op.kind for op in compiled.stages[0].module.main.body.ops}
    assert {"core.quantize", "core.dequantize"} <= kinds
    for made, wanted in zip(compiled(x), There()(x), strict=True):
        np.testing.assert_array_equal(made, wanted.numpy())
