"""Exports of quantised models as functions of integers: what they say, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from core_compiler.exporters.integers import with_integer_borders
from core_compiler.exporters.mlir import export
from core_compiler.ir import Block, Function, Module, Value, dtype, tensor
from core_compiler.ops import Builder, evaluate_block
from core_compiler.support.errors import UserError
from tests.exporters.iree import refusal
from workbench.commands.cli import main

NAMES = {"inputs": ["pixels"], "outputs": ["scores"]}


def module_of(body: Callable) -> Module:
    """A function of floats (2, 3, 4)."""
    x, builder = Value(tensor((2, 3, 4), "f32")), Builder()
    made = body(builder, x)
    return Module({"main": Function("main", Block((x,), tuple(builder.ops), (made,)))})


def quantised(b: Builder, x: Value, scale: float = 0.5, zero: int = -3) -> Value:
    return b.quantize(x, b.constant(np.float32(scale)), b.constant(np.int8(zero)), dtype="i8")


def dequantised(b: Builder, q: Value, scale: float = 0.25, zero: int = 0) -> Value:
    return b.dequantize(q, b.constant(np.float32(scale)), b.constant(np.int8(zero)))


def clamped(b: Builder, x: Value) -> Value:
    """Integers between views, of which the first and the last are of floats."""
    x = b.transpose(b.reshape(x, shape=(6, 4)), permutation=(1, 0))
    return b.reshape(dequantised(b, b.clamp(quantised(b, x), low=2)), shape=(24,))


def written(body: Callable, **options) -> str:
    return export(module_of(body), dialect="tosa", integer_only=True, **NAMES, **options)


def test_borders_are_integers_and_described():
    text = written(clamped)
    assert text.startswith(
        '// input "pixels": i8, (q + 3) * 0.5\n// output "scores": i8, q * 0.25\n'
    )
    assert "f32" not in text
    assert '%pixels: tensor<2x3x4xi8> {ml_program.identifier = "pixels"}' in text
    assert '-> (tensor<24xi8> {ml_program.identifier = "scores"})' in text


def test_integers_have_the_meaning_of_the_module():
    module = module_of(clamped)
    whole, (given,), (made,) = with_integer_borders(module, **NAMES)
    assert (given.name, given.dtype, given.scale, given.zero) == ("pixels", dtype("i8"), 0.5, -3)
    x = np.linspace(-20, 20, 24, dtype=np.float32).reshape(2, 3, 4)
    (wanted,) = evaluate_block(module.main.body, [x])
    q = (np.rint(x / given.scale) + given.zero).clip(-128, 127).astype(np.int8)
    (found,) = evaluate_block(whole.main.body, [q])
    assert found.dtype == np.int8
    numbers = ((found.astype(np.int32) - made.zero) * np.float32(made.scale)).astype(np.float32)
    assert numbers.tobytes() == wanted.tobytes()


def test_integers_stay_as_they_are():
    x, builder = Value(tensor((3,), "i32")), Builder()
    made = builder.add(x, x)
    module = Module({"main": Function("main", Block((x,), tuple(builder.ops), (made,)))})
    text = export(module, dialect="tosa", integer_only=True, **NAMES)
    assert text.startswith("module {")


def _several_scales(b, x):
    return dequantised(b, b.max(quantised(b, x), quantised(b, x, 0.25)))


def _left_in_floats(b, x):
    return dequantised(b, quantised(b, b.exp(dequantised(b, quantised(b, x)))))


def _of_computed_scale(b, x):
    q = quantised(b, x)
    scale = b.cast(
        b.reshape(b.slice(q, starts=(0, 0, 0), limits=(1, 1, 1), strides=(1, 1, 1)), shape=()),
        dtype="f32",
    )
    return b.dequantize(q, scale)


REFUSED = {
    "input pixels is quantised with several scales": _several_scales,
    "input pixels is read in floats by core.exp": lambda b, x: b.exp(x),
    "input pixels is not quantised": lambda b, x: b.reshape(x, shape=(24,)),
    "output scores is not quantised": lambda b, x: b.exp(dequantised(b, quantised(b, x))),
    "scores does not have one constant scale": _of_computed_scale,
    "core.exp (f32 not supported; once)": _left_in_floats,
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_floats_are_refused(what):
    with pytest.raises(UserError) as problem:
        written(REFUSED[what])
    assert what in problem.value.what


def test_linalg_has_no_integer_profile():
    with pytest.raises(UserError, match="linalg has no integer profile"):
        export(module_of(clamped), dialect="linalg", integer_only=True, **NAMES)


def test_names_must_be_those_of_the_model():
    with pytest.raises(UserError, match="expected 1 names for the inputs, got 2"):
        export(
            module_of(clamped), dialect="tosa", integer_only=True, inputs=["a", "b"], outputs=["c"]
        )


def test_the_command_exports_integers(tmp_path, capsys):
    path = tmp_path / "digits.tosa.mlir"
    options = ["--quantize", "int8", "--integer-only"]
    assert main(["export", "digits-cnn", *options, "-o", str(path)]) == 0
    text = path.read_text()
    assert text.startswith('// input "pixels": i8, ') and "f32" not in text.partition("#loc")[0]
    assert refusal(path) == ""
    assert main(["export", "digits-cnn", *options, "-o", str(tmp_path / "digits.onnx")]) == 2
    assert "only TOSA has an integer profile" in capsys.readouterr().err
