"""What is sent to the components of a state, and in which order."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.app.commands import search_for
from workbench.queries.run import Run
from workbench.state.view_state import VIEWS, ViewState
from workbench.ui.updates import UpdateTracker
from workbench.views import passes, search


@pytest.mark.parametrize("name", VIEWS)
def test_what_a_view_remembers_comes_before_its_data(recording, name):
    """A view draws as soon as it has data: what comes later would be too late."""
    run = Run(recording)
    state = ViewState(panes=(name,)).with_view(name, json.dumps({"any": "thing"}))
    traits = [
        trait
        for update in UpdateTracker().updates(state, run, None, {})
        if update.name == name
        for trait in update.values
    ]
    nothing = "training", "divergence"  # of a recording of an inference compile
    assert traits[0] == "state" and (name in (*nothing, "compare") or "data" in traits)
    run.close()


def test_what_was_sent_is_not_sent_again_and_what_was_not_is(recording):
    run, showing, state = Run(recording), UpdateTracker(), ViewState(panes=("pipeline",))
    first = [update for update in showing.updates(state, run, None, {}) if update.key]
    assert {"pipeline", "rail"} <= {update.name for update in first}
    lost = first.pop()
    for update in first:
        showing.mark_sent(update)
    again = [update for update in showing.updates(state, run, None, {}) if update.key]
    assert [update.name for update in again] == [lost.name]
    run.close()


def test_what_is_kept_has_all_that_a_view_would_ask_for(training_runs):
    """The widgets of a notebook are read when no kernel runs: the page asks for the iterations."""
    run, state = Run(training_runs.a), ViewState(panes=("training",))

    def data(standalone: bool) -> dict[str, Any]:
        updates = UpdateTracker(standalone=standalone).updates(state, run, None, {})
        (found,) = (u.values for u in updates if u.name == "training" and "data" in u.values)
        return json.loads(found["data"])

    assert "rows" not in data(standalone=False)
    numbers = [row.number for row in run.iterations().values()]
    assert data(standalone=True)["rows"]["number"] == numbers and len(numbers) > 1
    run.close()


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_told_that_it_remembers_nothing(recording, name):
    """It may have what it remembered in an earlier state."""
    run = Run(recording)
    updates = UpdateTracker().updates(ViewState(panes=(name,)), run, None, {})
    states = [u.values["state"] for u in updates if u.name == name and "state" in u.values]
    assert states == [{"unified": False} if name == "diff" else {}]
    run.close()


def test_where_the_list_of_passes_fails_the_views_are_shown_all_the_same(recording, monkeypatch):
    def data(*_):
        raise ValueError("a stage that no list can show")

    monkeypatch.setattr(passes, "data", data)
    run, messages = Run(recording), {}
    updates = list(UpdateTracker().updates(ViewState(panes=("kernels",)), run, None, messages))
    assert {u.name for u in updates if "data" in u.values} == {"kernels", "inspector"}
    assert messages == {}
    run.close()


def test_a_search_that_fails_is_answered(recording, monkeypatch):
    """The box would wait for ever: whatever goes wrong is said in it."""

    def find(*_):
        raise ValueError("a line that no search can read")

    monkeypatch.setattr(search, "find", find)
    run, told = Run(recording), {}
    browser = SimpleNamespace(
        run_on_loop=lambda what: what(), set=lambda name, **values: told.update(values)
    )
    page: Any = SimpleNamespace(
        run=run,
        view_state=ViewState(),
        browser=browser,
        show_bar=lambda: None,
        run_in_page_thread=lambda look: look(),
    )
    search_for(page, {"text": "conv", "asking": 3})
    answer = json.loads(told["detail"])
    assert (answer["text"], answer["asking"], answer["hits"]) == ("conv", 3, [])
    assert "a line that no search can read" in answer["problem"]["what"]
    run.close()
