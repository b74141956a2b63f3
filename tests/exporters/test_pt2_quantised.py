"""A quantised model as a PT2E graph: torch computes its numbers, and it comes back as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.driver.export import export
from core_compiler.frontends.pytorch.archive import read_pt2
from core_compiler.frontends.pytorch.importer import import_exported
from core_compiler.ir import Block, Function, Module, Op
from core_compiler.ops import evaluate, evaluate_block
from core_compiler.ops.evaluation import constant_array
from tests.exporters.onnx_runs import named
from tests.exporters.pt2_runs import exported, in_torch
from tests.exporters.test_onnx_properties import module_of
from tests.passes.quantised import MODELS, compiled
from tests.slow import slow_but

F32 = np.float32


def counted(program, name: str) -> int:
    targets = (str(n.target) for n in program.graph.nodes if n.op == "call_function")
    return sum(f"quantized_decomposed.{name}_per" in target for target in targets)


def only(results) -> np.ndarray:
    return np.asarray(results[0] if isinstance(results, tuple) else results)


@pytest.mark.parametrize("name", slow_but(("residual", "decoder", "norms"), MODELS))
def test_the_quantised_floats_run_in_torch_and_come_back_as_the_same_integers(name, tmp_path):
    made, _, samples = compiled(name, check=False)
    stage = next(s for s in made.stages if s.name == "insert_quantization")
    path = tmp_path / "model.pt2"
    export(stage.module, path, inputs=["x"], outputs=["y"])
    program = torch.export.load(path)
    ops = Counter(op.kind for op in stage.module.main.body.ops)
    assert counted(program, "quantize") == ops["core.quantize"] > 0
    assert counted(program, "dequantize") == ops["core.dequantize"] > 0

    (theirs,) = in_torch(program, samples[1])
    (stated,) = evaluate_block(stage.module.main.body, samples[1], stage.module.weights)
    ours = only(made(*samples[1]))
    assert np.square(stated - theirs).sum() < 1e-3 * np.square(stated).sum()
    assert np.square(ours - theirs).sum() < 0.01 * np.square(theirs).sum()

    again = cc.compile(path, samples[0], quantize=cc.Quantization())
    assert only(again(*samples[1])).tobytes() == ours.tobytes()


def borders(module: Module, arrays) -> Iterator[tuple[Op, Module, list[np.ndarray], np.ndarray]]:
    """Each op between floats and integers: a module of it alone, its operands and its result."""
    body = module.main.body
    known = dict(zip(body.arguments, arrays, strict=True))
    constants: dict = {}
    for op in body.ops:
        if op.kind == "core.constant":
            made = (constant_array(op, module.weights),)
            constants[op.result] = op
        else:
            made = evaluate(op, [known[v] for v in op.operands])
        known.update(zip(op.results, made, strict=True))
        if op.kind in ("core.quantize", "core.dequantize"):
            held = [constants[v] for v in op.operands if v in constants]
            given = [v for v in op.operands if v not in constants]
            block = Block(tuple(given), (*held, op), op.results)
            alone = Module({"main": Function("main", block)}, module.weights)
            yield op, alone, [known[v] for v in given], known[op.result]


@pytest.mark.parametrize("name", ["residual", "decoder"])
def test_each_border_has_our_bits(name):
    """Guarded: a multiplication by 1 / scale may round a quotient beside a middle to the other."""
    made, _, samples = compiled(name, check=False)
    stage = next(s for s in made.stages if s.name == "insert_quantization")
    for op, alone, operands, wanted in borders(stage.module, samples[1]):
        (found,) = in_torch(exported(alone), operands)
        assert found.tobytes() == wanted.tobytes()
        if op.kind == "core.dequantize":
            (plain,) = in_torch(exported(alone, guards=False), operands)
            assert plain.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("kind", ["i8", "ui8", "i16"])
def test_middles_between_two_steps(kind, reciprocal, axis, tmp_path):
    """A product with 1 / scale has our bits in torch; a division has them with ``guards`` alone.

    Our importer reads both as they were.
    """
    scales = np.array([0.013567418791353703, 0.1, 1 / 3, 0.5], F32)
    scales = scales if axis is not None else scales[:1]
    middles = (np.arange(-300, 300, dtype=F32) + F32(0.5))[:, None] * np.resize(scales, 4)
    x = np.concatenate([np.nextafter(middles, F32(s)) for s in (-np.inf, np.inf)] + [middles])
    x = np.concatenate([x, np.array([[np.nan, np.inf, -np.inf, -0.0]], F32)])

    def build(b, v):
        scale = b.constant(scales if axis is not None else scales[0])
        zeros = np.arange(len(scales)) if axis is not None else np.array(3)
        zero = b.constant(zeros, kind)
        options = {"axis": axis, "reciprocal": reciprocal}
        q = b.quantize(v, scale, zero, dtype=kind, low=1, high=100, **options)
        return q, b.dequantize(q, scale, zero, axis=axis)

    module = module_of(build, x)
    wanted = evaluate_block(module.main.body, [x], module.weights)
    guarded, plain = exported(module), exported(module, guards=False)
    assert counted(plain, "quantize") == 1 == counted(plain, "dequantize")
    found = in_torch(guarded, [x])
    assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted]
    (path,) = export(module, tmp_path / "m.pt2", **named(module))
    back = import_exported(read_pt2(path)).module
    again = evaluate_block(back.main.body, [x], back.weights)
    assert [a.tobytes() for a in again] == [a.tobytes() for a in wanted]
    q = in_torch(plain, [x])[0][:-1].astype(np.int64) - wanted[0][:-1].astype(np.int64)
    assert np.abs(q).max() == (0 if reciprocal else 1)


def test_scales_that_are_powers_of_two_are_one_node_with_guards():
    x = np.linspace(-3, 3, 101, dtype=F32)
    module = module_of(
        lambda b, v: b.quantize(v, b.constant(F32(0.125)), b.constant(7, "i8"), dtype="i8"), x
    )
    program = exported(module)
    assert counted(program, "quantize") == 1
    (wanted,) = evaluate_block(module.main.body, [x], module.weights)
    assert in_torch(program, [x])[0].tobytes() == wanted.tobytes()


def test_biases_of_i32_come_back(tmp_path):
    """Without a zero point, with one scale and with one for each channel."""
    q = np.array([[1 << 30, -5], [(1 << 24) + 1, 7]], np.int32)
    scales = np.array([0.3, 1e-3], F32)

    def build(b, v):
        return (
            b.dequantize(v, b.constant(scales[0])),
            b.dequantize(v, b.constant(scales), axis=1),
        )

    module = module_of(build, q)
    wanted = evaluate_block(module.main.body, [q], module.weights)
    path = tmp_path / "m.pt2"
    export(module, path, **named(module))
    found = in_torch(torch.export.load(path), [q])
    assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted]
    back = cc.compile(path, [q])
    assert [np.asarray(a).tobytes() for a in back(q)] == [a.tobytes() for a in wanted]


def test_the_last_integers_run_in_torch():
    """The program of integers itself, bit by bit."""
    made, _, samples = compiled("residual", check=False)
    stage = next(s for s in made.stages if s.name == "integerize")
    wanted = evaluate_block(stage.module.main.body, samples[1], stage.module.weights)
    found = in_torch(exported(stage.module), samples[1])
    assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted]
