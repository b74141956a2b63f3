"""The pipeline view: against the recording, what the worker says of bad passes, and as a person
uses it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from core_compiler.pipelines.pipeline import build
from core_compiler.record.reader import Recording
from core_compiler.support.errors import UserError
from core_compiler.targets.cpu import CPU
from workbench.app import rerun, worker
from workbench.app.workspace import UntrustedCode, Workspace
from workbench.model import user_pass
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import Empty, pipeline

VIEW = "#cw-view-pipeline "
MINUS = "\N{MINUS SIGN}"
LABELS = [step.label for step in build(CPU(), {})]
#: What a pass may do wrong.
FOREVER = "\n        while True: pass"
HALVED = "return module.with_main(module.main.body.with_(ops=module.main.body.ops[:2]))"


def text(name: str, body: str) -> str:
    """A pass of a person's own: ``body`` is what its ``run`` does."""
    return (
        "from dataclasses import dataclass\n"
        "from core_compiler.passes.base import Pass\n\n\n"
        "@dataclass(frozen=True)\n"
        f"class {name}(Pass):\n"
        "    def run(self, module, context):\n"
        f"        {body}\n"
    )


def inserted(code: str, place: str = "after:recompose") -> dict:
    return {"insert": [{"place": place, "code": code}]}


@pytest.fixture(scope="module")
def run(recording):
    made = Run(recording)
    yield made
    made.close()


def compiled(path: Path, **more) -> Path:
    """What the worker records for a job of the small model."""
    pytest.importorskip("torch", reason="the sample models need torch")
    worker._run({"model": "digits-cnn", "sizes": {"width": 0.25}, "out": str(path), **more})
    return path


# -- the data --------------------------------------------------------------------------------------


def test_the_rows_are_the_recorded_stages_with_what_they_did(run, recording):
    made = pipeline.data((run,), ViewState())
    assert [row["label"] for row in made["shown"]["rows"]] == LABELS == list(made["did"])
    with Recording.open(recording) as file:
        counted = dict(file.query("SELECT stage, count(*) FROM rewrite GROUP BY stage").rows)
        seconds = dict(file.query("SELECT id, seconds FROM stage").rows)
    for did in made["did"].values():
        assert did["rewrites"] == counted.get(did["stage"], 0)
        assert did["seconds"] == seconds[did["stage"]]
    steps = {step.label: step.pass_ for step in build(CPU(), {})}
    for row in made["shown"]["rows"]:
        pass_ = steps[row["label"]]
        assert (row["summary"], row["mandatory"]) == (pass_.summary(), pass_.mandatory)
        assert {o["name"]: o["text"] for o in row["options"]} == {
            name: str(value) for name, value in pass_.options().items()
        }
    assert (made["made_with"], made["fixed"], made["shown"]["edited"]) == ("", "", False)
    json.dumps(made, allow_nan=False)


def test_what_a_recording_was_made_with_is_the_draft_to_go_on_with(tmp_path, run):
    edit = {
        "skip": ["recompose"],
        "limits": {"eliminate_dead_code#2": 5},
        "insert": [{"place": "before:decompose", "code": user_pass.TEMPLATE}],
    }
    path = compiled(tmp_path / "edited.run", edit=edit, target_options={"tiles": "default"})
    other = Run(path)
    made = pipeline.data((other, run), ViewState())
    assert made["made_with"] == (
        "skip recompose; eliminate_dead_code#2 stops after 5 rewrites; own_pass inserted before "
        "decompose; tiles = default"
    )
    rows = {row["label"]: row for row in made["shown"]["rows"]}
    assert rows["recompose"]["skipped"] and "recompose" not in made["did"]
    assert rows["own_pass"]["code"] == user_pass.TEMPLATE and "own_pass" in made["did"]
    assert made["did"]["eliminate_dead_code#2"]["rewrites"] == 5
    assert made["other"]["did"] == pipeline.did(run) and "recompose" in made["other"]["did"]
    asked = {
        "draft": made["shown"]["draft"],
        "done": {"do": "skip", "label": "own_pass", "on": True},
    }
    answer = pipeline.answer((other,), ViewState(), asked)
    assert answer["draft"]["edit"]["skip"] == ["own_pass", "recompose"] and answer["edited"]
    other.close()


