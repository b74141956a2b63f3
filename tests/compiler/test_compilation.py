"""The session interface: step, finish, rerun, edit, check, cancel; errors keep what was done."""

from __future__ import annotations

import gc
import pickle
import re
from functools import reduce
from types import FunctionType, ModuleType

import numpy as np
import pytest

import core_compiler as cc
from core_compiler import targets
from core_compiler.debug.bisect import bisect
from core_compiler.debug.bits import same_bits
from core_compiler.debug.check import summary
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Cancelled, InvalidModule, Options
from core_compiler.driver.legality import levels
from core_compiler.ir import Module
from core_compiler.ir.events import Observer
from core_compiler.passes.canonicalise import Canonicalise
from core_compiler.pipelines.pipeline import PipelineEdit, build, labels, meaning
from core_compiler.record import Recorder, Recording
from core_compiler.support.errors import PassRaised, PassTimeout, UserError
from core_compiler.targets.cpu import CPU
from tests.compiler import broken
from tests.passes import specs
from tests.passes.programs import program

MEANING = labels(meaning())


def start(network, arrays=None, check=False, edit=PipelineEdit(), **options):
    return compilation.start(
        network, "cpu", Options(check=check, threads=1, edit=edit, **options), arrays
    )


def inserted(pass_, at: int = len(MEANING)) -> PipelineEdit:
    return PipelineEdit(insert=((at, pass_),))


def names(made) -> list[str]:
    return [step.label for step in made.steps]


# -- stepping --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_makes_one_stage_and_finish_the_rest(started):
    assert [s.name for s in started.stages] == ["import"]
    first = started.next
    stage = started.step()
    assert (stage.index, stage.name, stage.step) == (1, first.label, first)
    started.step()
    assert started.next is started.steps[2]
    started.finish()
    assert started.next is None
    assert [s.name for s in started.stages[1:]] == names(started)


def test_stepping_past_the_end_says_so(finished):
    with pytest.raises(UserError, match="every pass has run"):
        finished.step()


def test_the_pipeline_is_the_meaning_half_then_the_target_s():
    steps = build(CPU(), {})
    assert [s.label for s in steps[: len(MEANING)]] == MEANING
    assert {s.pass_.half for s in steps[len(MEANING) :]} <= {"implementation", "meaning"}
    assert all(s.pass_.exact for s in steps[len(MEANING) :])


def test_a_stage_that_changes_nothing_is_the_same_module(finished):
    for before, stage in zip(finished.stages, finished.stages[1:], strict=False):
        assert stage.changed == (stage.module is not before.module)


def test_results_are_those_of_the_meaning_half_bit_for_bit(finished, arrays):
    sealed = finished.stages[len(MEANING)].module
    for a, b in zip(finished(*arrays), specs.outputs(sealed, arrays), strict=True):
        assert same_bits(a, b)


def test_the_identity_is_that_of_the_meaning_half_alone(finished, network):
    other = start(network, edit=PipelineEdit(skip=("fuse_elementwise", "choose_layouts")))
    assert other.finish().identity == finished.identity
    changed = start(network, edit=PipelineEdit(skip=("recompose",))).finish()
    assert changed.identity != finished.identity


# -- checking --------------------------------------------------------------------------------------


def test_every_rewrite_is_checked(finished):
    counts = summary(finished.checks)
    assert counts["failed"] == counts["unchecked"] == 0
    assert counts["bitwise"] > 20
    assert all(error < 1e-5 for error in finished.accumulated.values())


@pytest.mark.slow
def test_a_finished_compile_keeps_no_values_of_its_checks():
    """Of a large model they are many times its weights."""
    x = np.ones((256, 256), np.float32)
    deep = program(lambda b, v: reduce(lambda v, _: b.sqrt(b.exp(v)), range(20), v), "256x256xf32")
    made = start(deep, [x], check=True)
    while made.next.label != "generate_code":
        made.step()
    assert held(made) > 20 * x.nbytes
    made.finish()
    assert summary(made.checks)["bitwise"] > 0
    assert held(made) <= 2 * x.nbytes


def held(root) -> int:
    """Bytes of all arrays that an object leads to."""
    seen, left, arrays = {id(root)}, [root], {}
    while left:
        for found in gc.get_referents(left.pop()):
            if isinstance(found, np.ndarray):
                arrays[found.__array_interface__["data"][0]] = found.nbytes
            elif id(found) not in seen and not isinstance(found, (type, ModuleType, FunctionType)):
                seen.add(id(found))
                left.append(found)
    return sum(arrays.values())


