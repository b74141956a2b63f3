"""Whole quantised models in TOSA's integer profile against Arm's reference model: every bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.driver.compilation import Compilation
from core_compiler.driver.stage import Stage
from core_compiler.exporters.expansion import needed
from core_compiler.exporters.integers import Border, with_integer_borders
from core_compiler.exporters.mlir import export
from core_compiler.exporters.narrow_integers import with_narrow_integers
from core_compiler.ir import Block, Module, Op
from core_compiler.ops.evaluation import evaluate_block
from sample_models.catalogue import build
from tests.exporters.tosa_reference import needs_tosa, run
from tests.passes.quantised import MODELS, compiled
from tests.slow import slow_but
from workbench.model import models
from workbench.model.spec import read_spec

SLOW = ("resnet18", "resnet50", "mobilenet-v2", "bert-base", "vit-b16", "gpt2")
#: One block of a network: the first layers alone, of fewer channels.
BLOCKS = {
    "mobilenet-v2": {"width": 0.25, "depth": 1, "image": 32},
    "bert-base": {"width": 0.125, "depth": 1, "sequence": 16},
}


def quantised(border: Border, x: np.ndarray) -> np.ndarray:
    """The integers of numbers, as the description of an argument says."""
    limits = np.iinfo(border.dtype.numpy)
    steps = np.rint(x / np.float32(border.scale)) + np.float32(border.zero)
    return steps.clip(limits.min, limits.max).astype(border.dtype.numpy)


def integers(given: list[Border], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The inputs as the exported function takes them: those of floats as ``given`` says."""
    borders = iter(given)
    narrow = (x.astype(np.int32) if x.dtype == np.int64 else x for x in inputs)
    return [quantised(next(borders), x) if x.dtype.kind == "f" else x for x in narrow]


def numbers(border: Border, q: np.ndarray) -> np.ndarray:
    """The numbers that integers stand for, as the description of a result says."""
    return (q.astype(np.int32) - border.zero).astype(np.float32) * np.float32(border.scale)


def meaning(made: Compilation) -> Stage:
    return [s for s in made.stages if s.step is None or s.step.half == "meaning"][-1]


def names(module: Module) -> dict[str, list[str]]:
    body = module.main.body
    return {
        "inputs": [f"in{place}" for place, _ in enumerate(body.arguments)],
        "outputs": [f"out{place}" for place, _ in enumerate(body.outputs)],
    }


def with_every_value(module: Module) -> Module:
    """The module returning each value that it computes of its arguments.

    Not what has the elements of its operand in its shape: the file names a tensor once.
    """
    body = module.main.body
    computed = set(body.arguments)
    for op in body.ops:
        if not computed.isdisjoint(op.operands):
            computed.update(op.results)
    kept = [op for op in body.ops if op.result in computed and not _is_identity(op)]
    outputs = tuple(op.result for op in kept)
    return module.with_main(Block(body.arguments, tuple(needed(body.ops, outputs)), outputs))


def _is_identity(op: Op) -> bool:
    return op.kind == "core.reshape" and op.result.type == op.operands[0].type


def catalogue(name: str) -> tuple[Compilation, list[np.ndarray]]:
    model = models.load(read_spec(name, "torch"))
    made = cc.compile(model.imported.module, model.inputs, quantize=cc.Quantization())
    return made, list(model.inputs)


def of_test(name: str) -> tuple[Compilation, list[np.ndarray]]:
    made, _, samples = compiled(name, check=False)
    return made, list(samples[1])


def problems(made: Compilation, inputs: list[np.ndarray], folder: Path) -> list[str]:
    """Where the reference model's results differ from those of our compiled program."""
    module = meaning(made).module
    text = export(module, dialect="tosa", integer_only=True, **names(module))
    _, given, results = with_integer_borders(module, **names(module))
    found = run(text, integers(given, inputs), folder, "int16")
    wanted = made(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    return [
        border.name
        for border, q, w in zip(results, found, wanted, strict=True)
        if numbers(border, q.view(border.dtype.numpy)).tobytes() != np.asarray(w).tobytes()
    ]


@needs_tosa
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", slow_but(("digits-cnn",), ("digits-cnn", *SLOW)))
def test_a_model_has_the_bits_of_our_program(name, tmp_path):
    made, inputs = catalogue(name)
    assert problems(made, inputs, tmp_path) == []


@needs_tosa
@pytest.mark.parametrize("name", list(MODELS))
def test_functions_sums_and_products_have_the_bits_of_our_program(name, tmp_path):
    made, inputs = of_test(name)
    assert problems(made, inputs, tmp_path) == []


@needs_tosa
@pytest.mark.parametrize("name", ["digits-cnn", "residual", "decoder", *BLOCKS])
def test_every_value_between_has_the_same_bits(name, tmp_path):
    if name in BLOCKS:
        built = build(name, **BLOCKS[name])
        inputs = [np.asarray(x) for x in built.example_inputs]
        made = cc.compile(built.module, built.example_inputs, quantize=cc.Quantization())
    else:
        made, inputs = catalogue(name) if name == "digits-cnn" else of_test(name)
    module = meaning(made).module
    whole, given, _ = with_integer_borders(module, **names(module))
    module = with_every_value(with_narrow_integers(whole))
    arrays = integers(given, inputs)
    wanted = evaluate_block(module.main.body, arrays, module.weights)
    text = export(module, dialect="tosa", integer_only=True, **names(module))
    found = run(text, arrays, tmp_path, "int16")
    differing = [
        op.kind
        for op, g, w in zip(module.main.body.ops, found, wanted, strict=False)
        if g.tobytes() != w.tobytes()
    ]
    assert len(found) == len(wanted) > 20 and differing == []