def test_a_refused_gesture_leaves_the_draft(run):
    draft = pipeline.data((run,), ViewState())["shown"]["draft"]
    asked = {"draft": draft, "done": {"do": "skip", "label": "bufferize", "on": True}}
    answer = pipeline.answer((run,), ViewState(), asked)
    assert answer["refused"]["what"] == "mandatory pass bufferize cannot be skipped"
    assert answer["draft"] == draft
    for nonsense in (None, 7, {"edit": 7}, {"edit": {"skip": ["x" * 400]}}, {"timeout": "x"}):
        json.dumps(
            pipeline.answer((run,), ViewState(), {"draft": nonsense, "done": {"do": "show"}})
        )


def test_a_recording_for_a_target_that_is_not_here_shows_what_it_has(tmp_path, recording):
    import sqlite3

    path = tmp_path / "foreign.run"
    shutil.copy(recording, path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '\"abacus\"' WHERE key = 'target'")
    foreign = Run(path)
    made = pipeline.data((foreign,), ViewState())
    assert "abacus" in made["fixed"] and [r["label"] for r in made["shown"]["rows"]] == LABELS
    assert all(row["locked"] for row in made["shown"]["rows"])
    foreign.close()


def test_a_recording_without_stages_says_what_to_do(tmp_path):
    from core_compiler.record.recorder import Recorder

    recorder = Recorder(tmp_path / "new.run")
    recorder.begin({"model": "x", "target": "cpu"})
    empty = Run(tmp_path / "new.run")
    with pytest.raises(Empty, match="being imported"):
        pipeline.data((empty,), ViewState())
    recorder.end("cancelled")
    empty.refresh()
    with pytest.raises(Empty, match="Press Compile, or: workbench compile "):
        pipeline.data((empty,), ViewState())
    empty.close()


# -- who may run what ------------------------------------------------------------------------------


def test_on_a_public_address_a_pass_of_ones_own_needs_allow_code(tmp_path):
    draft = {"edit": inserted(user_pass.TEMPLATE)}
    public = Workspace(local=False, root=tmp_path)
    with pytest.raises(UserError, match="own is disabled on this address; start the server with"):
        public.job("digits-cnn", draft)
    assert public.job("digits-cnn", {"edit": {"skip": ["recompose"]}})["edit"]["skip"]
    ours = {"insert": [{"place": "after:recompose", "source": "saturate"}]}
    assert public.job("digits-cnn", {"edit": ours})["edit"]["insert"]
    allowed = Workspace(local=False, allow_code=True, root=tmp_path)
    assert allowed.job("digits-cnn", draft)["edit"]["insert"]


def test_the_code_that_a_recording_from_elsewhere_brings_runs_only_once_it_is_trusted(tmp_path):
    code = text("Mine", "return module")
    there = Run(compiled(tmp_path / "sent.run", edit=inserted(code)))
    workspace = Workspace(root=tmp_path / "cache")
    draft = pipeline.data((there,), ViewState())["shown"]["draft"]
    with pytest.raises(UntrustedCode, match="contains custom pass code"):
        rerun.job(workspace, there, {"draft": draft})
    assert rerun.job(workspace, there, {"draft": draft, "trust": True})["edit"]["insert"]
    without = pipeline.answer(
        (there,), ViewState(), {"draft": draft, "done": {"do": "undo", "plain": True}}
    )
    assert not rerun.job(workspace, there, {"draft": without["draft"]})["edit"]["insert"]
    there.close()


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            text("Boom", "raise ValueError('no such thing')"),
            "pass boom: the pass raised ValueError at boom.py:8: no such thing",
        ),
        (
            text("Leaves", "raise SystemExit"),
            "pass leaves: the pass raised SystemExit at leaves.py:8",
        ),
        (
            text("Nothing", "return None"),
            "nothing: pass nothing returned NoneType, expected a module",
        ),
        (text("Loop", FOREVER), "pass loop: the pass did not finish in 0.5 s"),
        (text("Halves", HALVED), "pass halves: the module after halves is invalid"),
    ],
)
def test_a_pass_that_goes_wrong_is_named_and_the_stages_before_it_are_kept(tmp_path, code, message):
    path = tmp_path / "bad.run"
    with pytest.raises(UserError) as caught:
        compiled(path, edit=inserted(code), pass_timeout=0.5)
    assert message in str(caught.value)
    with Recording.open(path) as file:
        names = [stage.pass_name for stage in file.stages()]
        assert names[:8] == ["import", *LABELS[:7]] and file.status == "failed"
        assert message in file.meta()["message"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (inserted("def f(:\n"), "own_pass.py:1: "),
        (inserted("raise KeyError\n" + text("Late", "return module")), "KeyError at late.py:1"),
        (inserted(text("Mine", "return module"), "after:nothing"), "unknown pass 'nothing'"),
        ({"insert": [{"place": "after:recompose", "source": "nowhere.py:Mine"}]}, "file not found"),
        ({"options": {"fold_constants": {"groth": "2"}}}, "unknown option 'groth'"),
        ({"skip": ["bufferize"]}, "mandatory pass bufferize cannot be skipped"),
        ({"skip": 7}, "invalid value for skip"),
    ],
)
def test_what_is_wrong_with_an_edit_is_said_before_anything_is_recorded(tmp_path, edit, message):
    path = tmp_path / "never.run"
    with pytest.raises(UserError) as caught:
        compiled(path, edit=edit)
    assert message in str(caught.value) and not path.exists()