@pytest.mark.parametrize("pass_", [broken.Nudge()], ids=lambda p: p.name())
def test_an_exact_pass_that_changes_bits_is_reported(network, arrays, pass_):
    made = start(network, arrays, True, inserted(pass_, 0))
    made.step()
    ((record,),) = made.checks.values()
    assert record.verdict == "failed"
    assert record.note.startswith("nudge is declared bit-exact but changed values")
    assert record.worst_error > 0.1
    assert record.value is record.rewrite.old[0].result
    # And the error of the outputs is that pass's, not that of the next one which may change bits.
    assert made.accumulated[1] > 0.001


def test_a_change_of_the_sign_of_zero_alone_is_reported():
    clamps = program(lambda b, x: [b.clamp(x, low=z, high=6.0) for z in (0.0, -0.0)], "3xf32")
    arrays = [np.array([-1, 2, 3], np.float32)]
    made = start(clamps, arrays, True, inserted(broken.ForgetSigns(), 0))
    made.step()
    assert [r.verdict for r in made.checks[1]] == ["bitwise", "failed"]


def test_checking_needs_inputs(network):
    made = start(network, None, True)
    with pytest.raises(UserError, match="missing example inputs"):
        made.finish()


def test_checking_may_start_late(network, arrays):
    """Stages made before checking was asked for are learned, so that later ones can be checked."""
    first = start(network)
    for _ in range(4):
        first.step()
    first.inputs = arrays
    first.options = Options(check=True, threads=1)
    while first.next.pass_.half == "meaning":
        first.step()
    verdicts = {r.verdict for records in first.checks.values() for r in records}
    assert verdicts <= {"bitwise", "within"} and verdicts


def test_inputs_that_do_not_fit_are_refused(network, arrays):
    made = start(network, [*arrays, arrays[0]], True)
    with pytest.raises(UserError, match="expected 1 inputs, got 2"):
        made.finish()


# -- passes that go wrong --------------------------------------------------------------------------


def test_an_inexact_pass_in_the_implementation_half_is_refused(network):
    with pytest.raises(UserError, match="inexact may change bits but is in the implementation"):
        start(network, edit=inserted(broken.Inexact()))


def test_an_inexact_pass_after_the_meaning_half_is_refused(network):
    with pytest.raises(UserError, match="canonicalise#3 may change bits but comes after the"):
        start(network, edit=inserted(Canonicalise(), len(MEANING) + 1))


def test_run_to_run_allows_it(network):
    made = start(network, edit=inserted(broken.Inexact()), target={"level": "run_to_run"})
    assert "inexact" in names(made)


def test_an_invalid_module_is_refused_with_its_pass_and_the_stages_before_kept(network):
    made = start(network, edit=inserted(broken.Dangling(), 2))
    with pytest.raises(InvalidModule, match="the module after dangling is invalid") as caught:
        made.finish()
    assert "%lost is used before it is defined" in str(caught.value)
    assert caught.value.errors[0].severity == "error"
    assert [s.name for s in made.stages] == ["import", *MEANING[:2]]
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, UserError) and again.what == caught.value.what


