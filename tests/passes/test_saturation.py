"""Equality saturation on small programs: what it takes, what it leaves, what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from core_compiler.hardware.costs import CostModel
from core_compiler.ir import Function, Module, Rewriter, Value, WeightStore, tensor
from core_compiler.ops import Builder
from core_compiler.passes.base import PassContext
from core_compiler.passes.rules import apply_rules
from core_compiler.passes.saturation import Saturate, moves, rules_of
from core_compiler.passes.saturation.prices import total
from core_compiler.pipelines.pipeline import PipelineEdit, build, meaning
from core_compiler.support.errors import CANNOT_HERE, UserError
from core_compiler.targets.cpu import CPU
from tests.passes import loops, specs
from tests.passes.programs import block_of, program

pytest.importorskip("egglog", reason="egglog is not installed (extra: egglog)")

X, Y = "4x6xf32", "6x4xf32"


def swapped(b, x):
    return b.transpose(x, permutation=(1, 0))


def cut(b, x, stop: int = 2):
    rank = x.type.rank
    return b.slice(x, starts=(0,) * rank, limits=(stop,) * rank, strides=(1,) * rank)


def saturated(module: Module, target=None, **options):
    """(module after, rewrites, figures of main, notes); all rewrites checked bit for bit where
    options leave it exact."""
    context = PassContext(target=target)
    pass_ = Saturate(**options)
    after = pass_.run(module, context)
    specs.assert_valid(after)
    specs.check(module, after, context.rewrites, pass_.exact, special=pass_.exact)
    return after, context.rewrites, context.facts["saturation"][-1], context.notes


def cost(module: Module, model: CostModel | None = None) -> int:
    return total(specs.live(module).main.body.ops, model or CostModel())


def greedy(module: Module, rules) -> Module:
    """``module`` after rules that are applied wherever they match, in program order."""
    rewriter = Rewriter(module.main.body)
    apply_rules(rewriter, rules, module.weights)
    return module.with_main(rewriter.commit())


def by_meaning_half(module: Module) -> Module:
    for pass_ in meaning():
        module, _ = specs.apply(pass_, module)
    return module


# -- where greedy rewriting loses ------------------------------------------------------------------


def between(b, x):
    """A relu between two transposes that undo each other."""
    return swapped(b, b.relu(swapped(b, x)))


def on_one_operand(b, x, y):
    """One of the operands of a sum was transposed, and so is the sum."""
    return swapped(b, b.add(swapped(b, x), y))


def repeated(b, x):
    """Arithmetic on numbers that are repeated."""
    wide = b.broadcast(x, shape=(64, 6), dims=(1,))
    return b.exp(b.mul(wide, b.tanh(wide)))


def cut_late(b, x):
    return cut(b, b.exp(b.neg(x)))


def spelled_twice(b, x, y):
    """One product in two spellings."""
    return b.exp(b.mul(b.neg(b.neg(x)), y)), b.tanh(b.exp(b.mul(y, x)))


LOSES = {
    "between": (between, (X,), lambda b, x: b.relu(x)),
    "on one operand": (on_one_operand, (X, Y), lambda b, x, y: b.add(x, swapped(b, y))),
    "repeated": (
        repeated,
        ("6xf32",),
        lambda b, x: b.broadcast(b.exp(b.mul(x, b.tanh(x))), shape=(64, 6), dims=(1,)),
    ),
    "cut late": (cut_late, (X,), lambda b, x: b.exp(b.neg(cut(b, x)))),
}


@pytest.mark.parametrize("case", LOSES, ids=lambda name: name.replace(" ", "_"))
def test_it_finds_what_the_pipeline_does_not(case):
    build_, types, wanted = LOSES[case]
    module = program(build_, *types)
    after, _, _, _ = saturated(module)
    specs.assert_same_program(after, program(wanted, *types))
    specs.assert_same_results(module, after)
    assert cost(after) < cost(by_meaning_half(module))


def used_whole(b, x):
    """What is cut is needed whole as well: cutting first would compute it twice."""
    y = b.exp(x)
    return y, cut(b, y)


def read_twice(b, x):
    """Sinking below one reader would leave the transpose for the other."""
    y = swapped(b, x)
    return b.exp(y), b.matmul(y, x)


@pytest.mark.parametrize("build_", [used_whole, read_twice])
def test_the_same_rules_applied_greedily_do_harm_where_it_changes_nothing(build_):
    module = program(build_, X)
    assert cost(greedy(module, moves.RULES)) > cost(module)
    after, rewrites, figures, _ = saturated(module)
    assert after is module and not rewrites
    assert figures["changed"] == 0 and figures["cost"] == (cost(module),) * 2
    assert figures["merged"] and not any(m["changed"] for m in figures["merged"])


def test_equal_values_in_different_spellings_become_one():
    module = program(spelled_twice, X, X)
    after, _, _, _ = saturated(module)
    specs.assert_same_program(
        after, program(lambda b, x, y: (p := b.exp(b.mul(x, y)), b.tanh(p)), X, X)
    )
    one, other = after.main.outputs
    assert after.main.body.producers()[other].operands == (one,)


def test_it_stands_in_for_the_exact_rules_of_a_table():
    """Folding, shapes, common subexpressions and identities in one go."""

    def build_(b, x):
        two = b.add(b.scalar_like(1, x), b.scalar_like(1, x))
        y = b.reshape(b.reshape(x, shape=(24,)), shape=(4, 6))
        return b.div(b.sub(y, b.neg(x)), two), b.abs(b.neg(b.abs(x)))

    def wanted(b, x):
        return b.mul(b.add(x, x), b.scalar_like(0.5, x)), b.abs(x)

    module = program(build_, X)
    after, _, _, _ = saturated(module)
    assert cost(after) <= cost(program(wanted, X))
    specs.assert_same_results(module, after)


# -- costs -----------------------------------------------------------------------------------------


class SubtractionIsDear(CostModel):
    def price(self, op, read=lambda v: v.type.bytes):
        return 10_000 if op.kind == "core.sub" else super().price(op, read)


def sum_of_a_difference(b, x, y):
    return b.exp(b.add(x, b.neg(y)))


def test_the_costs_are_the_targets():
    module = program(sum_of_a_difference, X, X)
    target = SimpleNamespace(costs=SubtractionIsDear())
    assert saturated(module, target=target)[0] is module
    after, _, figures, _ = saturated(module, target=SimpleNamespace(costs=CostModel(2.0)))
    specs.assert_same_program(after, program(lambda b, x, y: b.exp(b.sub(x, y)), X, X))
    assert figures["cost"] == (cost(module, CostModel(2.0)), cost(after, CostModel(2.0)))


def test_tolerant_choices_are_the_same_for_all_targets():
    module = program(sum_of_a_difference, X, X)
    after, _, figures, _ = saturated(
        module, target=SimpleNamespace(costs=SubtractionIsDear()), rules="tolerant"
    )
    assert after is not module
    assert figures["cost"] == (cost(module), cost(after))


# -- what it says ----------------------------------------------------------------------------------


def test_an_event_tells_the_class_and_the_rules():
    module = program(between, X)
    after, (event,), figures, notes = saturated(module)
    assert event.note == (
        "an e-class of 2 forms: transpose, relu; relu costs least; equal by "
        "`transpose(transpose(x)) => transpose(x)`, `transpose by the identity => x`, "
        "`transpose of axes of size 1 => reshape`"
    )
    assert event.tolerance is None
    assert [op.kind for op in event.new] == ["core.relu"]
    assert [op.kind for op in event.old] == ["core.transpose", "core.relu", "core.transpose"]
    assert {n.name for n in after.main.body.ops[0].origin.nodes()} == {"node_1", "node_2", "node_3"}
    assert figures["stopped"] == "saturated"
    assert figures["rules"]["relu(transpose(x)) => transpose(relu(x))"] == 1
    merged = [m for m in figures["merged"] if m["changed"]]
    assert [m["taken"] for m in merged] == ["core.relu"]
    (note,) = notes
    assert note.severity == "note"
    assert "1 classes change form" in note.message and "nothing more to find" in note.message


def test_two_blocks_are_told_apart():
    def build_(b, i, x):
        def body(b, i, x):
            return loops.next_(b, i), swapped(b, b.relu(swapped(b, x)))

        return loops.loop(b, (i, swapped(b, b.exp(swapped(b, x)))), loops.below(3), body)

    module = program(build_, "i32", X)
    context = PassContext()
    after = Saturate().run(module, context)
    specs.assert_valid(after)
    blocks = context.facts["saturation"]
    assert [f["function"] for f in blocks] == ["main/core.while", "main/core.while", "main"]
    assert [f["changed"] for f in blocks] == [0, 1, 1]
    (loop,) = (op for op in after.main.body.ops if op.regions)
    assert [op.kind for op in loop.regions[1].ops][-1] == "core.relu"
    specs.assert_same_results(module, after, special=False)


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says", "severity"),
    [
        ({"nodes": 6}, "limit: nodes", "note"),
        ({"iterations": 1}, "limit: iterations", "note"),
        ({"seconds": 0.0}, "limit: seconds", "warning"),
    ],
)
def test_a_limit_ends_in_a_valid_module_and_is_told(options, says, severity):
    module = program(lambda b, x: between(b, between(b, b.tanh(x))), X)
    after, _, figures, (note,) = saturated(module, **options)
    assert says in note.message and note.severity == severity
    assert figures["stopped"] == says.removeprefix("limit: ")
    assert cost(after) <= cost(module)
    if "nodes" in options:
        assert figures["forms"] <= options["nodes"] + 3  # a rule is not entered by half


def test_the_first_rewrites_alone_are_a_valid_module():
    def build_(b, x, y):
        return between(b, x), on_one_operand(b, x, y), cut_late(b, x), *spelled_twice(b, x, x)

    module = program(build_, X, Y)
    _, rewrites, _, _ = saturated(module)
    assert len(rewrites) > 3
    for limit in range(len(rewrites)):
        facts: dict = {}
        after, some = specs.apply(Saturate(), module, limit=limit, facts=facts)
        assert len(some) == limit == facts["saturation"][0]["changed"]
        specs.check(module, after, some, True, special=True)
        specs.assert_same_results(module, after)


# -- ops that it must leave alone ------------------------------------------------------------------


def test_dead_ops_stay_and_cost_nothing():
    def build_(b, x):
        y = swapped(b, x)
        b.exp(b.neg(y))
        return swapped(b, b.relu(y))

    module = program(build_, X)
    after, _, figures, _ = saturated(module)
    kinds = [op.kind for op in after.main.body.ops]
    assert kinds.count("core.exp") == 1 and kinds.count("core.transpose") == 1
    assert figures["cost"][1] == cost(program(lambda b, x: b.relu(x), X))


def test_an_op_of_several_results_counts_once():
    def build_(b, x):
        values, places = b.topk(swapped(b, swapped(b, x)), k=2, axis=1, largest=True)
        return b.exp(values), b.add(places, b.scalar_like(1, places))

    module = program(build_, X)
    after, _, figures, _ = saturated(module)
    assert [o.kind for o in after.main.body.ops if o.kind in ("core.topk", "core.transpose")] == [
        "core.topk"
    ]
    assert figures["cost"] == (cost(module), cost(after)) and cost(after) < cost(module)
    specs.assert_same_results(module, after)


def test_random_ops_are_neither_merged_nor_folded():
    def build_(b, x):
        one, other = (
            b.random_uniform(b.constant(7, "ui64"), shape=(4, 6), stream=s, dtype="f32")
            for s in (0, 1)
        )
        return b.add(x, one), b.add(x, other), b.add(x, one)

    module = program(build_, X)
    after, _, _, _ = saturated(module)
    assert [o.kind for o in specs.live(after).main.body.ops].count("core.random_uniform") == 2
    one, other, again = after.main.outputs
    assert one is again and one is not other


def test_open_sizes():
    x = Value(tensor(("n", 6), "f32"), "x")
    b = Builder(WeightStore())
    y = swapped(b, b.relu(swapped(b, x)))
    y = b.add(b.neg(b.neg(y)), b.broadcast(b.constant(np.float32(2)), shape=("n", 6), dims=()))
    module = Module({"main": Function("main", block_of([x], b.ops, [y]))}, b.weights)
    after, rewrites = specs.apply(Saturate(), module)
    kinds = [op.kind for op in specs.live(after).main.body.ops]
    assert kinds.count("core.transpose") == 0 and "core.neg" not in kinds
    assert rewrites


def test_zeros_of_different_signs_are_different_constants():
    def build_(b, x):
        return b.add(x, b.scalar_like(0.0, x)), b.add(x, b.scalar_like(-0.0, x))

    module = program(build_, X)
    after, _, _, _ = saturated(module)
    specs.assert_same_results(module, after)
    assert after.main.outputs[0] is not after.main.arguments[0]
    assert after.main.outputs[1] is after.main.arguments[0]


def test_zeros_of_different_signs_are_different_attributes():
    def build_(b, x):
        return b.clamp(x, low=0.0, high=1.0), b.clamp(x, low=-0.0, high=1.0), b.neg(b.neg(x))

    module = program(build_, X)
    after, _, _, _ = saturated(module)
    specs.assert_same_results(module, after)
    assert len(set(after.main.outputs)) == 3


def test_results_may_be_arguments_and_each_other():
    def build_(b, x, y):
        return b.neg(b.neg(x)), x, b.mul(y, b.scalar_like(1, y)), swapped(b, swapped(b, y))

    module = program(build_, X, Y)
    after, _, _, _ = saturated(module)
    x, y = module.main.arguments
    assert after.main.outputs == (x, x, y, y)


# -- rules -----------------------------------------------------------------------------------------


def test_exact_rules_state_no_tolerance_and_are_among_all():
    exact, every = rules_of("exact"), rules_of("tolerant")
    assert all(rule.tolerance is None for rule in exact)
    assert set(exact) < set(every) and set(moves.RULES) < set(exact)
    assert any(rule.tolerance for rule in every)


UNARY = {
    "neg": {},
    "exp": {},
    "not": {},
    "cast": {"dtype": "i32"},
    "clamp": {"low": -1.0, "high": 1.0},
    "bitcast": {"dtype": "i32"},
    "gelu": {},
}
VIEWS = {
    "transpose": lambda b, x: swapped(b, x),
    "reshape": lambda b, x: b.reshape(x, shape=(2, x.type.elements // 2)),
    "broadcast": lambda b, x: b.broadcast(x, shape=(3, *x.type.shape), dims=(1, 2)),
    "slice": cut,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", [*UNARY, "add", "sub", "pow", "lt", "max", "select"])
def test_a_view_may_stand_on_either_side(kind, view):
    """Each move, applied greedily to both spellings of one program, keeps every bit."""
    of_bits = kind == "not"
    dtype = "i1" if of_bits else "f32"
    make, there = VIEWS[view], f"4x6x{dtype}"

    def apply(b, *operands):
        if kind == "select":
            operands = (b.lt(*operands), *operands)
        return getattr(b, "not_" if kind == "not" else kind)(*operands, **UNARY.get(kind, {}))

    count = 1 if kind in UNARY else 2
    types = (there,) * count
    first = program(lambda b, *xs: apply(b, *(make(b, x) for x in xs)), *types)
    last = program(lambda b, *xs: make(b, apply(b, *xs)), *types)
    number = (
        program(lambda b, *xs: apply(b, make(b, xs[0]), b.scalar_like(0.5, make(b, xs[0]))), there)
        if count == 2
        else first
    )
    for module in (first, last, number):
        rewriter = Rewriter(module.main.body)
        fired = apply_rules(rewriter, moves.RULES, module.weights)
        after = module.with_main(rewriter.commit())
        specs.assert_valid(after)
        specs.check(module, after, rewriter.events, True, special=True)
        specs.assert_same_results(module, after)
        wanted = view != "slice" if module is not last else view == "slice"
        assert bool(fired) == wanted, (view, kind)


# -- tolerance -------------------------------------------------------------------------------------


def test_exact_rules_do_not_take_what_changes_bits():
    module = program(lambda b, x: b.pow(x, b.scalar_like(2, x)), X)
    assert saturated(module)[0] is module
    after, (event,), _, _ = saturated(module, rules="tolerant")
    assert event.tolerance == 1e-6
    specs.assert_same_program(after, program(lambda b, x: b.mul(x, x), X))


def test_tolerances_of_all_that_lies_between_are_added():
    """silu from x / (1 + exp(-x)) plus -0: two composites are found, one upon the other."""

    def build_(b, x):
        one = b.scalar_like(1, x)
        gate = b.div(one, b.add(one, b.exp(b.neg(x))))
        return b.mul(x, b.add(gate, b.scalar_like(-0.0, x)))

    module = program(build_, X)
    after, rewrites, figures, _ = saturated(module, rules="tolerant")
    assert [op.kind for op in specs.live(after).main.body.ops] == ["core.silu"]
    by_name = {rule.name: rule.tolerance for rule in rules_of("tolerant")}
    stated = [(by_name.get(name) or 0) * n for name, n in figures["rules"].items()]
    assert len([t for t in stated if t]) >= 2
    assert rewrites[-1].tolerance == pytest.approx(sum(stated))


def test_batch_norm_is_folded_where_the_convolution_has_no_other_use():
    def build_(b, x, shared=False):
        w = b.constant(np.linspace(-1, 1, 54, dtype=np.float32).reshape(2, 3, 3, 3))
        y = b.conv(x, w, strides=(1, 1), low=(1, 1), high=(1, 1), dilations=(1, 1), groups=1)
        statistics = [b.constant(np.full(2, v, np.float32)) for v in (1.5, 0.25, -0.5, 2)]
        z = b.batch_norm(y, *statistics, axis=1, epsilon=1e-5)
        return (z, y) if shared else z

    image = "1x3x8x8xf32"
    after, rewrites, _, _ = saturated(program(build_, image), rules="tolerant")
    assert "core.batch_norm" not in {o.kind for o in specs.live(after).main.body.ops}
    assert max(r.tolerance or 0 for r in rewrites) >= 2e-5
    shared = program(lambda b, x: build_(b, x, True), image)
    after, _, _, _ = saturated(shared, rules="tolerant")
    assert [o.kind for o in specs.live(after).main.body.ops].count("core.conv") == 1


# -- as a pass -------------------------------------------------------------------------------------


def test_an_exact_one_may_stand_in_the_implementation_half_and_a_tolerant_one_may_not():
    place = "after:simplify_shapes#3"
    steps = build(CPU(), {}, PipelineEdit(insert=((place, Saturate()),)))
    (step,) = (s for s in steps if s.own)
    assert step.half == "implementation" and step.pass_.exact
    with pytest.raises(UserError, match="may change bits"):
        build(CPU(), {}, PipelineEdit(insert=((place, Saturate(rules="tolerant")),)))


def test_without_egglog_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="egglog is not installed") as told:
        Saturate().run(program(between, X), PassContext())
    assert told.value.exit_code == CANNOT_HERE and "compiler-workbench[egglog]" in told.value.fix


@pytest.mark.slow
def test_the_result_is_the_same_whatever_the_hash_seed():
    code = (
        "from tests.passes.test_saturation import *\n"
        "from core_compiler.ir.text import print_module\n"
        "def all_(b, x, y):\n"
        "    return between(b, x), on_one_operand(b, x, y), cut_late(b, x), *read_twice(b, x)\n"
        "module, rewrites, figures, _ = saturated(program(all_, X, Y))\n"
        "figures.pop('seconds')\n"
        "print(print_module(module), [r.note for r in rewrites], figures)\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "27")
    }
    assert len(said) == 1 and "change form" not in said and "core.matmul" in said.pop()