# -- as a person uses it ---------------------------------------------------------------------------


@pytest.fixture
def opened(server, recording, tab):
    """The view of a copy of the recording in the library; compiles neither check nor execute."""
    path = server.root / "recordings" / "digits-cnn.run"
    path.parent.mkdir(exist_ok=True)
    shutil.copy(recording, path)
    made = tab(f"{server.url}?run={quote(path.name)}&panes=pipeline")
    made.wait(VIEW + ".row")
    for name in ("check", "execute"):
        made.locate(f"{VIEW}input[name={name}]").click()
        made.wait(f"{VIEW}input[name={name}]:not(:checked)")
    return made


def labels(tab) -> list[str]:
    return tab.page.eval_on_selector_all(VIEW + ".row", "rows => rows.map(r => r.dataset.label)")


def row(label: str) -> str:
    return f'{VIEW}.row[data-label="{label}"]'


def ran(tab) -> None:
    """Wait until the new recording is shown beside the old one."""
    tab.wait_query("other", "digits-cnn.run")
    tab.wait(VIEW + ".list.two")


HEADS = """([heads, rows]) => {
    const right = (cell) => cell.getBoundingClientRect().right;
    const last = [...heads.children].slice(-rows[0].children.length);
    const apart = (row) => (head, i) => [head.innerText, right(head) - right(row.children[i])];
    return rows.map((row) => last.map(apart(row)));
}"""


@pytest.mark.slow
def test_every_head_stands_over_its_figures(opened, server, tmp_path):
    """In a list of one recording and in one of two."""
    other = compiled(tmp_path / "skips.run", edit={"skip": ["recompose"]})
    shutil.copy(other, server.root / "recordings" / "skips.run")
    for query in ("", "&other=skips.run"):
        opened.open(f"{server.url}?run=digits-cnn.run&panes=pipeline{query}")
        opened.wait(VIEW + (".list.two" if query else ".list:not(.two)"))
        opened.wait(VIEW + ".row")
        heads = opened.locate(VIEW + ".heads").element_handle()
        rows = opened.page.query_selector_all(VIEW + ".row")
        for row_ in opened.page.evaluate(HEADS, [heads, rows]):
            named = [(name, by) for name, by in row_ if name]
            assert len(named) == (10 if query else 5)
            assert all(abs(by) < 0.5 for _, by in named), named


