"""A person's own passes, wrong in ways that no example shows: the finding names the pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.driver.compilation import CheckFailed, Options
from core_compiler.ir import Block, Module, Op
from core_compiler.passes.base import Pass
from core_compiler.pipelines.pipeline import PipelineEdit
from tests.passes.programs import program

POSITIVE = np.linspace(0.1, 1, 100, dtype=np.float32)


@dataclass(frozen=True)
class TwoArguments(Pass):
    """Main takes its arguments in the other order."""

    def run(self, module, context):
        body = module.main.body
        return module.with_main(body.with_(arguments=tuple(reversed(body.arguments))))


@dataclass(frozen=True)
class EditsKernels(Pass):
    """Kernels add where they subtracted."""

    half = "implementation"

    def run(self, module, context):
        def changed(op: Op) -> Op:
            kind = "kernel.add" if op.kind == "kernel.sub" and "f32" in str(op.result.type) else ""
            regions = tuple(block.with_(ops=tuple(map(changed, block.ops))) for block in op.regions)
            return op.with_(kind=kind or op.kind, regions=regions)

        for function in module.functions.values():
            if function.level == "kernel":
                body: Block = function.body.with_(ops=tuple(map(changed, function.body.ops)))
                module = module.with_function(function.with_(body=body))
        return module


@dataclass(frozen=True)
class ReadsPast(Pass):
    """Whoever reads the result of a relu (``twice``: of a relu of one) reads its operand; the op
    itself is left alone."""

    twice: bool = False

    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                maker = rw.producer(op.operands[0]) if op.operands else None
                inner = "" if maker is None else maker.kind
                if op.kind == "core.relu" and self.twice == (inner == "core.relu"):
                    rw.replace((), (), {op.result: op.operands[0]}, rule="read past")

        return context.rewrite(module, edit)


@dataclass(frozen=True)
class NoMask(Pass):
    """x * mask is x."""

    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                if op.kind == "core.mul":
                    rw.replace(op, (), {op.result: op.operands[0]}, rule="no mask")

        return context.rewrite(module, edit)


@dataclass(frozen=True)
class OtherWeights(Pass):
    """Other numbers under the digests of the weights."""

    def run(self, module, context):
        for digest in list(module.weights):
            module.weights.put(digest, module.weights[digest] * 2)
        return module


def failed(module: Module, pass_: Pass, *arrays: Any, place: Any = 0, target: str = "cpu"):
    """The passes of the failed checks, the first first."""
    options = Options(check=True, edit=PipelineEdit(insert=((place, pass_),)))
    made = compilation.start(module, target, options, arrays).finish()
    return [
        s.name for s in made.stages for r in made.checks.get(s.index, ()) if r.verdict == "failed"
    ]


def apart() -> Module:
    return program(lambda b, x, y: b.sub(b.tanh(x), b.sigmoid(y)), "100xf32", "100xf32")


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_arguments_in_another_order_are_a_fault_of_their_pass(target):
    found = failed(apart(), TwoArguments(), POSITIVE, POSITIVE[::-1].copy(), target=target)
    assert found[0] == "two_arguments"


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("place", ["before:schedule_kernels", "before:generate_code"])
def test_an_edit_of_kernels_is_a_fault_of_its_pass(target, place):
    found = failed(apart(), EditsKernels(), POSITIVE, POSITIVE, place=place, target=target)
    assert found[0] == "edits_kernels"


def test_readers_that_are_led_past_an_op_are_tried_on_values_made_to_hurt():
    module = program(lambda b, x: b.mul(b.relu(x), x), "100xf32")
    assert failed(module, ReadsPast(), POSITIVE, place="before:decompose") == ["reads_past"]
    twice = program(lambda b, x: b.relu(b.relu(x)), "100xf32")
    assert not failed(twice, ReadsPast(twice=True), POSITIVE, place="before:decompose")


def test_what_holds_beside_some_weights_is_tried_again_beside_others():
    """Of a constant too large to be written in a rule's own text."""

    def masked(mask: np.ndarray) -> Module:
        return program(lambda b, x: b.sin(b.mul(x, b.constant(mask))), "100xf32")

    ones = np.ones(100, np.float32)
    some = np.where(np.arange(100) < 90, ones, 0)
    given = POSITIVE * some
    assert not failed(masked(ones), NoMask(), given)
    assert failed(masked(some), NoMask(), given) == ["no_mask"]
    assert not failed(masked(ones), NoMask(), given)


def test_a_store_keeps_the_arrays_of_its_digests():
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    module = program(lambda b, x: b.matmul(x, b.constant(weights)), "4x64xf32")
    with pytest.raises(CheckFailed, match=r"other_weights: .*is the digest of another array"):
        failed(module, OtherWeights(), np.ones((4, 64), np.float32))
