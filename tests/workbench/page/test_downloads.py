"""Every table, plot and text of a view is saved, from one menu."""

from __future__ import annotations

import csv
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from core_compiler.record import Recording
from workbench.queries.run import Run
from workbench.state.view_state import VIEWS, ViewState
from workbench.views import rewrites

pytestmark = pytest.mark.playwright


@pytest.fixture
def opened(server, tab, recording):
    return lambda query="": tab(f"{server.url}?run={quote(str(recording))}{query}")


def look(name: str, path: Path) -> None:
    """That a file holds what its name says, and something at all."""
    content = path.read_bytes()
    if name.endswith(".csv"):
        names, *rows = csv.reader(content.decode().splitlines())
        assert len(set(names)) == len(names) > 1, name
        assert rows or name == "findings.csv", name
    elif name.endswith(".svg"):
        drawing = ElementTree.fromstring(content)
        assert len(list(drawing)) > 2 and b"var(" not in content, name
    elif name.endswith(".png"):
        assert content.startswith(b"\x89PNG") and len(content) > 1000, name
    else:
        assert content.strip(), name


def saved(page, part):
    """Every item of a part's menu, by the name of its file."""
    opener = page.locate(f"{part} button.save").first
    items = page.locate(f"{part} [role=menuitem]")
    opener.click()
    found = {}
    for place in range(items.count()):
        if not items.nth(place).is_visible():
            opener.click()
        with page.page.expect_download() as got:
            items.nth(place).click()
        name = got.value.suggested_filename
        look(name, Path(got.value.path()))
        found[name] = Path(got.value.path())
    return found


def places(run):
    """Stages and rewrites that were checked."""
    for stage in run.stages():
        if stage.rewrites and stage.verdicts:
            yield from ((stage.index, number) for number in range(stage.rewrites))


def drawn(run, stage, rewrite):
    """Whether a rewrite is drawn before and after."""
    detail = rewrites.selection((run,), ViewState(stage=stage, rewrite=rewrite))["detail"]
    return detail["old"]["drawn"] and detail["new"]["drawn"]


#: What each view saves, at least; of those that compare: below.
SAVED = {
    "overview": {"figures.csv", "findings.csv", "passes.csv", "passes.svg", "passes.png"},
    "graph": {".svg", ".png", ".dot"},
    "diff": {".diff", ".mlir"},
    "rewrites": {".csv", "-before.svg", "-before.png", "-after.svg", "-after.png"},
    "source": {"lines.csv", "digits.py"},
    "kernels": {"kernels.csv", "roofline.svg", "roofline.png"},
    "code": {".py", ".ll", ".s"},
    "memory": {"memory.csv", "memory.svg", "memory.png"},
    "timeline": {".trace.json", "timeline.csv", "timeline.svg", "timeline.png"},
    "numerics": {"checks.csv", "errors.csv", "errors.svg", "errors.png"},
    "pipeline": {"pipeline.csv"},
}


@pytest.mark.slow
def test_every_view_saves_its_tables_plots_and_texts(opened, recording):
    shown = Run(recording)
    stage, rewrite = next(place for place in places(shown) if drawn(shown, *place))
    shown.close()
    with Recording.open(recording) as run:
        op = run.op_id(next(o for o in run.module(0).main.body.ops if o.kind == "core.conv"))
        before, after = run.text(stage - 1), run.text(stage)
        stages = run.stage_count()
    page = opened(f"&stage={stage}&rewrite={rewrite}&op={op}&panes=overview")
    page.wait("#cw-view-overview .chart")
    for view, ends in SAVED.items():
        page.show(view)
        page.wait("#cw-busy:not(.on)", state="attached")
        page.wait(f"#cw-view-{view} button.save")
        if view == "rewrites":
            page.wait("#cw-view-rewrites .drawing svg")
        found = saved(page, f"#cw-view-{view}")
        assert all(any(name.endswith(end) for name in found) for end in ends), (view, found)
        if view == "diff":
            texts = [p.read_text() for name, p in found.items() if name.endswith(".mlir")]
            assert sorted(texts) == sorted([before, after])
    passes = saved(page, "#cw-rail")["passes.csv"].read_text().splitlines()
    assert len(passes) == 1 + stages
    history = saved(page, "#cw-inspector")
    assert {"inspector.csv", "history.csv", "history.svg", "history.png"} <= set(history)
    assert set(SAVED) | {"bisect", "training", "divergence", "compare"} == set(VIEWS)
    assert page.errors == []


@pytest.mark.slow
def test_two_training_runs_save_theirs(server, tab, training_runs):
    about = f"run={quote(str(training_runs.a))}&other={quote(str(training_runs.b))}"
    page = tab(f"{server.url}?{about}&panes=training")
    page.wait("#cw-view-training svg path.line")
    found = saved(page, "#cw-view-training")
    assert set(found) == {"training.csv", "training-runs.csv", "training.svg", "training.png"}
    rows = list(csv.DictReader(found["training.csv"].read_text().splitlines()))
    assert [row["root_a"] != row["root_b"] for row in rows].index(True) == training_runs.at - 1
    assert all(float(row["apart"]) >= 0 for row in rows)
    page.show("divergence")
    page.wait("#cw-view-divergence .told")
    assert {"divergence.csv", "divergence-runs.csv"} <= set(saved(page, "#cw-view-divergence"))
    page.show("compare")
    with page.page.expect_download() as got:
        page.locate("#cw-view-compare h2:has-text('Recordings') button").click()
    look("compare-facts.csv", Path(got.value.path()))
    assert page.errors == []