@pytest.mark.slow
def test_of_two_each_pass_has_ops_rewrites_time_and_check_of_both(opened, server, tmp_path):
    other = compiled(tmp_path / "both.run", edit={"skip": ["recompose"]}, check=True)
    shutil.copy(other, server.root / "recordings" / "both.run")
    opened.open(f"{server.url}?run=digits-cnn.run&other=both.run&panes=pipeline")
    opened.wait(VIEW + ".list.two")
    a, b = Run(server.root / "recordings" / "digits-cnn.run"), Run(other)
    did, there = pipeline.did(a), pipeline.did(b)
    for label in ("recompose", "fuse_elementwise", "bufferize"):
        cells = [c.inner_text() for c in opened.locate(row(label) + " > span").all()][4:]
        ops_a, ops_b, rewrites_a, rewrites_b, _, time_b, by, check_a, check_b = cells
        assert (bool(time_b), bool(by)) == (label in there, True)
        for each, ops, rewrites, check in (
            (did[label], ops_a, rewrites_a, check_a),
            (there.get(label), ops_b, rewrites_b, check_b),
        ):
            change = each["change"] if each else 0
            assert ops == (f"{'+' if change > 0 else MINUS}{abs(change)}" if change else "")
            assert rewrites == (str(each["rewrites"]) if each and each["rewrites"] else "")
            assert bool(check) == bool(each and each["check"])
        longer = (there[label]["seconds"] if label in there else 0) - did[label]["seconds"]
        assert by.startswith("+" if longer > 0 else MINUS) and by.endswith("s")
    opened.locate(row("recompose")).click()
    opened.wait(VIEW + ".side >> text=not in both.run")
    a.close()
    b.close()


@pytest.mark.slow
def test_a_pass_is_skipped_and_the_new_recording_is_compared_with_the_old(opened, server):
    opened.locate(row("recompose") + " .check").click()
    opened.wait(row("recompose") + ".skipped")
    assert "skip recompose" in opened.text(VIEW + ".told")
    opened.locate(VIEW + "[data-do=run]").click()
    ran(opened)
    name = opened.query("run")
    assert name != "digits-cnn.run"
    with Recording.open(server.root / "recordings" / name) as file:
        names = [stage.pass_name for stage in file.stages()]
        assert file.meta()["edit"]["skip"] == ["recompose"]
    assert names == ["import", *(n for n in LABELS if n != "recompose")]
    opened.wait("#cw-rail .pass.on")
    assert "This recording was made with: skip recompose" in opened.text(VIEW + ".told")
    assert not opened.errors
    opened.page.go_back()
    opened.wait_query("run", "digits-cnn.run")


@pytest.mark.slow
def test_a_pass_is_moved_with_the_keyboard_or_told_why_not(opened):
    opened.locate(row("fold_constants")).click()
    opened.locate(VIEW + ".list").focus()
    opened.press("Alt+ArrowUp")
    opened.wait(VIEW + ".told.edited")
    assert labels(opened)[:3] == ["eliminate_dead_code", "fold_constants", "canonicalise"]
    opened.locate(VIEW + "summary").click()
    assert "--order fold_constants,canonicalise" in opened.text(VIEW + "pre")
    opened.press("Alt+ArrowUp")
    opened.locate(VIEW + ".list").focus()
    opened.press("Control+z")
    opened.press("Control+z")
    opened.wait(VIEW + ".told:not(.edited)")
    assert labels(opened) == LABELS
    opened.locate(row("lower_control_flow")).click()
    opened.locate(VIEW + ".list").focus()
    opened.press("Alt+ArrowUp")
    opened.wait(VIEW + ".note:not([hidden])")
    assert "belongs to the implementation half" in opened.text(VIEW + ".note")
    opened.press("ArrowDown")
    opened.wait(row("lower_composites") + ".on")
    opened.locate(row("canonicalise")).drag_to(opened.locate(row("eliminate_dead_code")))
    opened.wait(VIEW + ".told.edited")
    assert labels(opened)[:2] == ["canonicalise", "eliminate_dead_code"]


