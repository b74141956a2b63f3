"""Faults planted in a compiler are found, with the pass and the rewrite that did it named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core_compiler.debug import facts
from core_compiler.debug.bisect import bisect, made_by
from core_compiler.debug.facts import unlowerable
from core_compiler.driver import compilation
from core_compiler.driver.legality import levels
from core_compiler.ir import Block, Function, Module, Op, Value, WeightStore, tensor
from core_compiler.ir.refusal import refuse
from core_compiler.ops.builder import Builder
from core_compiler.passes import (
    bufferize,
    find_lifetimes,
    grouping,
    lower_composites,
    outline_kernels,
    plan_memory,
)
from core_compiler.pipelines.pipeline import PipelineEdit, build
from core_compiler.targets.cpu import CPU
from tests.debug import faults
from tests.ops.samples.effects import doubling


def find(
    planted=None,
    at: str = "eliminate_dead_code",
    target=None,
    model=faults.network,
    execute: bool = False,
):
    """What bisecting a compile finds that has ``planted`` after the first pass called ``at``."""
    module, inputs = model()
    target = target or CPU()
    insert = ()
    if planted is not None:
        labels = [step.label for step in build(target, {})]
        insert = ((labels.index(at) + 1, planted),)
    options = compilation.Options(edit=PipelineEdit(insert=insert))
    made = compilation.start(module, target, options, inputs)
    return bisect(made, inputs, levels=levels(), execute=execute)


@pytest.fixture
def no_code(monkeypatch):
    """Compiles nothing: for faults that show before machine code is made."""
    monkeypatch.setattr(
        "core_compiler.passes.generate_code.GenerateCode.run", lambda self, module, context: module
    )


@pytest.mark.usefixtures("no_code")
def test_nothing_is_found_where_nothing_is_wrong():
    assert find() is None


def test_nothing_is_found_in_machine_code_where_nothing_is_wrong():
    assert find(model=faults.rows, execute=True) is None


def test_inputs_of_rank_0_are_executed_too():
    def scaled():
        module, (x,) = faults.rows((4, 8))
        scale = Value(tensor((), "f32"), "scale")
        b = Builder(module.weights)
        y = b.mul(module.main.outputs[0], b.expand(scale, (4,)))
        body = module.main.body
        arguments, ops = (*body.arguments, scale), (*body.ops, *b.ops)
        body = body.with_(arguments=arguments, ops=ops, outputs=(y,))
        return module.with_main(body), [x, np.array(2.0, np.float32)]

    assert find(model=scaled, execute=True) is None


@pytest.mark.usefixtures("no_code")
@pytest.mark.parametrize(
    ("planted", "at", "rule", "kind"),
    [
        pytest.param(
            faults.Rules((faults.NEGATED_TWICE,)),
            "eliminate_dead_code",
            "exp(-x) => exp(x)",
            "core.exp",
            id="wrong rule",
        ),
        pytest.param(
            faults.InexactRules((faults.TOO_TIGHT,)),
            "eliminate_dead_code",
            "relu(x) => relu(x) * 1.0001",
            "core.relu",
            id="tolerance exceeded",
        ),
        pytest.param(
            faults.Rules((faults.SOFTMAX_WITHOUT_MAX,)),
            "eliminate_dead_code",
            "softmax(x) => exp(x) / sum(exp(x))",
            "core.softmax",
            id="other formula",
        ),
        pytest.param(
            faults.EachOp(faults.folds_wrongly),
            "eliminate_dead_code",
            "fold core.mul",
            "core.mul",
            id="wrong constant",
        ),
        pytest.param(
            faults.EachOp(faults.merges_without_attributes),
            "eliminate_dead_code",
            "merge equal core.reduce_sum",
            "core.reduce_sum",
            id="attributes merged",
        ),
        pytest.param(
            faults.EachOp(faults.removes_a_used_op),
            "eliminate_dead_code",
            "unused core.relu",
            "core.relu",
            id="used op removed",
        ),
        pytest.param(
            faults.EachOp(faults.permutes_wrongly),
            "eliminate_dead_code",
            "rows last",
            "core.conv",
            id="wrong layout",
        ),
        pytest.param(
            faults.ImplementationEachOp(faults.fuses_without_an_op),
            "fuse_reductions",
            "one loop nest",
            "core.group",
            id="fusion loses an op",
        ),
    ],
)
def test_a_rewrite_that_breaks_its_promise_is_named(planted, at, rule, kind):
    found = find(planted, at)
    assert found.pass_label == planted.name()
    assert found.how == "check"
    assert found.rewrite.rule == rule
    assert made_by(found).kind == kind
    assert found.error > 0


@pytest.mark.usefixtures("no_code")
def test_a_tolerance_hides_no_other_formula():
    """The rule allows itself any error; in f64 its two sides are not the same."""
    planted = faults.InexactRules((faults.GENEROUS,))
    found = find(planted)
    assert (found.pass_label, found.how, found.number) == (planted.name(), "check", 0)
    assert found.rewrite.rule == "x - y => 1.01 x - y"
    assert "rounding does not explain" in found.note
    assert 1e-3 < found.error < 0.5


@pytest.mark.usefixtures("no_code")
def test_a_pass_that_changes_the_module_behind_the_log_is_named_with_what_it_changed():
    planted = faults.Silently(faults.swaps_results)
    found = find(planted)
    assert (found.pass_label, found.how, found.number) == (planted.name(), "check", None)
    assert found.rewrite.rule == "unlogged change"
    assert found.value in found.before.main.outputs


@pytest.mark.usefixtures("no_code")
def test_a_module_that_the_verifier_refuses_names_the_rewrite_that_made_it():
    planted = faults.EachOp(faults.breaks_a_type)
    found = find(planted)
    assert (found.pass_label, found.how, found.number) == (planted.name(), "invalid", 0)
    assert found.rewrite.rule == "shrink"


@pytest.mark.usefixtures("no_code")
def test_a_pass_that_raises_is_named_with_how_far_it_came():
    planted = faults.EachOp(faults.raises_at_the_third)
    found = find(planted)
    assert (found.pass_label, found.how) == (planted.name(), "raised")
    assert found.number == 2
    assert "ZeroDivisionError" in found.note


@pytest.mark.usefixtures("no_code")
def test_buffers_that_overlap_are_named_by_the_first_placement_that_does(monkeypatch):
    right = plan_memory.plan

    def overlapping(problem, *args, **options):
        made = right(problem, *args, **options)
        return type(made)(made.lifetimes, (0,) * len(made.offsets), made.peak, made.lower_bound)

    monkeypatch.setattr(plan_memory, "plan", overlapping)
    monkeypatch.setattr(plan_memory, "verify", lambda made: None)
    found = find()
    assert found.pass_label == "plan_memory"
    assert found.rewrite.rule == "place a buffer"
    (placed,) = found.rewrite.new
    earlier = [o for o in found.before.main.body.ops if o.kind == "target.alloc"]
    assert [o.result for o in earlier].index(placed.result) > 0  # one alone overlaps nothing


@pytest.mark.usefixtures("no_code")
def test_a_view_with_wrong_strides_is_named(monkeypatch):
    monkeypatch.setattr(bufferize, "is_free_view", lambda op: op.kind == "core.transpose")
    right = bufferize.buffer_type
    monkeypatch.setattr(
        bufferize,
        "buffer_type",
        lambda kind: right(kind if kind.shape != (6, 2) else kind.with_(order=None)),
    )
    monkeypatch.setattr(
        outline_kernels, "is_unit", _transposes_are_no_units(outline_kernels.is_unit)
    )
    found = find()
    assert found.pass_label == "bufferize"
    assert found.rewrite.rule == "transpose is a view"


def _transposes_are_no_units(right):
    return lambda op: op.kind != "core.transpose" and right(op)


# -- what only executing shows ---------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40, 200), (3000, 400)], ids=["whole", "part"])
def test_a_schedule_that_changes_the_order_of_a_sum_is_named_by_its_step(shape):
    """On a launch that the interpreter can try whole, and on one that it tries a corner of."""
    found = find(
        target=faults.Broken("reduce_sum", step=faults.backwards), model=lambda: faults.rows(shape)
    )
    assert (found.pass_label, found.how) == ("schedule_kernels", "check")
    assert found.rewrite.rule == "unroll(k)"
    assert "reduce_sum" in found.rewrite.function
    assert found.number == 2
    assert 0 < found.error < 1e-3, "rounding errors of sums that cancel, no more"


def test_one_changed_rounding_in_generated_code_is_named_by_its_kernel():
    found = find(
        target=faults.Broken("div", code=faults.by_reciprocal), model=faults.rows, execute=True
    )
    assert (found.pass_label, found.how, found.rewrite) == ("generate_code", "executed", None)
    assert "div" in found.note
    assert 0 < found.error < 1e-6


def test_a_kernel_lowered_wrongly_is_named_by_the_launch_that_was_outlined(monkeypatch):
    right = outline_kernels.lower_group

    def wrong(group):
        made = right(group)
        function = made.function
        if any(op.kind == "kernel.div" for op in function.body.walk()):
            function = faults.edited(function, faults.by_reciprocal)
        return type(made)(**{**vars(made), "function": function})

    monkeypatch.setattr(outline_kernels, "lower_group", wrong)
    found = find(model=faults.rows, execute=True)
    assert (found.pass_label, found.rewrite.rule) == ("outline_kernels", "outline a kernel")
    assert "plain loops" in found.note


def test_a_program_that_launches_with_wrong_sizes_is_found_though_kernels_are_right():
    found = find(target=faults.MixesUpSizes(), model=faults.rows, execute=True)
    assert (found.pass_label, found.how, found.rewrite) == ("generate_code", "executed", None)
    assert "addresses, order" in found.note
    assert found.value.type.shape == (40,)


def test_memory_that_is_not_placed_is_the_planner_s_fault(monkeypatch):
    """It changes nothing, and a later pass falls over it."""
    monkeypatch.setattr(plan_memory, "ALLOC", "target.nothing")
    finding = find()
    assert finding.pass_label == "plan_memory"
    assert "has no memory: neither an offset nor the memory of a result" in finding.note


@pytest.mark.parametrize("wrong", [lambda life: replace(life, end=life.end - 1), None])
def test_marks_of_lifetimes_are_held_to_the_ops(monkeypatch, wrong):
    """The planner reads no marks, people do."""
    right = find_lifetimes.lifetimes

    def lifetimes(ops):
        return [wrong(life) if life.space == "arena" else life for life in right(ops)]

    if wrong is None:
        monkeypatch.setattr(find_lifetimes, "ALLOC", "target.nothing")
    else:
        monkeypatch.setattr(find_lifetimes, "lifetimes", lifetimes)
    finding = find()
    assert finding.pass_label == "find_lifetimes"
    assert "but is marked" in finding.note


def test_composites_that_are_left_are_the_fault_of_what_lowers_them(monkeypatch):
    """A later pass is what cannot do with them."""
    right = lower_composites.refused

    def refused(op, claims):
        return refuse("left", "it is left") if op.kind == "core.softmax" else right(op, claims)

    monkeypatch.setattr(lower_composites, "refused", refused)
    finding = find()
    assert finding.pass_label == "lower_composites"
    assert finding.note == "core.softmax remains, which the pass should have lowered"


def test_inputs_and_constants_are_not_written_to(monkeypatch):
    """Seen at the second call only: the first one finds the constant as it was."""
    monkeypatch.setattr(bufferize._Bufferizer, "_may_take", lambda self, value, op: True)
    finding = find(model=counted)
    assert finding.pass_label == "bufferize"
    assert "which is the memory of the constant" in finding.note


def counted() -> tuple[Module, list[np.ndarray]]:
    """x doubled five times, by a loop that begins with a constant."""
    b, x = Builder(WeightStore()), Value(tensor((4,), "f32"), "x")
    condition, body = doubling()
    start = b.constant(np.zeros((), np.int32))
    results = Value(tensor((), "i32")), Value(tensor((4,), "f32"))
    loop = Op("core.while", (start, x), results, regions=(condition, body))
    ops = (*b.ops, loop)
    module = Module({"main": Function("main", Block((x,), ops, results[1:]))}, b.weights)
    return module, [np.arange(4, dtype=np.float32)]


def test_groups_are_tried_where_they_are_made(monkeypatch):
    """Else what outlines kernels falls over them; over what it does itself, it is left to fall."""
    b, x = Builder(WeightStore()), Value(tensor((4,), "f32"), "x")
    y = b.add(x, b.constant(np.arange(4, dtype=np.float32)))
    z = b.mul(y, x)

    def module(*ops):
        return Module({"main": Function("main", Block((x,), ops, (z,)))}, b.weights)

    constant, add, mul = b.ops
    before = module(*b.ops)
    sound = module(constant, grouping.make_group((add, mul), (z,)))
    assert not unlowerable(before, sound, None)
    (wrong,) = unlowerable(before, module(grouping.make_group(b.ops, (z,))), None)
    assert wrong.startswith("a group cannot be lowered to a kernel")

    def falls(few):
        return lambda op: ().index(op) if len(op.regions[0].ops) >= few else None

    monkeypatch.setattr(facts, "lower_group", falls(1))
    assert not unlowerable(before, sound, None)
    monkeypatch.setattr(facts, "lower_group", falls(2))
    (wrong,) = unlowerable(before, sound, None)
    assert wrong.startswith("lowering a group raises ValueError")
