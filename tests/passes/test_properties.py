"""Random programs through both halves: numbers, validity, origins, idempotence, limits, fusion."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core_compiler.debug.bits import same_bits
from core_compiler.debug.buffers import BufferMachine
from core_compiler.debug.check import Checker
from core_compiler.debug.evaluate import Evaluator
from core_compiler.ir import Module
from core_compiler.ir.core import structure_key
from core_compiler.ir.rewriter import Budget, stable_topological
from core_compiler.passes.base import PassContext
from core_compiler.passes.canonicalise import Canonicalise
from core_compiler.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.passes.fuse_elementwise import FuseElementwise
from core_compiler.passes.fuse_epilogues import FuseEpilogues
from core_compiler.passes.fuse_reductions import FuseReductions
from core_compiler.passes.grouping import GROUP, flattened
from core_compiler.passes.recompose import Recompose
from core_compiler.passes.simplify_shapes import SimplifyShapes
from core_compiler.pipelines.pipeline import labels, meaning
from core_compiler.support.errors import InternalError
from core_compiler.targets.cpu import CPU
from tests.examples import examples
from tests.passes import specs
from tests.passes.programs import inputs, programs

#: Up to, not including: machine code (tests/runtime and tests/compiler execute it).
IMPLEMENTATION = CPU().pipeline({})[:-1]
PASSES = (*meaning(), *IMPLEMENTATION)
LABELS = labels(PASSES)


def stages(module: Module):
    """(label, pass, before, after, rewrites) of both halves, every module verified."""
    target, facts = CPU(), {}
    for label, pass_ in zip(LABELS, PASSES, strict=True):
        after, rewrites = specs.apply(pass_, module, target=target, facts=facts)
        yield label, pass_, module, after, rewrites
        module = after


def run(module: Module, arrays):
    """Main's results: of a tensor stage by the references, of a buffer stage on real memory."""
    if module.main.level != "target":
        return specs.outputs(module, arrays)
    arguments = dict(zip(module.main.arguments, arrays, strict=True))
    return BufferMachine(module, Evaluator(module.weights)).run(arguments)


@settings(max_examples=examples(40))
@given(programs())
def test_every_rewrite_of_both_halves_keeps_what_it_promises(module):
    arrays = inputs(module)
    checker = Checker(module, arrays)
    for label, pass_, before, after, rewrites in stages(module):
        for record in checker.stage(rewrites, pass_.exact, before, after):
            assert record.verdict != "failed", f"{label}: {record.note}"
            if record.verdict == "unchecked":
                assert label == "schedule_kernels", f"{label}: {record.note}"


@settings(max_examples=examples(40))
@given(programs())
def test_exact_passes_keep_the_bits_of_every_result(module):
    arrays = inputs(module, seed=1, special=True)
    results = run(module, arrays)
    for label, pass_, _, after, rewrites in stages(module):
        now = run(after, arrays)
        if pass_.exact or not rewrites:
            for old, new in zip(results, now, strict=True):
                assert same_bits(old, new), label
        results = now


@settings(max_examples=examples(40))
@given(programs())
def test_every_op_reaches_the_model_or_says_why_it_is_there(module):
    for label, _, _, after, _ in stages(module):
        for op in after.main.body.ops:
            assert op.origin is not None and op.origin.is_explained(), (label, op)
        if label == LABELS[0]:
            model = {op.origin for op in after.main.body.ops}
    launches = [op for op in after.main.body.ops if op.kind == "target.launch"]
    assert all(op.origin.nodes() for op in launches) or not model


@settings(max_examples=examples(25))
@given(programs())
def test_an_unchanged_program_is_the_same_object(module):
    """No rewrite means no new module, so that stages that change nothing cost nothing."""
    for label, pass_, before, after, rewrites in stages(module):
        if not rewrites and pass_.name() not in (
            "schedule_kernels",
            "outline_kernels",
            "bufferize",
        ):
            assert after is before, label