@pytest.mark.slow
def test_an_option_is_edited_in_place_and_a_wrong_one_is_refused(opened):
    opened.locate(row("fold_constants")).click()
    field = opened.locate(VIEW + "[data-option=growth]")
    field.fill("much")
    field.press("Enter")
    opened.wait(VIEW + ".note:not([hidden])")
    assert "expected float, got 'much'" in opened.text(VIEW + ".note")
    opened.locate(VIEW + "[data-option=growth]").fill("2")
    opened.locate(VIEW + "[data-option=growth]").press("Enter")
    opened.wait(row("fold_constants") + " .tag")
    opened.wait(VIEW + ".note[hidden]", state="attached")
    assert "fold_constants#1.growth = 2.0" in opened.text(VIEW + ".told")
    inside = "() => document.activeElement.shadowRoot?.activeElement?.dataset.option"
    assert opened.page.evaluate(inside) == "growth"  # the focus stays where it was
    opened.locate(VIEW + "[data-option=limit]").fill("0")
    opened.locate(VIEW + "[data-option=limit]").press("Enter")
    opened.wait(row("fold_constants") + " .tag >> text=≤ 0")
    opened.locate(VIEW + "[data-do=undo]").click()
    opened.wait(VIEW + ".told:not(.edited)")


@pytest.mark.slow
def test_a_failing_pass_of_ones_own_tells_its_line_and_is_mended(opened, server):
    opened.locate(row("recompose")).click()
    opened.locate(VIEW + "[data-do=insert]").click()
    area = opened.locate(VIEW + "textarea")
    area.fill("class Mine(Pass:\n    pass\n")
    opened.wait(VIEW + ".tag.bad")
    assert "line 1" in opened.text(VIEW + ".problem")
    assert opened.locate(VIEW + "[data-do=run]").is_disabled()
    area.fill(text("Mine", "raise ValueError('not yet')"))
    opened.wait(row("mine"))
    opened.locate(VIEW + "[data-do=run]").click()
    opened.wait(VIEW + "[data-do=kept]")
    note = " ".join(opened.text(VIEW + ".note").split())
    assert "pass mine: the pass raised ValueError at mine.py:8: not yet" in note
    assert "Open the 9 finished stages" in note
    opened.wait(row("mine") + ".bad.on")
    assert opened.query("run") == "digits-cnn.run"  # nothing is lost
    opened.locate(VIEW + "[data-do=line]").click()
    picked = "a => a.value.slice(a.selectionStart, a.selectionEnd)"
    assert area.evaluate(picked) == "        raise ValueError('not yet')"
    area.fill(text("Mine", "return module"))
    opened.wait(row("mine") + ":not(.bad)")
    opened.locate(VIEW + "[data-do=run]").click()
    ran(opened)
    with Recording.open(server.root / "recordings" / opened.query("run")) as file:
        assert [stage.pass_name for stage in file.stages()][8:10] == ["recompose", "mine"]
    assert opened.locate(VIEW + ".row").count() == len(LABELS) + 1


@pytest.mark.slow
def test_an_inserted_pass_that_gives_no_valid_module_is_named_and_the_run_stays(opened):
    opened.locate(row("recompose")).click()
    opened.locate(VIEW + "[data-do=insert]").click()
    opened.locate(VIEW + "textarea").fill(text("Halves", HALVED))
    opened.wait(row("halves"))
    opened.locate(VIEW + "[data-do=run]").click()
    opened.wait(VIEW + "[data-do=kept]")
    note = " ".join(opened.text(VIEW + ".note").split())
    assert "pass halves: the module after halves is invalid" in note
    opened.wait(row("halves") + ".bad.on")
    assert opened.query("run") == "digits-cnn.run"
    opened.press("1")
    opened.drawn("graph")
    opened.drawn("diff")


