"""What stands beside the memory maps of two recordings: at peak, by pass, planners, backward."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

from core_compiler.record.reader import Recording
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import memory

VIEW = "#cw-view-memory"


def answers(runs: tuple[Run, Run], kind: str) -> dict:
    return memory.answer((runs[0], runs[1]), ViewState(), {"kind": kind})


# -- what is answered -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["passes", "planners", "again"])
def test_either_answers_what_it_answers_alone(both, kind):
    found = answers(both, kind)
    for side, run in zip("ab", both, strict=True):
        assert found[side] == memory.answer((run,), ViewState(), {"kind": kind})
    json.dumps(found, allow_nan=False)


def test_every_stage_of_both_is_in_one_row_with_that_of_the_same_name(both, two_targets):
    rows = answers(both, "passes")["stages"]
    names = []
    for side, path in (("a", two_targets.cpu), ("b", two_targets.cuda)):
        with Recording.open(path) as file:
            names.append({s.index: s.pass_name for s in file.stages()})
        there = {row[side]: row["name"] for row in rows if row[side] is not None}
        assert there == names[-1]
    for row in rows:
        for side, known in zip("ab", names, strict=True):
            assert (row[side] is None) == (row["name"] not in known.values())


def test_both_are_asked_and_neither_alone(both):
    data = memory.data((both[0], both[1]), ViewState())["two"]
    assert (data["asks"], data["a"]["asks"], data["b"]["asks"]) == (True, False, False)


# -- in a browser ---------------------------------------------------------------------------------


@pytest.fixture
def opened(own_server, tab):
    """The memory view of two recordings, with what the view's state has besides."""

    def open_(first, second, **state):
        server = own_server()
        folder = server.root / "recordings"
        folder.mkdir(parents=True, exist_ok=True)
        for path, name in ((first, "first.run"), (second, "second.run")):
            shutil.copy(path, folder / name)
        view = json.dumps({"ab": True, **state})
        query = f"run=first.run&other=second.run&panes=memory&memory.view={view}"
        page = tab(f"{server.url}?{query}")
        page.wait(f"{VIEW} .peaks tbody tr")
        return page

    return open_


def listed(page) -> list[dict[str, str]]:
    """The shown tab as its CSV has it, downloaded."""
    with page.page.expect_download() as got:
        page.locate(f"{VIEW} .peaks header button").click()
    with open(got.value.path(), newline="") as file:
        return list(csv.DictReader(file))


def number(text: str) -> float | None:
    return float(text) if text else None


