"""Fuse operands: a product of few rows computes its matrix from integers where it reads them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.debug.bits import same_bits
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.ir import dtype
from core_compiler.passes.computed_weights import LEAST
from core_compiler.passes.lay_out_weights import LayOutWeights
from tests.cuda.simulated_target import SimulatedCUDA
from tests.examples import examples
from tests.passes import specs
from tests.passes.programs import program
from tests.passes.quantised_weights import integers, linear


def _compiled(module, target="cpu"):
    return compilation.start(module, target).finish()


def _launches(made) -> list[str]:
    return [
        str(op.attributes["kernel"])
        for op in made.module.main.body.ops
        if op.kind == "target.launch"
    ]


def _assert_reference_bits(module, made) -> None:
    x = np.random.default_rng(3).standard_normal(module.main.arguments[0].type.shape)
    x = x.astype(np.float32)
    (wanted,) = specs.outputs(module, [x])
    assert same_bits(np.asarray(made(x)[0]), wanted)


LAYERS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["i4", "ui4", "i2", "i8", "ui8"]),
        "columns": st.sampled_from([128, 256, 40, 100, 129]),
        "block": st.sampled_from([8, 32, 48]),
        "turned": st.booleans(),
        "zeros": st.booleans(),
    }
)


@given(layer=LAYERS, rows=st.sampled_from([1, 2, 4]), blocks=st.integers(1, 12))
@settings(max_examples=examples(8), deadline=None)
def test_one_kernel_with_the_bits_of_the_reference(layer, rows, blocks):
    module = program(linear(**layer), f"{rows}x{layer['block'] * blocks}xf32")
    made = _compiled(module)
    if layer["columns"] * layer["block"] * blocks >= LEAST:
        assert len(_launches(made)) == 1
    _assert_reference_bits(module, made)


@pytest.mark.parametrize("columns", [256, 100])
@pytest.mark.parametrize("kind", ["i4", "ui2"])
def test_a_gpu_has_the_same_bits(kind, columns):
    module = program(linear(kind, columns, zeros=True), "1x288xf32")
    made = _compiled(module, SimulatedCUDA())
    assert len(_launches(made)) == 1
    _assert_reference_bits(module, made)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", ["f16", "bf16", "f64"])
def test_other_dtypes_and_batches_of_matrices(kind, target):
    def layer(b, x):
        q = b.constant(integers("i4", (3, 64, 128)), dtype("i4"))
        scales = np.random.default_rng(1).uniform(-0.1, 0.1, (3, 2, 128)).astype(np.float32)
        parts = (3, 2, 32, 128)
        w = b.reshape(b.cast(q, dtype="f32"), shape=parts)
        w = b.mul(w, b.broadcast(b.constant(scales), shape=parts, dims=(0, 1, 3)))
        return b.matmul(x, b.cast(b.reshape(w, shape=(3, 64, 128)), dtype=kind))

    module = program(layer, f"3x2x64x{kind}")
    made = _compiled(module, SimulatedCUDA() if target == "cuda" else target)
    assert len(_launches(made)) == 1
    x = np.random.default_rng(3).standard_normal((3, 2, 64)).astype(dtype(kind).numpy)
    (wanted,) = specs.outputs(module, [x])
    assert same_bits(np.asarray(made(x)[0]), wanted)


@pytest.mark.parametrize("width", ["8", "16"])
def test_vectors_of_both_widths(width):
    module = program(linear("i4", 256), "1x320xf32")
    made = compilation.start(module, "cpu", Options(target={"vector_width": width})).finish()
    _assert_reference_bits(module, made)


def test_no_buffer_of_the_matrix():
    made = _compiled(program(linear("i4", 512), "1x512xf32"))
    allocated = [
        op.result.type.bytes for op in made.module.main.body.ops if op.kind == "target.alloc"
    ]
    constants = [
        op.result.type.bytes for op in made.module.main.body.ops if op.kind == "target.constant"
    ]
    assert sum(allocated) <= 512 * 4
    assert sum(constants) == 512 * 512 // 2 + 512 * 16 * 4 + 2  # integers, scales, shifts


def test_many_rows_compute_the_matrix_before():
    made = _compiled(program(linear("i4", 256), "16x512xf32"))
    assert len(_launches(made)) == 2
    assert LayOutWeights().name() not in [s.name for s in made.stages if s.rewrites]


def test_layers_share_the_constants_of_all_columns():
    """Two layers of one shape have one constant of shifts, and each its own kernel launch."""

    def layers(b, x):
        return linear("i4", 256, zeros=True)(b, linear("i4", 256, block=64)(b, x))

    made = _compiled(program(layers, "1x256xf32"))
    assert len(_launches(made)) == 2


def test_a_matrix_from_a_table_is_computed_before():
    """Its columns cannot be adjacent, so that all its constants stay as they are."""

    def layer(b, x):
        q = b.constant(integers("ui4", (256, 512)), dtype("ui4"))
        table = b.constant(np.linspace(-1, 1, 16, dtype=np.float32))
        scale = b.constant(np.linspace(1, 2, 256, dtype=np.float32))
        w = b.take(table, b.cast(q, dtype="i32"), axis=0)
        w = b.mul(w, b.broadcast(scale, shape=w.type.shape, dims=(0,)))
        return b.matmul(x, b.transpose(w, permutation=(1, 0)))

    module = program(layer, "1x512xf32")
    made = _compiled(module)
    assert len(_launches(made)) == 2
    assert LayOutWeights().name() not in [s.name for s in made.stages if s.rewrites]
    _assert_reference_bits(module, made)


def test_a_bias_follows_in_the_same_kernel():
    def layer(b, x, v):
        made = linear("i4", 256)(b, x)
        return b.relu(b.add(made, b.broadcast(v, shape=made.type.shape, dims=(1,))))

    module = program(layer, "1x512xf32", "256xf32")
    assert len(_launches(_compiled(module))) == 1


def test_columns_that_are_apart_are_computed_before():
    """Integers that are an input cannot be laid out beforehand."""

    def layer(b, x, q):
        w = b.mul(b.cast(q, dtype="f32"), b.expand(b.constant(np.float32(0.1)), q.type.shape))
        return b.matmul(x, b.transpose(w, permutation=(1, 0)))

    made = specs.reach("fuse_operands", layer, "1x512xf32", "256x512xi8")
    assert not made.step().changed


@pytest.mark.parametrize("turned", [True, False])
def test_constants_lie_in_panels_of_columns(turned):
    module = program(linear("i8", 384, turned=turned), "1x64xf32")
    after, rewrites = specs.apply(LayOutWeights(), module)
    assert set(specs.rules_fired(rewrites)) == {"constants in panels of columns"}
    shapes = [op.result.type.shape for op in after.main.body.ops if op.kind == "core.constant"]
    assert sorted(shapes) == [(3, 2, 128), (3, 64, 128)]  # scales and integers
    specs.check(module, after, rewrites, exact=True)
    specs.assert_same_results(module, after)
