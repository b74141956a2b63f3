"""Breakpoints: where running on through a recording stops."""

from __future__ import annotations

import shutil
import sqlite3

import pytest

from core_compiler.record.recorder import Recorder
from workbench.queries import breakpoints
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.ui import navigation


@pytest.fixture(scope="module")
def run(recording):
    made = Run(recording)
    yield made
    made.close()


def walked(run: Run, state: ViewState, by: int = 1) -> list[breakpoints.Position]:
    """Where ``r`` leads again and again."""
    found = []
    while True:
        try:
            state = navigation.step(run, state, {"what": "stop", "by": by})
        except navigation.NoTarget:
            return found
        found.append((state.stage, -1 if state.rewrite is None else state.rewrite))


def test_all_places_of_breakpoints_are_run_to_in_order_and_back(run):
    last = run.stages()[-1].index
    some = [s for s in run.stages() if s.rewrites][1:4]
    rules = {run.rewrites(s.index)[0].rewrite.rule for s in some}
    passes = {run.stages()[3].pass_name, run.stages()[last].pass_name}
    kept = (*(f"rule:{r}" for r in rules), *(f"pass:{p}" for p in passes))
    wanted = sorted(
        {
            (s.index, r.number)
            for s in run.stages()[1:]
            for r in run.rewrites(s.index)
            if r.rewrite.rule in rules
        }
        | {(s.index, -1) for s in run.stages() if s.pass_name in passes}
    )
    assert len(wanted) > 4
    assert walked(run, ViewState(stage=0, stops=kept)) == wanted
    count = run.stages()[last].rewrites
    end = ViewState(stage=last, rewrite=count, stops=kept)
    assert walked(run, end, -1) == wanted[::-1]


def test_an_op_stops_where_it_or_what_became_of_it_changes(run):
    first = next(s for s in run.stages() if s.rewrites)
    op = run.op_id(run.rewrites(first.index)[0].rewrite.old[0])
    places = walked(run, ViewState(stage=0, stops=(f"op:{op}",)))
    assert places == breakpoints.changes(run, op) and places[0] == (first.index, 0)
    followed = {op}
    for stage, number in places:
        if number >= 0:
            made = run.rewrites(stage)[number].rewrite
            touched = {run.op_id(o) for o in (*made.old, *made.new)}
            assert touched & followed, "each place has to do with the op"
            followed |= touched


def test_the_changes_of_the_selected_op_are_walked(run):
    first = next(s for s in run.stages() if s.rewrites)
    op = run.op_id(run.rewrites(first.index)[0].rewrite.old[0])
    state = navigation.step(run, ViewState(stage=0, op=op), {"what": "op", "by": 1})
    assert (state.stage, state.rewrite) == (first.index, 0)
    with pytest.raises(navigation.NoTarget, match="Select an op"):
        navigation.step(run, ViewState(stage=0), {"what": "op", "by": 1})


def test_failed_checks_are_walked_in_order_those_of_a_stage_itself_too(recording, tmp_path):
    """Kernels and planned memory are checked as a whole: no rewrite is to blame."""
    path = shutil.copy(recording, tmp_path / "failing.run")
    with sqlite3.connect(path) as database:
        some = (
            "SELECT stage, min(number), max(number) FROM rewrite GROUP BY stage HAVING count(*) > 1"
        )
        (first, one, two), *_ = database.execute(some)
        (last,) = database.execute(
            "SELECT max(stage) FROM check_result WHERE rewrite IS NULL"
        ).fetchone()
        for stage, where in ((first, f"number IN ({one}, {two})"), (last, "0")):
            database.execute(
                "UPDATE check_result SET verdict = 'failed' WHERE stage = ? AND (rewrite IN "
                f"(SELECT id FROM rewrite WHERE stage = ? AND {where}) OR rewrite IS NULL)",
                (stage, stage),
            )
    database.close()
    failing = Run(path)
    for begin in (ViewState(), ViewState(stage=0)):
        state, found = begin, []
        for _ in range(3):
            state = navigation.step(failing, state, {"what": "failing", "by": 1})
            found.append((state.stage, state.rewrite))
        assert found == [(first, one), (first, two), (last, None)]
        assert state.panes != ("overview",)
        with pytest.raises(navigation.NoTarget, match="No failed check"):
            navigation.step(failing, state, {"what": "failing", "by": 1})
    failing.close()