def apart(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else b - a


@pytest.mark.slow
@pytest.mark.playwright
def test_the_tabs_have_what_either_recording_has(opened, both, two_targets):
    page = opened(two_targets.cpu, two_targets.cuda)
    titles = page.locate(f"{VIEW} .bar.of-two [data-side]:visible").all_inner_texts()
    assert titles == ["at peak", "by pass", "planners"]

    page.locate(f"{VIEW} .bar.of-two [data-side=passes]").click()
    page.wait(f"{VIEW} .peaks tr[data-pass]")
    found = answers(both, "passes")
    peaks = [{row["stage"]: row["bytes"] for row in found[side]} for side in "ab"]
    rows = listed(page)
    assert [row["pass"] for row in rows] == [row["name"] for row in found["stages"]]
    for row, wanted in zip(rows, found["stages"], strict=True):
        a, b = (peaks[i].get(wanted[side]) for i, side in enumerate("ab"))
        assert (number(row["a_peak_bytes"]), number(row["b_peak_bytes"])) == (a, b)
        assert number(row["difference_bytes"]) == apart(a, b)
    moved = [{row["pass"] for row in found[side] if row["changed"]} for side in "ab"]
    names = [row["name"] for row in found["stages"]]
    shown = page.locate(f"{VIEW} .peaks tr[data-pass]").evaluate_all(
        "rows => rows.map(row => row.dataset.pass)"
    )
    wanted = {names[0], names[-1], *moved[0], *moved[1]}
    assert shown == [name for name in names if name in wanted]
    page.locate(f"{VIEW} .peaks td[colspan] button").click()
    assert page.locate(f"{VIEW} .peaks tr[data-pass]").count() == len(names)

    page.locate(f"{VIEW} .bar.of-two [data-side=planners]").click()
    page.wait(f"{VIEW} .peaks tr[data-planner]")
    arenas = [{r["planner"]: r for r in answers(both, "planners")[side]} for side in "ab"]
    rows = {row["planner"]: row for row in listed(page)}
    assert set(rows) == {*arenas[0], *arenas[1]}
    for name, row in rows.items():
        a, b = (known[name]["bytes"] for known in arenas)
        assert (float(row["a_arena_bytes"]), float(row["b_arena_bytes"])) == (a, b)
        assert float(row["difference_bytes"]) == b - a
        assert float(row["a_bound_bytes"]) == arenas[0][name]["bound"]
        assert float(row["b_bound_bytes"]) == arenas[1][name]["bound"]
    assert "lower bound" in page.text(f"{VIEW} .peaks tbody tr")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_the_link_keeps_the_tab_and_a_pass_leads_to_its_stage_in_a(opened, both, two_targets):
    page = opened(two_targets.cpu, two_targets.cuda)
    page.locate(f"{VIEW} .bar.of-two [data-side=passes]").click()
    page.wait(f"{VIEW} .peaks tr[data-pass]")
    page.wait_query("memory.view", '"side":"passes"', partly=True)
    rows = page.locate(f"{VIEW} .peaks tr.to")
    stages = rows.evaluate_all("rows => rows.map(row => row.dataset.stage)")
    rows.nth(1).click()
    page.wait_query("stage", stages[1])
    page.locate(f"{VIEW} .peaks .list").focus()
    page.press("ArrowDown")
    page.wait(f'{VIEW} .peaks tr.on[data-stage="{stages[2]}"]')
    assert page.query("stage") == stages[1], "until Enter"
    page.press("Enter")
    page.wait_query("stage", stages[2])
    page.page.reload()
    page.wait(f"{VIEW} .peaks tr[data-pass]")
    page.locate('.cw-tabs [data-two="one"]').click()
    page.wait(f"{VIEW} .side:visible [data-stage]")  # the same tab of A alone
    page.wait_query("memory.view", '{"side":"passes"}')
    page.locate('.cw-tabs [data-two="both"]').click()
    page.wait(f"{VIEW} .peaks tr[data-pass]:visible")
    page.locate(f"{VIEW} .bar.of-two [data-side=passes]").click()
    page.wait(f"{VIEW} .peaks", state="hidden")
    page.wait_query("memory.view", '"side":""', partly=True)
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_two_training_steps_have_what_they_save(opened, trained, training_runs):
    """Whose `saved` and `held` are those of the compile that recorded them."""
    step, path = trained
    plan = step.compilation.facts["recompute"].plan
    page = opened(path, training_runs.a, side="backward")
    page.wait(f"{VIEW} .peaks tr[data-offer]")
    other = Run(training_runs.a)
    border = memory.data((other,), ViewState())["border"]
    wanted = [
        plan.saved,
        sum(b.size for b in other.buffers() if b.tier == "dram" and b.start < border < b.end),
    ]
    other.close()
    rows = listed(page)
    sums = [sum(number(row[f"{side}_bytes"]) or 0 for row in rows) for side in "ab"]
    assert sums == wanted
    for row in rows:
        sizes = [number(row[f"{side}_bytes"]) or 0 for side in "ab"]
        assert float(row["difference_bytes"]) == sizes[1] - sizes[0]
    chosen = page.locate(f"{VIEW} .peaks tr[data-offer='as compiled'] td").nth(1)
    again = f"{len(plan.again)} launch"
    assert chosen.get_attribute("title").startswith(again)
    rows = page.locate(f"{VIEW} .peaks tr.to")
    page.locate(f"{VIEW} .peaks .list").focus()
    page.press("Home")
    page.wait_query("buffer", rows.first.get_attribute("data-a"))
    for at in range(rows.count()):  # what one saves may be a result of the other: the tier stays
        page.wait(f"{VIEW} .peaks tr.to.on")
        assert rows.nth(at).get_attribute("aria-selected") == "true"
        page.press("ArrowDown")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_where_one_is_no_training_step_there_is_no_backward(opened, trained, two_targets):
    page = opened(trained[1], two_targets.cpu, side="backward")
    assert page.locate(f"{VIEW} .bar.of-two [data-side=backward]:visible").count() == 0
    page.wait(f"{VIEW} .bar.of-two [data-side=peak][aria-pressed=true]")
    page.locate('.cw-tabs [data-two="one"]').click()
    page.wait(f"{VIEW} .side:visible [data-offer]")  # what A alone has
    assert page.errors == []
