"""Overview and First bad pass of two recordings."""

from __future__ import annotations

import csv

import pytest

from workbench.model import first_bad_pass
from workbench.queries import compared
from workbench.state.view_state import ViewState
from workbench.views import bisect, overview

VIEW = "#cw-view-overview"


def test_each_side_has_the_figures_of_its_own_overview(both):
    data = overview.data((both[0], both[1]), ViewState())
    for run, side in zip(both, "ab", strict=True):
        own = {
            f["label"]: f.get("text") or f["value"]
            for f in overview.data((run,), ViewState())["figures"]
        }
        shown = {row["label"]: row[side] for row in data["figures"] if row[side] is not None}
        assert shown == {label: value for label, value in own.items() if value not in (None, "")}
    labels = [row["label"] for row in data["figures"]]
    assert len(labels) == len(set(labels))
    assert data["passes"] == compared.passes(*both)
    rows = compared.kernels_of(*both)["kernels"]
    assert all(row in rows for row in data["kernels"])


def test_a_recording_beside_itself_differs_in_nothing(both):
    data = overview.data((both[0], both[0]), ViewState())
    assert all(row["a"] == row["b"] for row in data["figures"])
    assert {found["sides"] for found in data["findings"]} <= {"ab"}
    advice = overview.answer((both[0], both[0]), ViewState(), {"kind": "advice"})
    assert {found["sides"] for found in advice} <= {"ab"}


def test_what_only_one_side_has_is_of_that_side_and_leads_nowhere_else():
    def finding(title: str, **more):
        tried = {"sentence": "Leave it out.", "draft": {"edit": {}}, "reason": ""}
        fact = {"text": "seen here", "go": {"stage": 3}}
        return {
            "hazard": "spill",
            "title": title,
            "go": {"stage": 3},
            "evidence": [fact],
            "tries": [tried],
            "look": True,
            **more,
        }

    made = overview.found_in([finding("x"), finding("y")], [finding("y", state={}), finding("z")])
    assert [(each["title"], each["sides"]) for each in made] == [
        ("x", "a"),
        ("y", "ab"),
        ("z", "b"),
    ]
    alone = made[2]
    assert alone["go"] == {} and alone["evidence"][0]["go"] == {} and not alone["look"]
    assert alone["tries"][0]["draft"] is None and "open B" in alone["tries"][0]["reason"]
    assert made[0]["tries"][0]["draft"] is not None and made[1]["go"] == {"stage": 3}


@pytest.mark.slow
@pytest.mark.playwright
def test_the_overview_shows_both(library, tab, both):
    """Offered where the page opens; figures, one chart, kernels; back to one by the same switch."""
    page = tab(f"{library.url}?run=cpu.run")
    page.wait(f"{VIEW} .chart")
    page.locate(".cw-tabs .two select").select_option("cuda.run")
    page.wait(f"{VIEW} .value.side")
    data = overview.data((both[0], both[1]), ViewState())
    assert page.locate(f"{VIEW} .figure").count() == len(data["figures"])
    for row in data["figures"]:
        box = page.locate(f'{VIEW} .figure:has(.label:text-is("{row["label"]}"))')
        said = box.locator(".change").inner_text()
        only = [side.upper() for side in "ab" if row[side] is not None]
        assert (said == f"only in {only[0]}") == (len(only) == 1)
        assert (said == "the same") == (row["a"] == row["b"])
    hits = page.locate(f"{VIEW} .chart .hit")
    assert hits.count() == len(data["passes"])
    for side in "ab":
        bars = sum(row[side] is not None for row in data["passes"])
        assert page.locate(f"{VIEW} .chart .bar.{side}").count() == bars
    assert page.locate(f"{VIEW} .kernel.both").count() == len(data["kernels"])
    with open(page.saved(f"{VIEW} .title", "Figures of both, CSV"), newline="") as file:
        saved = {row["figure"]: row for row in csv.DictReader(file)}
    assert float(saved["peak memory"]["b"]) == both[1].figures("memory")["arena_bytes"]
    page.locate('.cw-tabs [data-two="one"]').click()
    page.wait(f"{VIEW} .value:not(.side)")
    assert page.locate(f"{VIEW} .value.side").count() == 0
    page.page.go_back()
    page.wait(f"{VIEW} .value.side")
    pass_ = next(i for i, row in enumerate(data["passes"]) if i and row["a"] and row["b"])
    page.locate(f'{VIEW} .chart .hit[data-pass="{pass_}"]').click()
    page.stage(data["passes"][pass_]["a"]["index"])
    assert page.errors == []


# -- first bad pass --------------------------------------------------------------------------------


def result(pass_: str | None, rule: str = "x + 0 => x") -> dict:
    looked = {
        "worst_pass": None,
        "passes": 12,
        "of": 30,
        "verdicts": {},
        "launches": None,
        "not_executed": "",
        "error": 0.0,
    }
    return {
        "model": "net", "target": "cpu", "inputs": "", "stood_in": "", "tolerance": 1e-3,
        "first_bad_pass": pass_, "stage": None if pass_ is None else 4, "how": "check", "note": "",
        "first_bad_rewrite": None if pass_ is None else {
            "number": 0, "rule": rule, "note": "", "source": "", "old": [], "new": []},
        "value": "", "index": [], "numbers": None, "error": None, "absolute": None, "ulps": None,
        "model_lines": [], "looked": looked, "reduced": None,
    }  # fmt: skip


CASES = [
    (None, None, "No fault found in either."),
    ("a", None, "Only A has a fault."),
    (None, "a", "Only B has a fault."),
    ("a", "b", "The first bad pass is not the same in both."),
    ("a", "a", "The same pass in both, by the same rule."),
]


@pytest.mark.parametrize(("one", "two", "told"), CASES)
def test_results_of_two_are_compared_in_a_sentence(both, monkeypatch, one, two, told):
    kept = {run.path: result(pass_) for run, pass_ in zip(both, (one, two), strict=True)}
    monkeypatch.setattr(first_bad_pass, "newest", lambda path, _: kept.get(path))
    data = bisect.data((both[0], both[1]), ViewState())
    assert data["two"]["told"] == told
    assert data["two"]["result"]["first_bad_pass"] == two and data["two"]["result"]["there"] is None
    assert {k: v for k, v in data.items() if k != "two"} == bisect.data((both[0],), ViewState())


def test_where_one_was_not_searched_nothing_is_compared(both):
    data = bisect.data((both[0], both[1]), ViewState())["two"]
    assert data["told"] == "" and data["result"] is None
    assert data["command"].startswith("workbench bisect") and data["name"] == "cuda.run"


@pytest.mark.slow
@pytest.mark.playwright
def test_both_results_stand_beside_each_other(library, tab):
    page = tab(f'{library.url}?run=cpu.run&other=cuda.run&panes=bisect&bisect.view={{"ab":true}}')
    sides = page.locate("#cw-view-bisect .sides section")
    page.wait("#cw-view-bisect .sides section")
    assert sides.count() == 2
    assert "press Find it" in sides.nth(0).inner_text()
    assert "workbench bisect" in sides.nth(1).inner_text()
    assert page.errors == []