@pytest.mark.parametrize(
    "text", ["", "pass:", "op:x", "op:-1", "no:1", "op:" + "9" * 20, "op:999999999"]
)
def test_what_is_no_breakpoint_changes_nothing(run, text):
    kept = ViewState(stage=2, stops=("pass:a",))
    if text and text != "op:999999999":  # of another recording, perhaps
        assert not breakpoints.is_valid(text)
        assert navigation.toggle_breakpoint(run, kept, {"text": text}) == kept
    assert walked(run, ViewState(stage=0, stops=(text,))) == []


def test_a_breakpoint_set_again_is_taken_away(run):
    state = ViewState(stage=2, panes=("graph",))
    there = navigation.toggle_breakpoint(run, state, {"what": "here"})
    assert there.stops == (f"pass:{run.stages()[2].pass_name}",)
    assert navigation.toggle_breakpoint(run, there, {"what": "here"}) == state
    with pytest.raises(navigation.NoTarget, match="Select an op"):
        navigation.toggle_breakpoint(run, state, {"what": "op"})


def test_without_a_pass_there_is_nothing_to_stop_at(tmp_path):
    Recorder(tmp_path / "new.run").begin({"model": "x", "target": "cpu"})
    begun = Run(tmp_path / "new.run")
    with pytest.raises(navigation.NoTarget, match="No pass to stop at yet"):
        navigation.toggle_breakpoint(begun, ViewState(), {"what": "here"})
    begun.close()


@pytest.mark.slow
@pytest.mark.playwright
def test_a_compile_is_stepped_through_in_the_page(own_server, tab):
    pytest.importorskip("torch", reason="the sample models need torch")
    page = tab(own_server().url)
    page.locate("#cw-start input[type=number]").fill("0.25")
    page.locate("#cw-start label:has-text('step by step') input").check()
    page.locate("#cw-start .sample:has-text('digits-mlp')").click()
    page.wait("#cw-bar [data-held=apply]", timeout=300_000)  # the model is imported first
    first = page.text("#cw-bar .held b")
    page.press("a")
    page.wait(f"#cw-bar .held b:not(:text-is('{first}'))")
    second = page.text("#cw-bar .held b")
    page.locate("#cw-bar [data-held=skip]").click()
    page.wait(f"#cw-bar .held b:not(:text-is('{second}'))")
    other = tab(page.page.url)  # a second tab sees the same compile, and steps it
    other.wait("#cw-bar [data-held=apply]")
    third = other.text("#cw-bar .held b")
    assert third == page.text("#cw-bar .held b")
    other.locate("#cw-bar [data-held=apply]").click()
    for each in (other, page):
        each.wait(f"#cw-bar .held b:not(:text-is('{third}'))")
    assert other.text("#cw-bar .held b") == page.text("#cw-bar .held b")
    page.press("1")

    def stepped(key):  # while it runs no key steps it
        to_come = page.locate("#cw-bar .held").get_attribute("title")
        page.press(key)
        page.wait(f"#cw-bar .held:not([title='{to_come}'])")

    stepped("A")
    page.wait("#cw-rail .pass.on:not(.same)")
    for _ in range(10):  # rewrite by rewrite, until one is left in the middle of a pass
        stepped("e")
        if "before more of" in page.text("#cw-bar .held"):
            break
    assert "before more of" in page.text("#cw-bar .held")
    page.wait("#cw-rail .pass.on[title*='1 rewrite,']")
    assert second not in page.locate("#cw-rail .pass .name").all_inner_texts()
    page.press("F")
    page.wait("#cw-bar [data-held]", state="detached")
    page.wait("#cw-rail .pass:has-text('generate_code')", timeout=120_000)
