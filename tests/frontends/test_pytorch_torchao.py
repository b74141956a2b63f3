"""Models that torchao has quantised, against torch's own execution of them."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.ops import typed

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


def _constants(compiled: cc.Compiled) -> list[tuple[str, int]]:
    """The dtype and elements of each constant of the program's last tensor-level stage."""
    return [
        (op.result.type.dtype.name, op.result.type.elements)
        for op in compiled.stages[0].module.main.body.ops
        if typed.Constant.match(op)
    ]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_products_with_quantised_weights(name):
    model = _layers()
    quantize_(model, CONFIGURATIONS[name])
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    compiled = cc.compile(model, (x,), check=True)
    (made,) = compiled(x)
    np.testing.assert_allclose(made, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_rows_of_a_quantised_table():
    model = torch.nn.Embedding(10, 64)
    quantize_(model, CONFIGURATIONS["int4 in groups"], filter_fn=lambda module, name: True)
    indices = torch.tensor([[3, 9], [0, 3]])
    (made,) = cc.compile(model, (indices,), check=True)(indices)
    np.testing.assert_array_equal(made, model(indices).detach().numpy())
