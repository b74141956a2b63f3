"""Edits of a pipeline: places, orders, what they refuse; whatever they allow keeps the contract."""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core_compiler.debug.bits import same_bits
from core_compiler.debug.check import summary
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.passes.base import Pass
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.pipelines.pipeline import (
    PipelineEdit,
    Step,
    arrange,
    build,
    labels,
    meaning,
    split_step,
    without_step,
)
from core_compiler.support.errors import UserError
from core_compiler.targets.cpu import CPU
from tests.examples import examples

MEANING = labels(meaning())
LABELS = [step.label for step in build(CPU(), {})]
IMPLEMENTATION = LABELS[len(MEANING) :]
OPTIONAL = [s.label for s in build(CPU(), {}) if not s.pass_.mandatory]


@dataclass(frozen=True)
class Watch(Pass):
    """Changes nothing."""

    times: int = 1

    def run(self, module, context):
        return module


@dataclass(frozen=True)
class Other(Watch):
    pass


@dataclass(frozen=True)
class Late(Watch):
    """Needs nothing, and is written for the target."""

    half = "implementation"


def names(**edit) -> list[str]:
    return [step.label for step in build(CPU(), {}, PipelineEdit(**edit))]


# -- names -----------------------------------------------------------------------------------------


def test_a_name_is_all_passes_of_it_and_a_number_is_one():
    assert not [n for n in names(skip=("fold_constants",)) if n.startswith("fold_constants")]
    assert names(skip=("fold_constants#1",)) == [n for n in LABELS if n != "fold_constants"]
    assert names(skip=("fold_constants#2",)) == [n for n in LABELS if n != "fold_constants#2"]


def test_the_own_option_of_one_pass_wins_over_that_of_all():
    options = {"fold_constants#2": {"growth": "3"}, "fold_constants": {"growth": "2"}}
    steps = build(CPU(), {}, PipelineEdit(options=options))
    growths = [s.pass_.growth for s in steps if s.pass_.name() == "fold_constants"]
    assert growths == [2.0, 3.0, 2.0]


def test_limits_likewise():
    limits = {"fold_constants": 4, "fold_constants#1": 0}
    steps = build(CPU(), {}, PipelineEdit(limits=limits))
    assert [s.limit for s in steps if s.pass_.name() == "fold_constants"] == [0, 4, 4]


# -- places ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        ("after:fold_constants", "fold_constants", "simplify_shapes"),
        ("after:fold_constants#2", "fold_constants#2", "simplify_shapes#2"),
        ("before:fold_constants#1", "canonicalise", "fold_constants"),
        ("before:bufferize", "outline_kernels", "bufferize"),
        (len(MEANING), MEANING[-1], IMPLEMENTATION[0]),
        (-1, LABELS[-2], LABELS[-1]),
    ],
)
def test_a_pass_is_inserted_at_its_place(place, before, after):
    found = names(insert=((place, Watch()),))
    at = found.index("watch")
    assert (found[at - 1], found[at + 1]) == (before, after)


def test_the_first_and_the_last_place():
    assert names(insert=(("before:eliminate_dead_code", Watch()),))[0] == "watch"
    assert names(insert=((0, Watch()),))[0] == "watch"
    assert names(insert=(("after:generate_code", Watch()),))[-1] == "watch"
    assert names(insert=((1000, Watch()),))[-1] == "watch"


def test_passes_at_one_place_keep_their_order_and_get_labels():
    passes = Watch(), Other(), Watch(), FoldConstants()
    found = names(insert=tuple(("after:recompose", p) for p in passes))
    at = found.index("recompose")
    assert found[at + 1 : at + 5] == ["watch", "other", "watch#2", "fold_constants#4"]


def test_a_place_beside_a_skipped_or_a_repeated_pass_stands():
    found = names(skip=("recompose",), insert=(("after:recompose", Watch()),))
    assert found[found.index("watch") - 1] == "decompose" and "recompose" not in found
    found = names(repeat=("recompose",), insert=(("after:recompose", Watch()),))
    assert found[found.index("watch") - 2 :][:2] == ["recompose", "recompose+"] or (
        found[found.index("watch") - 1] == "recompose+"
    )


def test_a_position_counts_the_passes_that_run():
    found = names(skip=("eliminate_dead_code#1", "canonicalise#1"), insert=((1, Watch()),))
    assert found[:3] == ["fold_constants", "watch", "simplify_shapes"]


