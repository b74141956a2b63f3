"""Figures that colour the ops of the graph: measured time and errors of checks, at every stage."""

from __future__ import annotations

import json

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.record.reader import Recording
from tests.passes.programs import program
from workbench.queries import flat_graph
from workbench.queries.model_lines import NODES
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import graph, source

#: What they look at takes long to make.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(recording):
    made = Run(recording)
    yield made
    made.close()


def overlay(run: Run, stage: int, name: str) -> dict | None:
    found = [o for o in graph.data((run,), ViewState(stage=stage))["overlays"] if o["name"] == name]
    return found[0] if found else None


@pytest.mark.slow
def test_at_every_stage_the_time_is_that_of_all_launches(run):
    total = sum(timing.median_us for timing in run.timings())
    assert total > 0
    for stage in run.stages():
        data = graph.data((run,), ViewState(stage=stage.index))
        found = overlay(run, stage.index, "time")
        assert found is not None, stage.pass_name
        assert found["unit"] == "µs"
        assert found["values"].sum() == pytest.approx(total, rel=1e-6), stage.pass_name
        assert not found["values"][data["ops"]["fold"] == 1].any(), "constants take no time"
        status = data["ops"].get("status")
        if status is not None:
            assert not found["values"][status == flat_graph.REMOVED].any()


@pytest.mark.slow
def test_the_time_of_an_imported_op_is_about_that_of_its_node(run):
    """The source view attributes time by bytes too, so that the small ops differ, and of two that
    take about as long another one may come first."""
    lines = source.data((run,), ViewState(stage=0))
    (nodes,) = (f["rows"] for f in lines["files"] if f["path"] == NODES)
    known = {row["op"]: row["us"] for row in nodes}
    dearest = max(known, key=known.__getitem__)
    data = graph.data((run,), ViewState(stage=0))
    times = dict(zip(data["ops"]["key"].tolist(), overlay(run, 0, "time")["values"], strict=True))
    assert known[max(known, key=times.__getitem__)] == pytest.approx(known[dearest], rel=0.2)
    assert times[dearest] == pytest.approx(known[dearest], rel=0.2)


def test_a_launch_that_is_shown_keeps_its_time(run):
    """Where the stage has a kernel, its ops have the time of its launch, by flops."""
    last = len(run.stages()) - 1
    data = graph.data((run,), ViewState(stage=last))
    times = dict(
        zip(data["ops"]["key"].tolist(), overlay(run, last, "time")["values"], strict=True)
    )
    index = run.index(last)
    for timing in run.timings():
        inside = [k for k, outer in index.around.items() if outer == timing.op]
        mine = sum(times.get(k, 0.0) for k in (timing.op, *inside))
        assert mine == pytest.approx(timing.median_us, rel=1e-9)


def test_without_timings_there_is_no_time_at_any_stage(tmp_path):
    module = program(lambda b, x: b.exp(b.neg(x)), "4x5xf32")
    made = Run(cc.compile(module).record(tmp_path / "only.run"))
    assert all(overlay(made, stage.index, "time") is None for stage in made.stages())
    made.close()


def test_an_error_stays_with_what_an_inexact_rewrite_made(run, recording):
    with Recording.open(recording) as file:
        rows = file.query(
            "SELECT r.stage, r.new, c.worst_error FROM check_result c"
            " JOIN rewrite r ON r.id = c.rewrite WHERE c.worst_error > 0"
        ).rows
    first = min(stage for stage, _, _ in rows)
    assert overlay(run, first - 1, "error") is None
    for stage in run.stages()[first:]:
        found = overlay(run, stage.index, "error")
        assert found is not None, stage.pass_name
        worst = max(error for at, _, error in rows if at <= stage.index)
        assert np.nanmax(found["values"]) <= worst
        keys = graph.data((run,), ViewState(stage=stage.index))["ops"]["key"].tolist()
        shown = dict(zip(keys, found["values"].tolist(), strict=True))
        for at, new, error in rows:
            if at <= stage.index:
                assert all(shown[op] >= error for op in json.loads(new) if op in shown)


def test_what_was_not_rewritten_inexactly_has_no_error(run, recording):
    """What came from the batch norms and the convolutions before them, not the last product."""
    data = graph.data((run,), ViewState(stage=len(run.stages()) - 1))
    found = overlay(run, len(run.stages()) - 1, "error")["values"]
    drawn = found[data["ops"]["fold"] == 0]
    assert (drawn > 0).any() and (drawn == 0).any()
