"""Each integer form beside onnxruntime on the same integers: what one op may differ by."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnxruntime
import pytest

from core_compiler.driver.export import export
from core_compiler.exporters.expansion import needed
from core_compiler.ir import Block, Module, Op, Rewriter, Value
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import evaluate_block
from core_compiler.passes.quantize.integerize import STEPS, integers
from tests.passes.quantised import MODELS, compiled


def _alone(op: Op, body: Block) -> Block:
    """The float ops between the integers that they are dequantised from and ``op``, a quantize."""
    makers, stored = body.producers(), {}
    wanted, ops = [op], []
    while wanted:
        each = wanted.pop()
        ops.append(each)
        for value in each.operands:
            maker = makers.get(value)
            if maker is None:
                stored[value] = value
            elif each.kind == "core.dequantize" and value is each.operands[0]:
                if maker.kind == "core.constant":
                    wanted.append(maker)
                else:
                    stored[value] = value
            else:
                wanted.append(maker)
    ordered = [o for o in body.ops if o in set(ops)]
    return Block(tuple(stored), tuple(needed(ordered, op.results)), op.results)


def _values(module: Module, inputs) -> dict[Value, np.ndarray]:
    body = module.main.body
    every = tuple(v for op in body.ops for v in op.results)
    arrays = evaluate_block(Block(body.arguments, body.ops, every), inputs, module.weights)
    return dict(zip((*body.arguments, *every), (*inputs, *arrays), strict=True))


def _in_integers(block: Block, module: Module) -> tuple[str, Block] | None:
    rewriter, b = Rewriter(block), Builder(module.weights)
    found = integers(block.ops[-1], rewriter, module, b)
    if not isinstance(found, tuple):
        return None
    kind, value, _ = found
    return kind, Block(block.arguments, (*block.ops[:-1], *b.ops), (value,))


@pytest.mark.parametrize("name", list(MODELS))
def test_an_op_is_at_most_its_steps_from_onnxruntime(name, tmp_path):
    made, _, samples = compiled(name, check=False)
    module = next(s.module for s in made.stages if s.name == "insert_quantization")
    known = _values(module, list(samples[1]))
    seen: Counter[str] = Counter()
    for number, op in enumerate(module.main.body.ops):
        if op.kind != "core.quantize":
            continue
        block = _alone(op, module.main.body)
        form = _in_integers(block, module)
        if form is None:  # an input is quantised
            continue
        kind, whole = form
        arrays = [known[v] for v in block.arguments]
        (ours,) = evaluate_block(whole, arrays, module.weights)
        path = tmp_path / f"{number}.onnx"
        names = [f"x{i}" for i in range(len(arrays))]
        export(module.with_main(block), path, inputs=names, outputs=["y"])
        session = onnxruntime.InferenceSession(path)
        (theirs,) = session.run(None, dict(zip(names, arrays, strict=True)))
        steps = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
        assert steps.max() <= STEPS[kind], (kind, op)
        # Most are equal; numbers near a half are not, as are the shares of rows of equal scores.
        assert (steps > 0).mean() <= 0.1 or kind == "softmax", (kind, op)
        seen[kind] += 1
    assert seen.total() >= 3