def test_an_inserted_pass_is_edited_like_any_other():
    edit = {"insert": (("after:recompose", Watch()),)}
    assert "watch" not in names(**edit, skip=("watch",))
    assert {"watch", "watch+"} <= set(names(**edit, repeat=("watch",)))
    steps = build(CPU(), {}, PipelineEdit(**edit, options={"watch": {"times": "3"}}))
    assert [s.pass_.times for s in steps if s.own] == [3]


# -- parts -----------------------------------------------------------------------------------------


def test_a_pass_in_parts_has_a_step_for_each_and_one_for_the_rest():
    steps = build(CPU(), {}, PipelineEdit(cuts={"recompose": (1, 4)}, repeat=("recompose",)))
    parts = [(s.label, s.limit) for s in steps if s.pass_.name() == "recompose"]
    assert parts == [
        ("recompose", 1),
        ("recompose+", 4),
        ("recompose+2", None),
        ("recompose+3", None),
    ]
    found = names(cuts={"recompose": (1,)}, insert=(("after:recompose", Watch()),))
    assert found[found.index("watch") - 2 :][:2] == ["recompose", "recompose+"]


@pytest.mark.parametrize(
    ("limit", "cuts", "limits"),
    [
        (None, (), [None]),
        (3, (), [3]),
        (0, (), [0]),
        (3, (1,), [1, 2]),
        (3, (1, 2), [1, 2]),
        (3, (2, 2, 5), [2, 1]),
        (0, (1,), [0]),
        (None, (2, 2), [2, 2, None]),
    ],
)
def test_the_limit_of_a_pass_is_that_of_its_parts_together(limit, cuts, limits):
    edit = PipelineEdit(
        limits={} if limit is None else {"recompose": limit}, cuts={"recompose#1": cuts}
    )
    steps = build(CPU(), {}, edit)
    assert [s.limit for s in steps if s.label.startswith("recompose")] == limits


def test_what_is_left_of_a_pass_is_cut_and_left_out():
    def step(edit: PipelineEdit, label: str) -> Step:
        return next(s for s in build(CPU(), {}, edit) if s.label == label)

    edit = PipelineEdit()
    edit = split_step(edit, step(edit, "fold_constants#2"), 2)
    edit = split_step(edit, step(edit, "fold_constants#2+"), 1)
    assert edit.cuts == {"fold_constants#2": (2, 1)}
    assert split_step(edit, step(edit, "fold_constants#2"), 1).cuts == {
        "fold_constants#2": (1, 1, 1)
    }
    left = without_step(edit, step(edit, "fold_constants#2+"))
    found = [s for s in build(CPU(), {}, left) if s.label.startswith("fold_constants#2")]
    assert [(s.label, s.limit) for s in found] == [("fold_constants#2", 2)]
    assert "fold_constants" not in {
        s.label for s in build(CPU(), {}, without_step(edit, step(edit, "fold_constants")))
    }
    edit = PipelineEdit(repeat=("recompose",))
    with pytest.raises(UserError, match="recompose\\+ repeats recompose"):
        split_step(edit, step(edit, "recompose+"), 1)


# -- order -----------------------------------------------------------------------------------------


def test_the_named_passes_exchange_places_and_the_others_stay():
    found = names(order=("simplify_shapes", "canonicalise"))
    assert found[:4] == ["eliminate_dead_code", "simplify_shapes", "fold_constants", "canonicalise"]
    assert found[4:] == LABELS[4:]


def test_each_half_keeps_its_own():
    order = ("fuse_reductions", "fold_constants#2", "inline_broadcasts", "decompose")
    found = names(order=order)
    assert set(found[: len(MEANING)]) == set(MEANING)
    assert found.index("fold_constants#2") < found.index("decompose")
    assert found.index("fuse_reductions") < found.index("inline_broadcasts")


def test_exact_passes_of_the_meaning_half_that_run_after_it_stay_after_it():
    found = names(order=("eliminate_dead_code#3", "fold_constants#3"))
    assert found[: len(MEANING)] == MEANING
    assert found.index("eliminate_dead_code#3") < found.index("fold_constants#3")


def test_a_pass_of_the_implementation_half_cannot_come_before_one_that_changes_values():
    edit = PipelineEdit(insert=(("before:recompose", Late()),))
    with pytest.raises(UserError, match="implementation pass late comes before"):
        build(CPU(), {}, edit)