@pytest.mark.parametrize(
    ("pass_", "said"),
    [
        (broken.Unknown(), "core.rulu is not legal at level tensor"),
        (broken.EmptyGroup(), "core.group has 0 regions"),
        (broken.NoMain(), "function @main not found"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name(),
)
def test_a_module_of_which_no_figure_can_be_made_is_invalid_and_recorded(
    network, arrays, tmp_path, pass_, said
):
    edit = inserted(pass_, 0)
    with Recorder(tmp_path / "invalid.run") as recorder:
        made = compilation.start(network, "cpu", Options(edit=edit), observer=recorder)
        with pytest.raises(InvalidModule, match=said):
            made.finish()
    with Recording.open(tmp_path / "invalid.run") as recording:
        assert [s.pass_name for s in recording.stages()] == ["import", pass_.name()]
    found = bisect(start(network, edit=edit), arrays, levels=levels(CPU()))
    assert (found.pass_label, found.how) == (pass_.name(), "invalid")


def test_the_observer_is_shown_the_invalid_stage(network):
    class Seen(Observer):
        def __init__(self):
            self.stages = []

        def stage(self, stage):
            self.stages.append(stage)

    seen = Seen()
    made = compilation.start(
        network, "cpu", Options(edit=inserted(broken.Dangling(), 0)), observer=seen
    )
    with pytest.raises(InvalidModule):
        made.finish()
    assert [s.pass_name for s in seen.stages] == ["import", "dangling"]
    assert seen.stages[-1].diagnostics


def test_a_pass_that_returns_no_module_is_told(network):
    made = start(network, edit=inserted(broken.NoModule(), 1))
    with pytest.raises(UserError, match="pass no_module returned NoneType, expected a module"):
        made.finish()
    assert [s.name for s in made.stages] == ["import", MEANING[0]]


def test_an_exception_of_an_own_pass_names_it_and_its_line_and_keeps_the_stages(network, arrays):
    made = start(network, edit=inserted(broken.Raises(), 3))
    with pytest.raises(
        PassRaised, match="pass raises: the pass raised ZeroDivisionError"
    ) as caught:
        made.finish()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert re.search(r"broken\.py:\d+: division by zero in the pass", caught.value.what)
    assert [s.name for s in made.stages] == ["import", *MEANING[:3]]
    mended = made.rerun(3)
    assert same_bits(mended.finish()(*arrays)[0], start(network).finish()(*arrays)[0])


@pytest.mark.parametrize("check", [False, True])
def test_a_panic_of_a_library_is_an_exception_of_the_pass(network, arrays, check):
    made = start(network, arrays, check, edit=inserted(broken.Panics(), 3))
    with pytest.raises(UserError, match=r"pass panics: .*a library panicked: index out of bounds"):
        made.finish()
    assert [s.name for s in made.stages] == ["import", *MEANING[:3]]


def test_an_exception_of_our_own_pass_stays_a_bug_of_ours(network, monkeypatch):
    def fails(self, module, context):
        raise IndexError("no such op")

    monkeypatch.setattr(Canonicalise, "run", fails)
    with pytest.raises(IndexError, match="no such op") as caught:
        start(network).finish()
    assert caught.value.__notes__ == ["(raised in pass canonicalise)"]


@pytest.mark.parametrize("hides", [False, True], ids=["waits", "hides its errors"])
def test_a_pass_that_never_ends_is_stopped_at_its_line_and_the_stages_are_kept(network, hides):
    made = start(network, edit=inserted(broken.NeverEnds(hides), 2), pass_timeout=0.3)
    with pytest.raises(PassTimeout, match=r"pass never_ends: the pass did not finish in 0\.3 s"):
        made.finish()
    assert [s.name for s in made.stages] == ["import", *MEANING[:2]]
    assert made.rerun(2).step().name == MEANING[2]


def test_an_own_pass_in_compile_is_told_in_the_same_way(network):
    edit = inserted(broken.NeverEnds(), 1)
    with pytest.raises(PassTimeout, match=r"stopped at .*broken\.py:\d+\);"):
        cc.compile(network, edit=edit, pass_timeout=0.3)
    with pytest.raises(PassRaised, match="division by zero in the pass"):
        cc.compile(network, edit=inserted(broken.Raises(), 1))


def test_an_invalid_import_is_refused(network):
    bad = broken.Dangling().run(network, None)
    with pytest.raises(InvalidModule, match="the module after import is invalid"):
        start(bad)


# -- editing the pipeline --------------------------------------------------------------------------


def test_skip_by_name_and_by_occurrence():
    every = build(CPU(), {}, PipelineEdit(skip=("fold_constants",)))
    assert not [s for s in every if s.pass_.name() == "fold_constants"]
    second = build(CPU(), {}, PipelineEdit(skip=("fold_constants#2",)))
    assert [s.label for s in second if s.pass_.name() == "fold_constants"] == [
        "fold_constants",
        "fold_constants#3",
    ]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (PipelineEdit(skip=("fuse_everything",)), "unknown pass 'fuse_everything'"),
        (PipelineEdit(limits={"nothing": 1}), "unknown pass 'nothing'"),
        (PipelineEdit(options={"nothing": {}}), "unknown pass 'nothing'"),
        (PipelineEdit(order=("nothing",)), "unknown pass 'nothing'"),
        (PipelineEdit(repeat=("nothing",)), "unknown pass 'nothing'"),
        (PipelineEdit(skip=("bufferize",)), "bufferize cannot be skipped"),
        (PipelineEdit(skip=("generate_code",)), "generate_code cannot be skipped"),
        (PipelineEdit(options={"fold_constants": {"groth": "2"}}), "unknown option 'groth'"),
        (PipelineEdit(options={"fold_constants": {"growth": "much"}}), "expected float, got 'much"),
        (PipelineEdit(options={"choose_layouts": {"channels_last": "2"}}), "expected bool, got '2"),
        (PipelineEdit(order=("plan_memory", "find_lifetimes")), "requires "),
        (
            PipelineEdit(skip=("choose_layouts",), insert=((len(MEANING), broken.NeedsLayouts()),)),
            "requires layouts, which no earlier pass ensures",
        ),
    ],
)
def test_what_is_wrong_with_an_edit_is_said_before_anything_runs(network, edit, message):
    with pytest.raises(UserError) as caught:
        start(network, edit=edit)
    assert message in caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize(
    ("options", "message"),
    [({"vector_width": 12}, "unsupported vector width 12"), ({"tiles": "huge"}, "unknown tiling")],
)
def test_a_wrong_option_of_the_target_is_said_before_anything_runs(network, options, message):
    with pytest.raises(UserError, match=message):
        start(network, target=options)