CANONICALISING = (
    Canonicalise(),
    SimplifyShapes(),
    EliminateCommonSubexpressions(),
    EliminateDeadCode(),
    FoldConstants(),
    Recompose(),
)


@pytest.mark.parametrize("pass_", CANONICALISING, ids=lambda p: p.name())
@settings(max_examples=examples(40))
@given(module=programs())
def test_a_second_run_changes_nothing(pass_, module):
    once, _ = specs.apply(pass_, module)
    twice, rewrites = specs.apply(pass_, once)
    assert not rewrites
    assert twice is once


@settings(max_examples=examples(25))
@given(programs())
def test_equal_programs_end_in_equal_modules(module):
    """Determinism within a process: the same input twice, the same structure at every stage."""
    first = [structure_key(after) for *_, after, _ in stages(module)]
    second = [structure_key(after) for *_, after, _ in stages(module)]
    assert first == second


# -- limits ----------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(programs(), st.integers(0, 99), st.integers(0, 6))
def test_a_limited_pass_gives_a_valid_module_with_the_same_numbers(module, place, limit):
    arrays = inputs(module)
    done = [stage for stage in stages(module) if stage[4] and stage[1].name() != "plan_memory"]
    assume(done)
    _, pass_, before, after, rewrites = done[place % len(done)]
    context = PassContext(target=CPU(), budget=Budget(limit), facts={})
    limited = pass_.run(before, context)
    specs.assert_valid(limited)
    if pass_.name() not in CONVERSIONS:
        assert len(context.rewrites) == min(limit, len(rewrites))
        for old, new in zip(run(before, arrays), run(limited, arrays), strict=True):
            if pass_.exact:
                assert same_bits(old, new)
        if limit >= len(rewrites):
            assert structure_key(limited) == structure_key(after)


#: Passes that go from one level to the next: a part of their work is a valid module, no program.
CONVERSIONS = ("outline_kernels", "bufferize", "schedule_kernels")


# -- fusion ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def before_fusion():
    return LABELS.index("fuse_elementwise")


@settings(max_examples=examples(40))
@given(programs(most=14))
def test_fusion_makes_no_cycle_and_loses_no_op(module):
    for label, pass_, before, after, _ in stages(module):
        if not isinstance(pass_, FuseElementwise | FuseEpilogues | FuseReductions):
            continue
        try:
            assert list(stable_topological(after.main.body.ops)) == list(after.main.body.ops)
        except InternalError as error:
            raise AssertionError(f"{label}: {error}") from None
        assert spelled(after) == spelled(before), label
        for op in after.main.body.ops:
            if op.kind == GROUP:
                assert not op.regions[0].free_values(), "a group reads only its operands"


def spelled(module: Module) -> list[str]:
    """The kinds of all ops, groups opened, in order of kind."""
    return sorted(inner.kind for op in module.main.body.ops for inner in flattened(op))


@settings(max_examples=examples(40))
@given(programs(most=14))
def test_no_pair_that_fits_is_left_apart(module):
    """Fusion ends only when its own question finds nothing more to merge."""
    for _, pass_, _, after, _ in stages(module):
        if isinstance(pass_, FuseElementwise | FuseEpilogues | FuseReductions):
            assert not specs.apply(pass_, after)[1]


# -- memory ----------------------------------------------------------------------------------------


@settings(max_examples=examples(40))
@given(programs(most=14))
def test_buffers_that_live_together_do_not_overlap(module):
    *_, (_, _, _, final, _) = stages(module)
    places = [op for op in final.main.body.ops if "offset" in op.attributes]
    for n, a in enumerate(places):
        for b in places[n + 1 :]:
            together = a["start"] < b["end"] and b["start"] < a["end"]
            apart = a["offset"] + a["size"] <= b["offset"] or b["offset"] + b["size"] <= a["offset"]
            assert apart or not together
