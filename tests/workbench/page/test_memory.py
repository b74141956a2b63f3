"""What sets the memory peak, how the passes moved it, and what other planners would make of it."""

from __future__ import annotations

import json
from itertools import pairwise
from urllib.parse import quote

import numpy as np
import pytest

from core_compiler.passes.find_lifetimes import live_peak, values_alive
from core_compiler.record.reader import Recording
from tests.passes.programs import program
from tests.workbench.page.tasks import a_task
from workbench.queries import memory_plans
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import memory

VIEW = "#cw-view-memory"


@pytest.fixture(scope="module")
def run(recording):
    made = Run(recording)
    yield made
    made.close()


@pytest.fixture
def opened(server, tab, recording):
    return lambda query="": tab(f"{server.url}?run={quote(str(recording))}{query}")


# -- the peak of any stage ------------------------------------------------------------------------


def alive_by_hand(body) -> int:
    """The peak of a block of the tensor level, by looking at every op at every step."""
    ops, outputs = body.ops, set(body.outputs)
    most = 0
    for at in range(len(ops)):
        total = 0
        for i, op in enumerate(ops[: at + 1]):
            if op.kind.endswith(".constant"):
                continue
            for value in op.results:
                used = [j for j, later in enumerate(ops) if value in later.operands]
                if value not in outputs and max([i, *used]) >= at:
                    total += value.type.bytes
        most = max(most, total)
    return most


def test_a_chain_keeps_two_results_alive_and_a_diamond_three():
    n = 4 * 256
    chain = program(lambda b, x: b.neg(b.exp(b.neg(b.exp(x)))), "256xf32")
    assert live_peak(values_alive(chain.main.body)) == (2 * n, 1)

    def diamond(b, x):
        y = b.exp(x)
        return b.neg(b.add(b.mul(b.neg(y), b.exp(y)), y))

    assert live_peak(values_alive(program(diamond, "256xf32").main.body))[0] == 4 * n


def test_results_weights_and_views_take_no_part():
    module = program(lambda b, x: b.reshape(b.exp(x), shape=[16, 16]), "256xf32")
    body = module.main.body
    assert live_peak(values_alive(body))[0] == 0, "the only result is the program's"
    assert [life.space for life in values_alive(body)] == ["output"]


def test_every_stage_by_hand(run):
    for row in memory.passes(run):
        body = run.recording.module(row["stage"]).main.body
        level = {op.kind.partition(".")[0] for op in body.ops}
        if "target" in level or any(
            op.kind in ("core.reshape", "core.transpose") for op in body.ops
        ):
            continue  # buffers, or views: below
        assert row["bytes"] == alive_by_hand(body), row["pass"]


def test_after_the_plan_it_is_what_the_buffers_say(run, recording):
    with Recording.open(recording) as file:
        buffers = [b for b in file.buffers() if b.kind == "temporary"]
    steps = max(b.end for b in buffers) + 1
    live = np.zeros(steps)
    for b in buffers:
        live[b.start : b.end + 1] += b.unpadded_size
    rows = memory.passes(run)
    assert rows[-1]["bytes"] == live.max()
    assert [r["stage"] for r in rows] == list(range(len(run.stages())))
    for before, row in pairwise(rows):
        assert row["changed"] == (row["bytes"] != before["bytes"])
        if not run.stages()[row["stage"]].changed:
            assert not row["changed"]


def test_no_planner_is_below_the_bound_and_one_is_the_plan(run):
    rows = memory_plans.planners(run)
    figures = run.figures("memory")
    assert all(r["bytes"] >= figures["lower_bound_bytes"] == r["bound"] for r in rows)
    (used,) = [r for r in rows if r["used"]]
    assert used["bytes"] == figures["arena_bytes"]
    assert [r["bytes"] for r in rows] == sorted(r["bytes"] for r in rows)
    json.dumps([*rows, *memory.passes(run)], allow_nan=False)


def test_of_a_very_large_model_the_last_passes_are_looked_at(run, monkeypatch):
    whole = memory.passes(run)
    monkeypatch.setattr(memory, "MAX_OPS", 2 * run.stages()[-1].ops)
    part = memory._passes(run)
    assert 0 < len(part) < len(whole)
    assert [r["bytes"] for r in part] == [r["bytes"] for r in whole[-len(part) :]]
    monkeypatch.setattr(memory, "MAX_OPS", 0)
    assert len(memory._passes(run)) == 1


def at_the_peak(run: Run) -> list:
    """Temporaries that are alive where the most bytes are, largest first."""
    buffers = [b for b in run.buffers() if b.tier == "dram"]
    load = [
        sum(b.size for b in buffers if b.start <= t <= b.end)
        for t in range(max(b.end for b in buffers) + 1)
    ]
    at = load.index(max(load))
    return sorted((b for b in buffers if b.start <= at <= b.end), key=lambda b: -b.size)