def test_options_reach_the_pass(network):
    made = start(network, edit=PipelineEdit(options={"choose_layouts": {"channels_last": "false"}}))
    (step,) = [s for s in made.steps if s.label == "choose_layouts"]
    assert step.pass_.channels_last is False
    assert step.pass_.to_text() == "choose_layouts{channels_last=False}"


def test_limits_stop_a_pass_after_so_many_rewrites(network, arrays):
    whole = start(network).finish()
    count = {s.name: len(s.rewrites) for s in whole.stages}
    made = start(network, arrays, True, PipelineEdit(limits={"fuse_elementwise": 1})).finish()
    assert count["fuse_elementwise"] > 1
    assert {s.name: len(s.rewrites) for s in made.stages}["fuse_elementwise"] == 1
    assert summary(made.checks)["failed"] == 0
    for a, b in zip(made(*arrays), whole(*arrays), strict=True):
        assert same_bits(a, b)


def test_inserted_repeated_and_reordered_passes_run_where_they_are_put(network, arrays):
    (plain, _) = start(network).finish()(*arrays)
    edit = PipelineEdit(
        insert=((0, broken.Adds(times=2)),),
        repeat=("canonicalise",),
        order=("eliminate_dead_code", "fold_constants", "canonicalise"),
    )
    made = start(network, edit=edit)
    assert names(made)[:5] == [
        "adds",
        "eliminate_dead_code",
        "fold_constants",
        "canonicalise",
        "canonicalise+",
    ]
    (result, _) = made.finish()(*arrays)
    assert same_bits(result, plain * np.float32(4))


# -- rerun -----------------------------------------------------------------------------------------


def test_rerun_starts_after_a_stage_and_leaves_the_first_compile_alone(finished, arrays):
    place = next(s.index for s in finished.stages if s.name == "choose_layouts")
    before = list(finished.stages)
    fresh = finished.rerun(place, PipelineEdit(skip=("fuse_reductions",)))
    assert fresh.stages == before[: place + 1]
    assert fresh.next.label == "pad_images"
    fresh.finish()
    assert "fuse_reductions" not in [s.name for s in fresh.stages]
    assert finished.stages == before
    for a, b in zip(fresh(*arrays), finished(*arrays), strict=True):
        assert same_bits(a, b)


def test_a_rerun_has_what_the_stages_kept_have_made_and_no_more(finished, tmp_path):
    fresh = finished.rerun(3)
    assert finished.kernels and finished.memory is not None
    assert fresh.kernels == {} and fresh.memory is None
    with Recording.open(fresh.record(tmp_path / "x.run")) as recording:
        assert recording.kernels() == [] and recording.buffers() == []
    planned = finished.rerun(place_of(finished, "plan_memory"))
    assert planned.memory is not None and planned.kernels == {}


def test_a_rerun_tells_the_identity_and_the_errors_that_it_keeps(finished, tmp_path):
    fresh = finished.rerun(place_of(finished, "bufferize"))
    with Recording.open(fresh.record(tmp_path / "x.run")) as recording:
        told = recording.figures()
    assert told["identity"] == finished.identity
    errors = {k: v for k, v in told.items() if k.startswith("accumulated_error/")}
    assert errors == {f"accumulated_error/{i}": e for i, e in finished.accumulated.items()} != {}


def place_of(made, name: str) -> int:
    return next(s.index for s in made.stages if s.name == name)


def test_rerun_with_a_pass_skipped_earlier_runs_all_that_is_left(finished):
    """The edit shortens the part that is kept: no later pass may be lost or run twice."""
    place = place_of(finished, "choose_layouts")
    fresh = finished.rerun(place, PipelineEdit(skip=("fold_constants",)))
    assert fresh.next.label == "pad_images"
    assert names(fresh)[place:] == names(finished)[place:]


def test_rerun_in_another_order_loses_no_pass(finished):
    place = place_of(finished, "canonicalise")
    order = ("eliminate_dead_code", "fold_constants", "canonicalise", "simplify_shapes")
    fresh = finished.rerun(place, PipelineEdit(order=order))
    assert names(fresh)[place:][:2] == ["fold_constants", "simplify_shapes"]
    assert sorted(names(fresh)) == sorted(names(finished))