@given(st.permutations(MEANING))
def test_any_whole_order_is_taken_as_it_is(order):
    assert names(order=tuple(order)) == [*order, *IMPLEMENTATION]


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (PipelineEdit(order=("canonicalise", "canonicalise")), "is listed twice"),
        (PipelineEdit(order=("canonicalise", "canonicalise#1", "decompose")), "is listed twice"),
        (PipelineEdit(skip=("canonicalise#3",)), "unknown pass 'canonicalise#3'"),
        (PipelineEdit(limits={"recompose": -1}), "expected 0 or more rewrites, got -1"),
        (PipelineEdit(limits={"bufferize": 1}), "bufferize cannot stop after 1 rewrites"),
        (PipelineEdit(cuts={"bufferize": (2,)}), "bufferize cannot stop after 2 rewrites"),
        (PipelineEdit(cuts={"recompose": (1, 0)}), "expected 1 or more rewrites, got 0"),
        (PipelineEdit(cuts={"recompos": (1,)}), "unknown pass 'recompos'"),
        (PipelineEdit(insert=(("recompose", Watch()),)), "invalid position 'recompose'"),
        (PipelineEdit(insert=(("after:recompos", Watch()),)), "unknown pass 'recompos'"),
        (PipelineEdit(options={"plan_memory": {"planner": "luck"}}), "invalid value 'luck'"),
        (PipelineEdit(repeat=("outline_kernels",)), "requires tensor_ops, which outline_kernels"),
        (PipelineEdit(repeat=("bufferize",)), "bufferize+ requires values"),
        (PipelineEdit(repeat=("schedule_kernels",)), "schedule_kernels+ requires plain_kernels"),
        (
            PipelineEdit(order=("outline_kernels", "fuse_reductions")),
            "recompute_in_readers requires",
        ),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(edit, message):
    with pytest.raises(UserError) as caught:
        build(CPU(), {}, edit)
    assert message in caught.value.what and caught.value.fix


def test_what_stands_skipped_can_be_listed():
    steps = arrange(CPU(), {}, PipelineEdit(skip=("recompose",)))
    assert [s.label for s in steps] == LABELS
    assert [s.label for s in steps if s.skipped] == ["recompose"]


def test_a_pass_without_a_docstring_has_no_summary():
    assert Other.summary() == "" and Watch.summary() == "Changes nothing."


def test_a_summary_is_a_whole_sentence():
    for name in ("core_compiler.passes", "core_compiler.training.passes"):
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    passes = [p for p in Pass.__subclasses__() if p.__module__.startswith("core_compiler.")]
    assert len(passes) >= 36
    assert [p.name() for p in passes if not p.summary().endswith(".")] == []
    (bufferize,) = (p for p in passes if p.name() == "bufferize")
    assert bufferize.summary().endswith("launches that write the buffers they are given.")


# -- whatever is allowed ---------------------------------------------------------------------------


def edits(passes: list[str]):
    """Edits of the optional passes among ``passes``: skips, limits, repeats, and an order."""
    optional = [name for name in passes if name in OPTIONAL]
    some = st.lists(st.sampled_from(optional), max_size=3, unique=True).map(tuple)
    moved = st.lists(st.sampled_from(passes), max_size=3, unique=True).map(tuple)
    numbered = some.map(lambda names: tuple(n if "#" in n else f"{n}#1" for n in names))
    cuts = st.lists(st.integers(1, 3), max_size=2).map(tuple)
    return st.builds(
        PipelineEdit,
        skip=numbered,
        order=moved,
        repeat=st.lists(st.sampled_from(passes), max_size=2).map(tuple),
        limits=st.dictionaries(st.sampled_from(optional), st.integers(0, 3), max_size=2),
        cuts=st.dictionaries(st.sampled_from(optional), cuts, max_size=2),
    )


PATIENT = settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def attempt(network, arrays, edit, check=False):
    """The edited compilation, before its first pass; None where the edit is refused."""
    with suppress(UserError):
        return compilation.start(network, "cpu", Options(check, threads=1, edit=edit), arrays)


@PATIENT
@given(edit=edits(IMPLEMENTATION))
def test_an_edit_of_the_implementation_half_keeps_every_bit_or_is_refused(
    network, arrays, finished, edit
):
    made = attempt(network, arrays, edit)
    if made is None:
        return
    results = made.finish()(*arrays)
    assert made.identity == finished.identity
    assert all(same_bits(a, b) for a, b in zip(results, finished(*arrays), strict=True))


@settings(PATIENT, max_examples=examples(6))
@given(edit=edits(MEANING))
def test_an_edit_of_the_meaning_half_stays_within_its_tolerances_or_is_refused(
    network, arrays, edit
):
    made = attempt(network, arrays, edit, check=True)
    if made is None:
        return
    made.finish()
    assert summary(made.checks)["failed"] == 0
