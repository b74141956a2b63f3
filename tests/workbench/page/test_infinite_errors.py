"""Errors without a bound, as of NaN against a number: every view shows them, and as the worst."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from core_compiler.passes.rules import Rule, op
from core_compiler.pipelines.pipeline import PipelineEdit
from tests.debug import faults
from tests.passes.programs import program
from tests.workbench.page.test_numerics import record
from widgets import pack
from widgets.encode import finite
from workbench import views
from workbench.app.library import Library
from workbench.app.runs import facts
from workbench.export.tables import find
from workbench.queries.run import Run
from workbench.state.view_state import ViewState

VIEW = "#cw-view-numerics"
KEPT = Rule(
    "relu(x) => max(x, 0)", op("relu", "x"), lambda b, m: b.max(m["x"], b.scalar_like(0.0, m["x"]))
)
#: Of numbers below zero there is no logarithm.
LOGARITHM = Rule("exp(-x) => log(-x)", op("exp", op("neg", "x")), lambda b, m: b.log(b.neg(m["x"])))


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory) -> Path:
    """A pass that may change bits and keeps them, then one whose results are NaN."""
    module = program(lambda b, x: b.add(b.exp(b.neg(x)), b.relu(x)), "4x5xf32")
    passes = faults.InexactRules((KEPT,)), faults.InexactRules((LOGARITHM,))
    edit = PipelineEdit(insert=tuple(enumerate(passes)))
    x = np.linspace(-1, 2, 20, dtype=np.float32).reshape(4, 5)
    return record(tmp_path_factory.mktemp("spoiled") / "spoiled.run", module, [x], edit=edit)


@pytest.fixture
def run(spoiled):
    made = Run(spoiled)
    yield made
    made.close()


def _sent(name: str, run: Run, state: ViewState, *others: Run) -> dict[str, Any]:
    """What the browser is given."""
    return json.loads(pack(views.data(name, (run, *others), state))[0])


def _bad(run: Run) -> int:
    return next(s.index for s in run.stages() if s.verdicts.get("failed"))


def test_the_numbers_have_the_error_of_the_pass_of_its_check_and_of_the_outputs(run):
    stage = _bad(run)
    found = _sent("numerics", run, ViewState(stage=stage))
    measured = [p["accumulated"] for p in found["passes"] if p["accumulated"] is not None]
    assert measured[0] == 0 and measured[-1] == "inf"
    assert found["first"]["index"] == stage and found["first"]["worst"] == "inf"
    assert found["checks"][0]["verdict"] == "failed" and found["checks"][0]["error"] == "inf"


def test_the_overview_has_both_errors_and_the_way_to_the_pass(run):
    figures = {f["label"]: f for f in _sent("overview", run, ViewState())["figures"]}
    worst = figures["worst check error"]
    assert worst["value"] == figures["end-to-end error"]["value"] == "inf"
    assert worst["stage"] == _bad(run)


def test_advice_has_it_as_its_cost(run):
    found = views.answer("overview", (run,), ViewState(), {"kind": "advice"})
    costs = [each["cost"]["value"] for each in finite(found) if each["cost"]]
    assert "inf" in costs


def test_two_recordings_have_it_on_their_sides(run):
    state = ViewState(stage=_bad(run))
    figures = {f["name"]: f for f in _sent("compare", run, state, run)["figures"]}
    assert figures["end-to-end error"]["a"] == figures["worst check error"]["b"] == "inf"
    rules = _sent("rewrites", run, state, run)["rows"]
    assert [row["a"]["error"] for row in rules if row["rule"] == LOGARITHM.name] == ["inf"]


def test_rail_and_rewrites_have_it(run):
    stage = _bad(run)
    rail = json.loads(pack(views.passes.data((run,), ViewState()))[0])["stages"]
    assert rail[stage]["check"]["error"] == "inf"
    (row,) = _sent("rewrites", run, ViewState(stage=stage))["rows"]
    assert row["error"] == "inf"


def test_tables_have_it_as_a_number(run):
    figures = find(run, "figures")
    column = [c.name for c in figures.columns].index("value")
    assert math.inf in [row[column] for row in figures.rows()]


def test_the_library_lists_it(spoiled, tmp_path):
    library = Library(tmp_path)
    library.folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(spoiled, library.folder)
    library.index.refresh()
    (row,) = facts(library, ViewState())["runs"]
    assert row["name"] == spoiled.name and row["worst_error"] == "inf"


@pytest.mark.slow
@pytest.mark.playwright
def test_the_page_says_that_the_outputs_are_off_and_leads_to_the_pass(server, tab, spoiled):
    page = tab(f"{server.url}?run={quote(str(spoiled))}")
    figure = "#cw-view-overview .figure:has-text('{}')"
    assert "∞" in page.text(figure.format("end-to-end error"))
    page.locate(figure.format("worst check error")).click()
    page.wait(f"{VIEW} .told")
    told = page.text(f"{VIEW} .told")
    assert "worst relative error ∞ (of max abs)" in told
    assert "End-to-end relative error of the outputs: ∞ (of max abs)" in told
    page.wait(f"{VIEW} tbody tr[data-verdict=failed]")
    assert page.text(f"{VIEW} td.failed") == "∞"
    curve = page.locate(f"{VIEW} .chart circle.local.bad")
    assert curve.count() == 1
    ends = page.locate(f"{VIEW} .chart circle.end")
    heights = [float(ends.nth(i).get_attribute("cy")) for i in range(ends.count())]
    assert heights[0] > heights[-1] == float(curve.get_attribute("cy"))
    assert page.errors == []