@pytest.mark.parametrize(
    "name",
    [
        "import",
        "fold_batch_norm",
        "choose_layouts",
        "outline_kernels",
        "bufferize",
        "schedule_kernels",
        "find_lifetimes",
        "plan_memory",
    ],
)
def test_rerun_from_any_stage_ends_the_same(finished, arrays, name):
    fresh = finished.rerun(place_of(finished, name)).finish()
    assert fresh.identity == finished.identity
    assert summary(fresh.checks) == summary(finished.checks)
    assert [s.name for s in fresh.stages] == [s.name for s in finished.stages]
    for a, b in zip(fresh(*arrays), finished(*arrays), strict=True):
        assert same_bits(a, b)


def test_a_check_that_starts_after_bufferize_still_finds_wrong_memory():
    """The buffers' values come from stages that this compilation did not run itself."""

    def two_at_a_time(b, x, y, z):
        return b.matmul(b.matmul(x, y), b.matmul(y, z))

    module = program(two_at_a_time, "4x4xf32", "4x4xf32", "4x4xf32")
    first = start(module, specs.inputs(module), True)
    while first.stages[-1].name != "find_lifetimes":
        first.step()
    edit = PipelineEdit(insert=((len(first.stages), broken.Overlap()),))
    fresh = first.rerun(len(first.stages) - 1, edit)
    assert [fresh.step().name, fresh.step().name] == ["plan_memory", "overlap"]
    assert {r.verdict for r in fresh.checks[len(first.stages)]} == {"bitwise"}
    assert "failed" in {r.verdict for r in fresh.checks[len(first.stages) + 1]}


def test_rerun_from_the_import_with_an_inserted_pass(finished, arrays):
    fresh = finished.rerun(0, inserted(broken.Adds(times=1), 0)).finish()
    assert same_bits(fresh(*arrays)[0], finished(*arrays)[0] * np.float32(2))
    assert fresh.identity != finished.identity


# -- cancel ----------------------------------------------------------------------------------------


def test_cancel_stops_before_the_next_pass_and_keeps_the_stages(network):
    calls = []
    made = compilation.start(network, "cpu", Options(), cancelled=lambda: len(calls) >= 3)

    class Counting(Observer):
        def stage(self, stage):
            calls.append(stage.pass_name)

    made.observer = Counting()
    with pytest.raises(Cancelled):
        made.finish()
    assert calls == MEANING[:3]
    assert [s.name for s in made.stages] == ["import", *MEANING[:3]]


def test_cancel_stops_inside_a_long_pass(network):
    inside = []

    class Watch(Observer):
        def progress(self, what, done, total):
            inside.append(what)

    made = compilation.start(
        network,
        "cpu",
        Options(),
        observer=Watch(),
        cancelled=lambda: any(w.startswith("schedule ") for w in inside),
    )
    with pytest.raises(Cancelled):
        made.finish()
    assert made.stages[-1].name == "bufferize"


# -- targets ---------------------------------------------------------------------------------------


def test_an_unknown_target_lists_those_installed(network):
    with pytest.raises(UserError, match="unknown target 'tpu'") as caught:
        compilation.start(network, "tpu")
    assert "cpu" in caught.value.fix and "cpu" in targets.names()


def test_a_target_that_cannot_execute_here_compiles_and_says_so(network, arrays):
    class Elsewhere(CPU):
        def available(self):
            return "this machine has no such accelerator"

    made = compilation.start(network, Elsewhere(), Options(check=True), arrays).finish()
    with pytest.raises(UserError, match="no such accelerator") as caught:
        made(*arrays)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("shape", ["f32", "1x1xf32", "3x0xf32"])
def test_programs_at_the_edges_compile_and_execute(shape):
    module = program(lambda b, x: (b.neg(x), x), shape)
    (array,) = specs.inputs(module)
    made = start(module, [array], True).finish()
    negated, same = made(array)
    assert same_bits(negated, -array) and same_bits(same, array)


def test_a_program_without_ops_hands_its_inputs_on():
    module: Module = program(lambda b, x: (x, x), "4xf32")
    (array,) = specs.inputs(module)
    one, two = start(module).finish()(array)
    assert same_bits(one, array) and same_bits(two, array)
    assert one is not array and not np.shares_memory(one, two)


def test_an_unknown_option_of_the_target_is_refused_with_the_known_ones(network):
    with pytest.raises(UserError, match=r"unknown option 'vectorwidth'.*did you mean vector_width"):
        start(network, target={"vectorwidth": 8})
