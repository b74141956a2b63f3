"""Editing a pipeline: what each gesture makes of it, what is refused, and the edit as text."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.passes.base import Pass
from core_compiler.pipelines.edit_data import edit_facts
from core_compiler.pipelines.pipeline import PipelineEdit, build
from core_compiler.support.errors import UserError
from core_compiler.targets.cpu import CPU
from core_compiler.training.config import Training
from tests.examples import examples
from workbench.commands import common
from workbench.model import edits, pipeline_editor, user_pass

META = {
    "target": "cpu",
    "spec": "digits-cnn",
    "kind": "sample",
    "frontend": "onnx",
    "sizes": {"width": 0.25, "image": 12},
    "checked": True,
    "edit": {},
}
PLAIN = [step.label for step in build(CPU(), {})]
CODE = '''
from dataclasses import dataclass
from core_compiler.passes.base import Pass

@dataclass(frozen=True)
class Watch(Pass):
    """Changes nothing."""
    times: int = 2
    half = "implementation"
    requires = frozenset({"buffers"})

    def run(self, module, context):
        return module
'''


@pytest.fixture
def on():
    return pipeline_editor.make_basis(META, True)


def do(on, draft, /, **done):
    return pipeline_editor.change(on, draft, done)


def running(on, draft) -> list[str]:
    steps = build(on.target, draft["target"], edits.from_json(draft["edit"], user_pass.stand_in))
    return [step.label for step in steps]


def row(on, draft, label):
    return next(r for r in pipeline_editor.shown(on, draft, META)["rows"] if r["label"] == label)


# -- gestures --------------------------------------------------------------------------------------


def test_a_pass_is_skipped_and_taken_back(on):
    draft = do(on, on.base, do="skip", label="recompose", on=True)
    assert running(on, draft) == [n for n in PLAIN if n != "recompose"]
    assert row(on, draft, "recompose")["skipped"] and draft["edit"]["skip"] == ["recompose"]
    assert do(on, draft, do="skip", label="recompose", on=False) == on.base


def test_one_of_three_passes_of_a_name_is_skipped(on):
    draft = do(on, on.base, do="skip", label="fold_constants", on=True)
    assert draft["edit"]["skip"] == ["fold_constants#1"]
    assert running(on, draft) == [n for n in PLAIN if n != "fold_constants"]
    for label in ("fold_constants#2", "fold_constants#3"):
        draft = do(on, draft, do="skip", label=label, on=True)
    assert draft["edit"]["skip"] == ["fold_constants"]


def test_a_pass_moves_within_its_half(on):
    draft = do(on, on.base, do="move", label="fold_constants", by=-1)
    assert running(on, draft)[:3] == ["eliminate_dead_code", "fold_constants", "canonicalise"]
    assert do(on, draft, do="move", label="fold_constants", by=1) == on.base
    draft = do(on, on.base, do="move", label="recompose", before="canonicalise")
    assert running(on, draft)[1] == "recompose"
    draft = do(on, on.base, do="move", label="canonicalise", before="")
    assert running(on, draft).index("canonicalise") == 13


@pytest.mark.parametrize(
    ("done", "message"),
    [
        ({"do": "move", "label": "eliminate_dead_code", "by": -1}, "is already the first pass"),
        ({"do": "move", "label": "generate_code", "by": 1}, "is already the last pass"),
        ({"do": "move", "label": "lower_control_flow", "by": -1}, "belongs to the implementation"),
        ({"do": "move", "label": "eliminate_dead_code#2", "by": 1}, "belongs to the meaning half"),
        ({"do": "move", "label": "recompute_in_readers", "by": 1}, "requires tensor_ops"),
        ({"do": "move", "label": "plan_memory", "before": "find_lifetimes"}, "requires lifetimes"),
        ({"do": "skip", "label": "bufferize", "on": True}, "cannot be skipped"),
        ({"do": "limit", "label": "recompose", "text": "many"}, "got 'many'"),
        ({"do": "limit", "label": "bufferize", "text": "1"}, "cannot stop after 1"),
        ({"do": "cut", "label": "bufferize", "text": "1"}, "cannot stop after 1"),
        ({"do": "cut", "label": "recompose", "text": "1,0"}, "cannot parse '1,0' as parts"),
        ({"do": "cut", "label": "recompose", "text": "9999x1,9x1"}, "as parts of a pass"),
        ({"do": "option", "label": "fold_constants", "option": "growth", "text": "x"}, "got 'x'"),
        ({"do": "option", "label": "plan_memory", "option": "planner", "text": "x"}, "value 'x'"),
        ({"do": "option", "label": "recompose", "option": "depth", "text": "1"}, "unknown opt"),
        ({"do": "repeat", "label": "bufferize", "on": True}, "bufferize+ requires values"),
        ({"do": "target", "option": "tiles", "text": "huge"}, "unknown tiling 'huge'"),
        ({"do": "target", "option": "colour", "text": "red"}, "unknown option 'colour'"),
        ({"do": "target", "option": "level", "text": "never"}, "unknown level 'never'"),
        ({"do": "set", "timeout": "soon"}, "expected seconds above 0, got 'soon'"),
        ({"do": "set", "timeout": "-1"}, "expected seconds above 0, got '-1'"),
        ({"do": "skip", "label": "nothing", "on": True}, "unknown pass 'nothing'"),
        ({"do": "code", "label": "recompose", "code": "x"}, "cannot edit built-in pass recompose"),
    ],
)
def test_what_cannot_be_done_says_why_and_what_to_do(on, done, message):
    with pytest.raises(UserError) as caught:
        pipeline_editor.change(on, on.base, done)
    assert message in caught.value.what and caught.value.fix


def test_options_limits_and_repeats_are_kept_only_where_they_are_set(on):
    draft = do(
        on, on.base, do="option", label="choose_layouts", option="channels_last", text="false"
    )
    draft = do(on, draft, do="limit", label="fuse_elementwise", text="2")
    draft = do(on, draft, do="repeat", label="canonicalise#2", on=True)
    assert draft["edit"]["options"] == {"choose_layouts": {"channels_last": "False"}}
    assert (draft["edit"]["limits"], draft["edit"]["repeat"]) == (
        {"fuse_elementwise": 2},
        ["canonicalise#2"],
    )
    shown = row(on, draft, "choose_layouts")["options"][0]
    assert (shown["text"], shown["default"], shown["set"]) == ("False", "True", True)
    for label in ("choose_layouts", "fuse_elementwise", "canonicalise#2"):
        draft = do(on, draft, do="remove", label=label)
    assert draft == on.base


def test_a_pass_of_ones_own_is_inserted_written_moved_and_removed(on):
    draft = do(on, on.base, do="insert", label="recompose")
    assert running(on, draft)[8] == "own_pass"
    assert row(on, draft, "own_pass")["options"][0]["name"] == "kind"
    draft = do(on, draft, do="move", label="own_pass", before="schedule_kernels")
    draft = do(on, draft, do="code", label="own_pass", code=CODE)
    assert draft["edit"]["insert"] == [{"place": "after:bufferize", "code": CODE}]
    shown = row(on, draft, "watch")
    assert (shown["summary"], shown["problem"], shown["own"]) == ("Changes nothing.", "", True)
    draft = do(on, draft, do="option", label="watch", option="times", text="5")
    assert draft["edit"]["insert"][0]["options"] == {"times": "5"}
    draft = do(on, draft, do="skip", label="watch", on=True)
    assert "watch" not in running(on, draft)
    assert do(on, draft, do="remove", label="watch") == on.base


def test_a_pass_whose_needs_can_be_read_is_refused_where_they_do_not_hold(on):
    draft = do(on, on.base, do="insert", label="recompose")
    with pytest.raises(UserError, match="watch requires buffers"):
        do(on, draft, do="code", label="own_pass", code=CODE.replace("implementation", "meaning"))


def test_text_that_is_wrong_stays_and_says_its_line(on):
    draft = do(on, on.base, do="insert", label="recompose")
    draft = do(on, draft, do="code", label="own_pass", code="class Watch(Pass):\n    def run(:\n")
    shown = row(on, draft, "own_pass")
    assert shown["problem"].startswith("line 2: ") and shown["code"].startswith("class Watch")


def test_the_compile_may_begin_later_and_what_stands_before_stays(on):
    draft = do(on, on.base, do="skip", label="canonicalise", on=True)
    draft = do(on, draft, do="skip", label="fuse_epilogues", on=True)
    draft = do(on, draft, do="start", label="choose_layouts")
    assert draft["edit"]["skip"] == ["fuse_epilogues"]  # the earlier one is as it was
    rows = pipeline_editor.shown(on, draft, META)["rows"]
    assert next(r["label"] for r in rows if not r["locked"]) == "choose_layouts"
    for done in (
        {"do": "skip", "label": "recompose", "on": True},
        {"do": "move", "label": "fuse_reductions", "before": "lower_composites"},
        {"do": "move", "label": "choose_layouts", "by": 1},
        {"do": "insert", "label": "eliminate_dead_code#3"},
    ):
        with pytest.raises(UserError, match="passes before choose_layouts cannot change"):
            pipeline_editor.change(on, draft, done)
    assert "own_pass" in running(on, do(on, draft, do="insert", label="choose_layouts"))
    early = do(on, on.base, do="insert", label="recompose")
    with pytest.raises(UserError, match="own_pass is inserted before choose_layouts; move it"):
        do(on, early, do="start", label="choose_layouts")
    assert do(on, draft, do="start", label="")["start"] == ""


def test_all_edits_are_undone(on):
    draft = do(on, on.base, do="skip", label="canonicalise", on=True)
    draft = do(on, draft, do="set", execute=False)
    undone = do(on, draft, do="undo")
    assert undone == {**on.base, "execute": False}
    made = pipeline_editor.make_basis({**META, "edit": {"skip": ["recompose"]}}, True)
    assert do(made, made.base, do="undo", plain=True)["edit"]["skip"] == []
    assert do(made, made.base, do="undo")["edit"]["skip"] == ["recompose"]


def gesture(kind: str, **parts):
    parts = {name: st.sampled_from(values) for name, values in parts.items()}
    label = st.sampled_from(PLAIN)
    return st.fixed_dictionaries({"do": st.just(kind), "label": label, **parts})


GESTURES = st.one_of(
    gesture("skip", on=[True, False]),
    gesture("repeat", on=[True, False]),
    gesture("move", by=[-1, 1]),
    gesture("move", before=["", *PLAIN]),
    gesture("limit", text=["", "0", "7"]),
    gesture("insert"),
    gesture("start"),
    gesture("cut", text=["", "1", "2, 3x1", "1,1,5"]),
    st.just({"do": "start", "label": ""}),
    st.just({"do": "option", "label": "fold_constants", "option": "growth", "text": "2"}),
    st.just({"do": "target", "option": "tiles", "text": "small"}),
)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(st.lists(GESTURES, max_size=8))
def test_whatever_is_done_the_rows_are_the_pipeline_that_runs(gestures):
    on = pipeline_editor.make_basis(META, True)
    draft = on.base
    for done in gestures:
        with suppress(UserError):
            draft = pipeline_editor.change(on, draft, done)
    rows = on.rows(draft)
    assert [r.label for r in rows if not r.skipped] == [
        n for n in running(on, draft) if "+" not in n
    ]
    assert on.edit(rows, draft) == draft["edit"]  # nothing is lost on the way to rows and back
    assert pipeline_editor.clean(json.loads(json.dumps(draft)), on.base) == draft
    assert_texts_say_the_edit(on, draft)


def test_an_edit_told_by_positions_and_names_is_the_same_edit_told_by_labels():
    told = {
        "insert": [
            {"place": 3, "code": CODE.replace("implementation", "meaning").replace('"buffers"', "")}
        ],
        "options": {"watch": {"times": "4"}},
    }
    on = pipeline_editor.make_basis({**META, "edit": told}, True)
    (item,) = on.base["edit"]["insert"]
    assert (item["place"], item["options"]) == ("after:fold_constants", {"times": "4"})
    draft = do(on, on.base, do="skip", label="recompose", on=True)
    assert pipeline_editor.shown(on, draft, META)["edited"]
    draft = do(on, draft, do="skip", label="recompose", on=False)
    assert draft == on.base and not pipeline_editor.shown(on, draft, META)["edited"]


# -- as text ---------------------------------------------------------------------------------------


def assert_texts_say_the_edit(on, draft):
    """The command and the Python make the very pipeline (with stand-ins for inserted passes)."""
    wanted = edits.from_json(draft["edit"], user_pass.stand_in)
    shown = pipeline_editor.shown(on, draft, META)
    assert steps_of(parsed(shown["command"])) == steps_of(wanted)
    assert steps_of(executed(shown["python"])) == steps_of(wanted)


def steps_of(edit: PipelineEdit) -> list[tuple]:
    steps = build(CPU(), {}, edit)
    return [(s.label, s.pass_.options(), s.limit) for s in steps]


def parsed(command: str) -> PipelineEdit:
    parser = argparse.ArgumentParser()
    common.add_model(parser)
    common.add_compile(parser)
    for flag in ("--check", "--execute"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-o")
    words = shlex.split(command.replace("\\\n", ""))
    assert words[:2] == ["workbench", "compile"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "workbench.model.user_code.load_pass",
            lambda text: user_pass.load({"code": user_pass.TEMPLATE}),
        )
        return common.options(parser.parse_args(words[2:])).edit


def executed(text: str) -> PipelineEdit:
    own = user_pass.load({"code": user_pass.TEMPLATE})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "own_pass", sys.modules[type(own).__module__])
        scope: dict = {"model": None, "inputs": None}
        exec(
            text.replace("made = cc.compile", "made = dict").replace(
                "dict(model, inputs, ", "dict("
            ),
            scope,
        )
    return scope["edit"]


def test_the_command_names_the_model_and_how_to_compile_it(on):
    draft = do(on, on.base, do="set", timeout="2.5")
    shown = pipeline_editor.shown(on, draft, META)["command"].replace(" \\\n ", "")
    assert shown == (
        "workbench compile digits-cnn --frontend onnx --width 0.25 --size image=12 "
        "--pass-timeout 2.5 --check --execute -o edited.run"
    )


def test_an_edit_is_said_in_words(on):
    draft = do(on, on.base, do="skip", label="recompose", on=True)
    draft = do(on, draft, do="limit", label="fuse_elementwise", text="1")
    draft = do(on, draft, do="target", option="tiles", text="small")
    words = pipeline_editor.shown(on, draft, META)["words"]
    assert words == "skip recompose; fuse_elementwise stops after 1 rewrite; tiles = small"


# -- plain data ------------------------------------------------------------------------------------


def test_an_edit_survives_the_recording():
    own = user_pass.load({"code": CODE, "options": {"times": "3"}})
    edit = PipelineEdit(
        ("recompose",),
        {"fold_constants": {"growth": "2"}},
        {"canonicalise": 3},
        (("after:bufferize", own),),
        ("simplify_shapes", "canonicalise"),
        ("decompose",),
    )
    again = edits.from_json(json.loads(json.dumps(edit_facts(edit))))
    assert steps_of(again) == steps_of(edit)
    assert again.insert[0][1].run(1, None) == 1
    without = edit_facts(edit, with_text=False)["insert"][0]
    assert "code" not in without and without["pass"] == "watch{times=3}"


@pytest.mark.parametrize(
    "data",
    [
        {"skip": "recompose"},
        {"skip": [["recompose"]]},
        {"limits": {"recompose": "x"}},
        {"limits": [1]},
        {"options": {"recompose": 3}},
        {"insert": [7]},
        {"order": ["x" * 1000]},
        {"skip": ["x"] * 1000},
    ],
)
def test_data_that_make_no_sense_are_refused(data):
    with pytest.raises(UserError):
        edits.checked(data)


KEYS = ("skip", "limits", "options", "insert", "order", "place", "code", "class")
NAMES = st.sampled_from(KEYS) | st.text(max_size=4)
DATA = st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
)


@given(DATA)
def test_any_data_are_an_edit_or_refused(data):
    try:
        clean = edits.checked(data)
    except UserError:
        return
    assert edits.checked(clean) == clean
    edits.words(clean, {})


# -- passes as text --------------------------------------------------------------------------------


def test_a_text_is_read_without_running_it():
    found = user_pass.outline("import sys\nsys.exit('ran')\n" + CODE)
    assert (found.name, found.summary, found.options) == (
        "Watch",
        "Changes nothing.",
        (("times", 2),),
    )
    assert found.facts == {"half": "implementation", "requires": frozenset({"buffers"})}


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("def f(:\n", "line 1: "),
        ("x = 1\n", "no class derives from Pass"),
        (
            CODE + CODE.replace("Watch", "Other"),
            "2 classes derive from Pass (Watch, Other): keep one",
        ),
        ("\0", "null bytes"),
    ],
)
def test_what_is_wrong_with_a_text_is_said(code, problem):
    assert problem in user_pass.outline(code).problem
    with pytest.raises(UserError):
        user_pass.load({"code": code})


@given(st.text(max_size=200))
def test_any_text_can_be_read(text):
    user_pass.outline(text)
    assert isinstance(user_pass.stand_in({"code": text}), Pass)


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("import nothing_of_this_name\n" + CODE, "watch.py:1"),
        (CODE.replace("2\n", "2\n    oops: int\n"), "fix it"),
        (CODE + "\nraise RuntimeError('late')\n", "RuntimeError at watch.py:15: late"),
        (CODE + "\nraise SystemExit\n", "SystemExit at watch.py:15"),
    ],
)
def test_a_text_that_raises_names_its_line(code, place):
    with pytest.raises(UserError) as caught:
        user_pass.load({"code": code})
    assert place in str(caught.value)


def test_the_template_is_a_pass_that_works():
    from tests.passes import specs
    from tests.passes.programs import program

    made = user_pass.load({"code": user_pass.TEMPLATE})
    before = program(lambda b, x: b.relu(b.relu(b.neg(x))), "4xf32")
    after, rewrites = specs.apply(made, before)
    assert specs.rules_fired(rewrites) == ["core.relu of core.relu"]
    specs.assert_same_program(after, program(lambda b, x: b.relu(b.neg(x)), "4xf32"))


# -- passes of ours that stand in no pipeline ------------------------------------------------------


def test_ours_that_need_a_backward_pass_are_offered_for_training_steps():
    on = pipeline_editor.EditBasis(
        CPU(), pipeline_editor.make_basis(META, True).base, training=Training()
    )
    shown = pipeline_editor.shown(on, on.base, META)["optional"]
    assert [each["name"] for each in shown][-2:] == ["rematerialise", "recompute"]


def test_one_of_ours_is_inserted_by_name_with_its_own_options(on):
    shown = pipeline_editor.shown(on, on.base, META)
    assert [each["name"] for each in shown["optional"]] == [
        "saturate",
        "round_correctly",
        "widen_sums",
        "widen_floats",
        "hide_scores",
        "equalise_layers",
        "smooth_activations",
        "observe",
        "measure_sensitivity",
        "insert_quantization",
        "correct_bias",
        "integerize",
        "rematerialise",
    ]
    draft = do(on, on.base, do="insert", label="simplify_shapes", **{"pass": "saturate"})
    draft = do(on, draft, do="option", label="saturate", option="nodes", text="500")
    assert draft["edit"]["insert"] == [
        {"place": "after:simplify_shapes", "source": "saturate", "options": {"nodes": "500"}}
    ]
    told = row(on, draft, "saturate")
    assert told["ours"] and told["own"] and not told["problem"] and told["exact"]
    assert {o["name"]: o["text"] for o in told["options"]}["nodes"] == "500"
    draft = do(on, draft, do="option", label="saturate", option="rules", text="tolerant")
    assert not row(on, draft, "saturate")["exact"]
    assert do(on, draft, do="remove", label="saturate") == on.base
    with pytest.raises(UserError, match="unknown pass 'sat'"):
        do(on, on.base, do="insert", label="simplify_shapes", **{"pass": "sat"})


def test_one_of_ours_as_text_and_back(on):
    draft = do(on, on.base, do="insert", label="simplify_shapes", **{"pass": "saturate"})
    draft = do(on, draft, do="option", label="saturate", option="nodes", text="500")
    shown = pipeline_editor.shown(on, draft, META)
    assert "--insert saturate@after:simplify_shapes" in shown["command"]
    assert "--set saturate.nodes=500" in shown["command"]
    assert "from core_compiler.passes.saturation import Saturate\n" in shown["python"]
    edit = edits.from_json(draft["edit"])
    ((_, pass_),) = edit.insert
    assert pass_.to_text() == "saturate{nodes=500}"
    assert edit_facts(edit)["insert"] == [
        {
            "place": "after:simplify_shapes",
            "pass": "saturate{nodes=500}",
            "source": "saturate",
            "options": {"nodes": "500"},
        }
    ]


def test_a_name_that_is_nearly_one_of_ours_is_corrected():
    with pytest.raises(UserError, match="did you mean saturate"):
        common._own_pass("saturat@before:decompose")
    assert common._own_pass("saturate@before:decompose")[0] == "before:decompose"