def test_each_buffer_names_what_made_it_and_its_line(run):
    columns = memory.data((run,), ViewState())["buffers"]
    found = dict(
        zip(
            columns["key"].tolist(),
            zip(columns["what"], columns["place"], strict=True),
            strict=True,
        )
    )
    for buffer in at_the_peak(run):
        what, place = found[buffer.id]
        assert what and place.rpartition(":")[2].isdigit()


# -- in a browser ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.playwright
def test_what_sets_the_memory_peak_in_one_click(opened, run):
    """From the first page: the buffers alive at the peak, by size, with what made each."""
    with a_task(opened()) as page:
        page.locate('#cw-view-overview .figure:has-text("peak memory")').click()
        page.wait(f"{VIEW} .side .item .place")
    wanted = at_the_peak(run)
    shown = page.locate(f"{VIEW} .side .item").evaluate_all("all => all.map(i => i.dataset.buffer)")
    assert sorted(shown) == sorted(str(b.id) for b in wanted)
    sizes = {str(b.id): b.size for b in wanted}
    assert [sizes[key] for key in shown] == sorted(sizes.values(), reverse=True)
    places = page.locate(f"{VIEW} .side .item .place").all_inner_texts()
    assert len(places) == len(wanted) and all(".py:" in text for text in places)
    page.locate(f"{VIEW} .side .item").first.click()  # the op that made it, everywhere
    page.wait_query("buffer", shown[0])
    page.wait(f'{VIEW} .side .item.on[data-buffer="{shown[0]}"]')
    page.wait('#cw-inspector :text("Came from")')
    assert not page.errors


@pytest.mark.slow
@pytest.mark.playwright
def test_the_peak_by_pass_leads_to_the_stage_and_planners_stand_side_by_side(opened, run):
    page = opened("&panes=memory")
    page.drawn("memory")
    page.locate(f'{VIEW} [data-side="passes"]').click()
    page.wait(f"{VIEW} .side [data-stage]")
    rows = memory.passes(run)
    moved = [r["stage"] for r in rows if r["changed"]]
    shown = page.locate(f"{VIEW} .side [data-stage]").evaluate_all(
        "a => a.map(i => +i.dataset.stage)"
    )
    assert shown == sorted({0, *moved, len(rows) - 1})
    page.locate(f'{VIEW} .side [data-stage="{moved[0]}"]').click()
    page.wait_query("stage", str(moved[0]))
    page.wait_query("memory.view", '{"side":"passes"}')
    page.locate(f'{VIEW} [data-side="planners"]').click()
    page.wait(f"{VIEW} .side [data-planner]")
    names = page.locate(f"{VIEW} .side [data-planner]").evaluate_all(
        "all => all.map(i => i.dataset.planner)"
    )
    assert set(names) == {r["planner"] for r in memory_plans.planners(run)}
    page.locate(f'{VIEW} [data-side="planners"]').click()
    page.wait(f"{VIEW} .side", state="hidden")
    assert not page.errors


# -- training steps -------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_recomputation_offers_is_what_the_compile_chose(trained):
    step, path = trained
    run = Run(path)
    choice = step.compilation.facts["recompute"]
    (chosen,) = [row for row in memory_plans.again(run) if row["chosen"]]
    assert chosen["held"] == choice.plan.held and chosen["again"] == len(choice.plan.again) > 0
    assert memory_plans.again(run)[0]["part"] == 1.0
    border = memory.data((run,), ViewState())["border"]
    saved = sum(b.size for b in run.buffers() if b.tier == "dram" and b.start < border < b.end)
    assert saved == choice.plan.saved
    run.close()


def test_what_does_not_train_has_no_border(run):
    assert "border" not in memory.data((run,), ViewState())
    assert memory_plans.again(run) == []


@pytest.mark.slow
@pytest.mark.playwright
def test_what_is_saved_for_the_backward_pass_and_what_else_was_on_offer(trained, server, tab):
    step, path = trained
    page = tab(f"{server.url}?run={quote(str(path))}&panes=memory")
    page.drawn("memory")
    page.locate(f'{VIEW} [data-side="backward"]').click()
    page.wait(f"{VIEW} .side [data-offer]")
    plan = step.compilation.facts["recompute"].plan
    assert page.locate(f"{VIEW} .side .item.on").get_attribute("data-offer") == str(len(plan.again))
    page.locate(f"{VIEW} .side [data-buffer]").first.click()
    page.wait(f"{VIEW} .side [data-buffer].on")
    assert not page.errors