@pytest.mark.slow
def test_a_compile_begins_at_a_pass_with_the_stages_that_are_there(opened, server, run):
    opened.locate(row("choose_layouts")).click()
    opened.locate(VIEW + "[data-do=start]").click()
    opened.wait(VIEW + "[data-do=start]:disabled")
    opened.locate(VIEW + "[data-do=run]").click()
    ran(opened)
    name = opened.query("run")
    assert name != "digits-cnn.run"
    before, kept = [s.pass_name for s in run.stages()], run.stages()
    begin = before.index("choose_layouts")
    with Recording.open(server.root / "recordings" / name) as file:
        assert [stage.pass_name for stage in file.stages()] == before
        assert file.status == "finished"
        for stage, old in zip(file.stages()[:begin], kept, strict=False):
            assert (stage.ops, stage.changed) == (old.ops, old.changed), stage.pass_name
            assert str(file.module(stage.index)) == str(run.recording.module(stage.index))
    opened.wait("#cw-rail .pass.on")
    opened.press("1")
    opened.drawn("graph")
    assert not opened.errors


@pytest.mark.slow
def test_one_of_our_optional_passes_is_inserted_without_code(opened, server):
    pytest.importorskip("egglog", reason="egglog is not installed (extra: egglog)")
    opened.locate(row("simplify_shapes")).click()
    opened.locate(VIEW + "[data-do=insert-ours]").select_option("saturate")
    opened.wait(row("saturate") + " .tag >> text=inserted")
    assert opened.locate(VIEW + "textarea").count() == 0
    opened.locate(VIEW + "[data-option=nodes]").fill("500")
    opened.locate(VIEW + "[data-option=nodes]").press("Enter")
    opened.wait(row("saturate") + " .tag >> text=nodes")
    opened.locate(VIEW + "[data-do=run]").click()
    ran(opened)
    with Recording.open(server.root / "recordings" / opened.query("run")) as file:
        names = [stage.pass_name for stage in file.stages()]
        assert names[names.index("saturate") - 1] == "simplify_shapes"
        assert any("nothing more to find" in str(d) for d in file.diagnostics())


@pytest.mark.slow
def test_a_pass_that_never_ends_is_cancelled_and_what_was_done_is_kept(opened):
    opened.locate(row("recompose")).click()
    opened.locate(VIEW + "[data-do=insert]").click()
    opened.locate(VIEW + "textarea").fill(text("Loop", FOREVER))
    opened.wait(row("loop"))
    opened.locate(VIEW + "[data-do=run]").click()
    opened.wait("#cw-bar .job:not([hidden]) >> text=loop")
    opened.locate(VIEW + "[data-do=cancel]").click()
    opened.wait(VIEW + "[data-do=kept]")
    assert "cancelled" in opened.text(VIEW + ".note")
    opened.locate(VIEW + "[data-do=kept]").click()
    opened.wait("#cw-rail .pass")
    opened.page.wait_for_function("() => !location.search.includes('run=digits-cnn.run')")


@pytest.mark.slow
def test_the_rail_leads_here_and_a_draft_is_in_the_address(server, recording, tab):
    made = tab(f"{server.url}?run={quote(str(recording))}&panes=graph,diff")
    made.wait("#cw-rail .pass")
    made.locate("#cw-rail [aria-label='Edit the pipeline']").click()
    made.wait(VIEW + ".row")
    made.locate(row("recompose") + " .check").click()
    made.wait(row("recompose") + ".skipped")
    made.page.wait_for_function("() => location.search.includes('pipeline.view')")
    again = made.open(made.page.url)
    again.wait(row("recompose") + ".skipped")
    assert "skip recompose" in again.text(VIEW + ".told")
