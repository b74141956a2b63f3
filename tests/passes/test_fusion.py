"""Fusion of units with several results."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.lowering.lower import MOST_OPS
from core_compiler.ops.evaluation import evaluate_block
from core_compiler.passes.fuse_elementwise import FuseElementwise
from tests.passes import specs
from tests.passes.programs import inputs, program


def _convolved(b, x, w):
    return b.conv(x, w, strides=(1, 1), low=(0, 0), high=(0, 0), dilations=(1, 1))


PRODUCERS = {
    "product": (lambda b, x, w: b.matmul(x, w), "2x8x15x17xf32", "2x8x17x15xf32"),
    "convolution": (_convolved, "2x3x17x17xf32", "8x3x3x3xf32"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCERS)
def test_a_result_that_is_kept_and_read_beside_its_place(name):
    """relu(x) has other readers, and the same kernel reads it one place further on: elementwise ops
    are computed twice, a product before them must not come along (NASNet's shifted paths)."""
    make, *types = PRODUCERS[name]

    def build(b, x, w):
        kept = b.relu(make(b, x, w))
        zero = b.constant(np.float32(0))
        wide = b.pad(kept, zero, low=(0,) * 4, high=(0, 0, 1, 1), interior=(0,) * 4)
        shifted = b.slice(wide, starts=(0, 0, 1, 1), limits=(2, 8, 16, 16), strides=(1,) * 4)
        return [kept, b.reshape(shifted, shape=(16, 1, 15, 15))]

    module = program(build, *types)
    arrays = inputs(module)
    wanted = evaluate_block(module.main.body, arrays, module.weights)
    for ours, theirs in zip(
        compilation.start(module, "cpu").finish()(*arrays), wanted, strict=True
    ):
        assert ours.tobytes() == np.asarray(theirs).tobytes()


@pytest.mark.slow
def test_a_long_chain_becomes_several_kernels():
    """A program that is unrolled may be a chain of hundreds of ops (a pool of 401 taps): in one
    kernel they compile for a minute, and deeper than Python's stack."""

    def build(b, x, y):
        for _ in range(250):
            x = b.abs(b.sub(x, y))
        return [x]

    module = program(build, "4x5xf32", "4x5xf32")
    arrays = inputs(module)
    made = compilation.start(module, "cpu").finish()
    (wanted,) = evaluate_block(module.main.body, arrays, module.weights)
    assert made(*arrays)[0].tobytes() == np.asarray(wanted).tobytes()
    fused = next(s for s in made.stages if s.name == "fuse_elementwise")
    sizes = [len(op.regions[0].ops) for op in fused.module.main.body.ops if op.regions]
    assert len(sizes) > 1 and max(sizes) <= MOST_OPS


@pytest.mark.parametrize(("kind", "kernels"), [("bf16", 2), ("f32", 1)])
def test_a_slope_is_not_kept_wide_from_before_the_loss(kind, kernels):
    """The slope depends on what the forward pass made alone; of a narrow value it is computed where
    the gradient reads it.  The same program without a loss has no turn."""

    def build(b, x):
        made = b.abs(b.neg(x))
        wide = b.cast(made, dtype="f32")
        loss = b.reduce_sum(wide, axes=(0, 1))
        slope = b.exp(b.mul(b.cast(made, dtype="f32"), b.cast(made, dtype="f32")))
        return [loss, made, slope]

    def fused(module) -> int:
        made, _ = specs.apply(FuseElementwise(), module)
        specs.assert_same_results(module, made)
        return sum(op.kind != "core.reduce_sum" for op in made.main.body.ops)

    module = program(build, f"4x5x{kind}")
    assert fused(module) == kernels
    body = module.main.body
    assert fused(module.with_main(body.with_(outputs=body.outputs[1:]))) == 1
