"""Weights in GGUF's blocks, against the package gguf."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.support.errors import UserError

torch = pytest.importorskip("torch", reason="the operations are torch's")

from core_compiler.frontends.pytorch import gguf as blocks  # noqa: E402

gguf = pytest.importorskip("gguf", reason="gguf is the oracle (extra: test)")


class _Weights(torch.nn.Module):
    """The rows of a tensor, multiplied by a number."""

    def __init__(self, raw: np.ndarray, kind: str):
        super().__init__()
        self.kind = kind
        self.register_buffer("raw", torch.from_numpy(raw))

    def forward(self, x):
        return blocks.dequantize(self.raw, self.kind) * x


def _raw(kind: str, rows: int = 6, blocks_of_row: int = 3) -> np.ndarray:
    """Random bytes, with scales and minima that are small numbers."""
    _, layout = blocks.FORMATS[kind]
    size, random = sum(layout.values()), np.random.default_rng(0)
    raw = random.integers(0, 256, (rows, blocks_of_row, size)).astype(np.uint8)
    start = 0
    for name, width in layout.items():
        if name in "dm":
            halves = random.uniform(-0.1, 0.1, (rows, blocks_of_row, 1)).astype(np.float16)
            raw[..., start : start + width] = halves.view(np.uint8)
        start += width
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("kind", blocks.FORMATS)
def test_the_numbers_of_blocks(kind):
    raw = _raw(kind)
    wanted = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    made = blocks.dequantize(torch.from_numpy(raw), kind).numpy()
    np.testing.assert_array_equal(made, wanted)
    one = torch.ones(())
    compiled = cc.compile(_Weights(raw, kind), (one,), check=True)
    np.testing.assert_array_equal(compiled(one)[0], wanted)


def test_the_file_of_a_model_keeps_its_size(tmp_path):
    """What a writer of files makes; the program has its integers, not numbers in f32."""
    w = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    packed = gguf.quants.quantize(w, gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("w", packed, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    (tensor,) = gguf.GGUFReader(tmp_path / "model.gguf").tensors

    class Linear(_Weights):
        def forward(self, x):
            return x @ blocks.dequantize(self.raw, self.kind).T

    x = torch.randn(2, 256, generator=torch.Generator().manual_seed(0))
    compiled = cc.compile(Linear(np.array(tensor.data), tensor.tensor_type.name), (x,), check=True)
    wanted = x.numpy() @ gguf.quants.dequantize(packed, tensor.tensor_type).T
    np.testing.assert_allclose(compiled(x)[0], wanted, rtol=1e-5, atol=1e-5)
    constants = [
        op.result.type.bytes
        for op in compiled.module.main.body.ops
        if op.kind in ("target.constant", "core.constant")
    ]
    assert sum(constants) < packed.nbytes + 64


@pytest.mark.parametrize("kind", blocks.FORMATS)
def test_a_row_times_blocks_is_one_kernel(kind):
    class Linear(_Weights):
        def forward(self, x):
            return x @ blocks.dequantize(self.raw, self.kind).T

    raw = _raw(kind, rows=130, blocks_of_row=512 // blocks.FORMATS[kind][0])
    x = torch.randn(1, 512, generator=torch.Generator().manual_seed(0))
    compiled = cc.compile(Linear(raw, kind), (x,), check=True)
    launches = [op for op in compiled.module.main.body.ops if op.kind == "target.launch"]
    assert len(launches) == 1
    wanted = x.numpy() @ gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind]).T
    np.testing.assert_allclose(compiled(x)[0], wanted, rtol=1e-4, atol=1e-4)


def test_what_is_no_such_tensor():
    with pytest.raises(UserError, match="unsupported GGUF type 'Q4_2'"):
        blocks.dequantize(torch.zeros(4, 18, dtype=torch.uint8), "Q4_2")
    with pytest.raises(UserError, match="expected rows of blocks of 18 bytes, got 17 bytes"):
        blocks.dequantize(torch.zeros(4, 17, dtype=torch.uint8), "Q4_0")
