"""Functions of f32 through f64: where it fires, where it refuses, and the same bits everywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.debug.bits import same_bits
from core_compiler.debug.check import summary
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.numerics.functions import BINARY, FUNCTIONS, THROUGH_F64
from core_compiler.ops.rules import F32, F64
from core_compiler.passes.base import with_options
from core_compiler.passes.round_correctly import NAMES, RoundCorrectly, rules_of
from core_compiler.passes.rules import explain
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.support.errors import UserError
from tests.kernels.exhaustive import ONE_ROUNDING, evaluate, evaluate_through_f64
from tests.passes import specs
from tests.passes.programs import inputs, program

INSERTED = PipelineEdit(insert=(("after:eliminate_dead_code#2", RoundCorrectly()),))


def wide(b, name: str, x):
    return b.cast(getattr(b, name)(b.cast(x, dtype=F64)), dtype=F32)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_computed_in_f64_and_rounded(name):
    before = program(lambda b, x: getattr(b, name)(x), "3x4xf32")
    after, rewrites = specs.apply(RoundCorrectly(), before)
    assert specs.rules_fired(rewrites) == [f"{name}(x) => f32({name}(f64(x)))"]
    specs.assert_same_program(after, program(lambda b, x: wide(b, name, x), "3x4xf32"))
    specs.check(before, after, rewrites, exact=False)
    assert {str(op.origin.nodes()[0].name) for op in after.main.body.ops} == {"node_1"}


def test_its_functions_are_all_that_f32_arithmetic_rounds_more_than_once():
    assert sorted(NAMES) == sorted({*FUNCTIONS} - {*BINARY, *THROUGH_F64, *ONE_ROUNDING})


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", NAMES)
def test_the_bits_are_those_of_the_function_that_the_figures_are_of(name):
    """tests/results/functions-f32.json counts what ``evaluate_through_f64`` gives."""
    after, _ = specs.apply(RoundCorrectly(), program(lambda b, x: getattr(b, name)(x), "4099xf32"))
    x = np.linspace(-3, 3, 4099, dtype=np.float32)
    (made,) = specs.outputs(after, [x])
    np.testing.assert_array_equal(made, evaluate_through_f64(name, x))
    narrow = evaluate(name, x)
    assert np.any((made != narrow) & ~np.isnan(narrow)), "it changes nothing here"


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16"])
def test_functions_of_other_floats_are_refused_with_the_reason(dtype):
    before = program(lambda b, x: b.exp(x), f"4x{dtype}")
    after, rewrites = specs.apply(RoundCorrectly(), before)
    assert after is before and not rewrites
    ((_, reason, _),) = explain(rules_of(("exp",)), before, specs.root_of(before))
    assert reason == f"it is a function of {dtype}, expected f32"


def test_what_is_rounded_once_stays():
    def build(b, x):
        return [b.sinh(x), b.sqrt(x), b.pow(x, x), b.floor(x)]

    before = program(build, "4xf32")
    assert specs.apply(RoundCorrectly(), before)[0] is before


def test_functions_are_chosen_by_name():
    pass_ = with_options(RoundCorrectly(), {"functions": "tanh, log"})
    before = program(lambda b, x: b.tanh(b.log(b.exp(x))), "4xf32")
    after, _ = specs.apply(pass_, before)
    specs.assert_same_program(
        after, program(lambda b, x: wide(b, "tanh", wide(b, "log", b.exp(x))), "4xf32")
    )


@pytest.mark.parametrize(
    ("name", "what"),
    [("sinh", "sinh is already rounded once"), ("tahn", "unknown function 'tahn'")],
)
def test_other_names_are_refused(name, what):
    with pytest.raises(UserError) as caught:
        specs.apply(RoundCorrectly(functions=name), program(lambda b, x: b.exp(x), "4xf32"))
    assert caught.value.what == what
    assert "tan" in caught.value.fix


def of_composites(b, x):
    return [b.softmax(x, axis=1), b.gelu(x), b.relu(x), b.layer_norm(x, axis=1, epsilon=1e-5)]


def test_composites_that_hold_one_are_opened_and_others_stay_whole():
    before = program(of_composites, "3x8xf32")
    after, rewrites = specs.apply(RoundCorrectly(), before)
    assert specs.rules_fired(rewrites) == [
        "decompose core.softmax",
        "decompose core.gelu",
        "exp(x) => f32(exp(f64(x)))",
        "erf(x) => f32(erf(f64(x)))",
    ]
    kinds = {op.kind for op in after.main.body.ops}
    assert {"core.relu", "core.layer_norm"} <= kinds and "core.softmax" not in kinds
    specs.check(before, after, rewrites, exact=False)


def test_composites_may_stay_whole():
    before = program(of_composites, "3x8xf32")
    assert specs.apply(RoundCorrectly(composites=False), before)[0] is before


def test_composites_of_narrow_floats_compute_in_f32_and_are_opened():
    before = program(lambda b, x: b.gelu(x), "8xbf16")
    after, _ = specs.apply(RoundCorrectly(), before)
    assert [op.result.type.dtype.name for op in after.main.body.ops if op.kind == "core.erf"] == [
        "f64"
    ]


def started(module, edit=INSERTED, **options):
    return compilation.start(module, "cpu", Options(edit=edit, **options), inputs(module))


@pytest.mark.slow
def test_inserted_it_is_checked_and_part_of_the_identity():
    module = program(of_composites, "3x8xf32")
    made = started(module, check=True).finish()
    assert summary(made.checks)["failed"] == 0
    (stage,) = [s for s in made.stages if s.name == "round_correctly"]
    assert stage.rewrites and any(r.tolerance for r in stage.rewrites)
    assert made.identity != started(module, PipelineEdit()).finish().identity


def test_it_changes_values_and_so_belongs_to_the_meaning_half():
    with pytest.raises(UserError, match="may change bits"):
        started(
            program(of_composites, "3x8xf32"),
            PipelineEdit(insert=(("after:lower_composites", RoundCorrectly()),)),
        )


@pytest.mark.slow
def test_the_bits_are_those_of_the_reference_over_threads_and_widths():
    def build(b, x):
        return [*of_composites(b, x), *(getattr(b, name)(x) for name in NAMES)]

    module = program(build, "64x67xf32")
    arrays = inputs(module, special=True)
    meaning, _ = specs.apply(RoundCorrectly(), module)
    wanted, plain = specs.outputs(meaning, arrays), specs.outputs(module, arrays)
    changed = [not same_bits(*pair) for pair in zip(wanted, plain, strict=True)]
    assert changed == [True, True, False, False, *[True] * len(NAMES)]
    for threads, width in ((1, 16), (2, 16), (2, 8)):
        made = started(module, threads=threads, target={"vector_width": width}).finish()
        got = made(*arrays)
        assert all(map(same_bits, got, wanted)), (threads, width)


@pytest.mark.slow
def test_a_training_step_takes_it():
    """Behind the passes of training it finds the functions of the gradients too."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 3), torch.nn.Tanh()
    )
    batch = torch.randn(4, 8), torch.tensor([0, 2, 1, 0])
    losses, identities = {}, set()
    for edit in (PipelineEdit(), INSERTED):
        for threads in (1, 2):
            step = cc.compile(
                net, batch, training=cc.Training(optimizer="adamw"), edit=edit, threads=threads
            )
            losses[bool(edit.insert), threads] = [float(step(*batch)) for _ in range(3)]
            identities.add(step.identity)
    assert losses[True, 1] == losses[True, 2] and len(identities) == 2
    np.testing.assert_allclose(losses[True, 1], losses[False, 1], rtol=1e-5)
    ops = [
        op
        for stage in step.compilation.stages
        if stage.name == "round_correctly"
        for rewrite in stage.rewrites
        for op in rewrite.new
    ]
    assert sum(op.kind == "core.erf" for op in ops) > 1, "forward and backward"
