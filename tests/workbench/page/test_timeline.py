"""The timeline view: against the recording, and as a person uses it."""

from __future__ import annotations

import json
import sqlite3
from urllib.parse import quote

import numpy as np
import pytest

from core_compiler.record.reader import Recording
from workbench.queries.links import linked
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import Empty, compare, timeline

VIEW = "#cw-view-timeline"


@pytest.fixture(scope="module")
def run(recording):
    made = Run(recording)
    yield made
    made.close()


@pytest.fixture(scope="module")
def file(recording):
    with Recording.open(recording) as opened:
        yield opened


def changed(recording, folder, *statements):
    """A copy of the recording in which the statements have run."""
    path = folder / "changed.run"
    path.write_bytes(recording.read_bytes())
    with sqlite3.connect(path) as database:
        for statement in statements:
            database.execute(statement)
    database.close()
    return path


# -- the data -------------------------------------------------------------------------------------


def test_the_spans_are_the_recorded_execution(run, file):
    data = timeline.data((run,), ViewState())
    recorded = json.loads(file.figures("timing")["timeline"])
    spans = data["spans"]
    assert data["recorded"] and data["note"].startswith(f"execution {recorded['repeat'] + 1} of ")
    assert sorted(zip(spans["launch"].tolist(), spans["lane"].tolist(), strict=True)) == sorted(
        zip(recorded["launch"], recorded["thread"], strict=True)
    )
    assert spans["duration"].sum() == pytest.approx(sum(recorded["duration"]) / 1e3)
    assert (np.diff(spans["start"]) >= 0).all()
    names = data["kernels"]["name"]
    timings = sorted(file.timings(), key=lambda t: t.launch)
    assert [names[k] for k in data["launches"]["kernel"]] == [t.kernel for t in timings]
    assert data["launches"]["op"].tolist() == [t.op for t in timings]
    assert (data["percent"] > 0).all()


def test_kernels_are_coloured_by_what_they_do(run, file):
    data = timeline.data((run,), ViewState())
    kinds = dict(zip(data["kernels"]["name"], data["kernels"]["category"], strict=True))
    for kernel in file.kernels():
        if kernel.name not in kinds:
            continue
        computed = {file.op(op).kind for op in kernel.ops}
        said = timeline.CATEGORIES[kinds[kernel.name]]
        assert (said == "contraction") == bool(computed & {"core.conv", "core.matmul"})


def test_live_bytes_are_those_of_the_memory_plan(run, file):
    data = timeline.data((run,), ViewState())
    buffers = [b for b in file.buffers() if b.kind == "temporary"]
    body = file.module(file.stage_count() - 1).main.body.ops
    places = {file.op_id(op): i for i, op in enumerate(body)}
    assert data["live"].tolist() == [
        sum(b.size for b in buffers if b.start <= places[op] <= b.end)
        for op in data["launches"]["op"].tolist()
    ]


def test_the_selection_marks_what_it_became(run, file):
    conv = next(op for op in file.module(0).main.body.ops if op.kind == "core.conv")
    found = timeline.selection((run,), ViewState(stage=0, op=file.op_id(conv)))["launches"]
    kernels = {t.launch: t.kernel for t in file.timings()}
    assert found and all("conv" in kernels[n] for n in found)
    for kernel in file.kernels():
        marked = timeline.selection((run,), ViewState(kernel=kernel.id))["launches"]
        assert [kernels[n] for n in marked] == [kernel.name] * len(kernel.launches)
    buffer = next(b for b in file.buffers() if b.kind == "temporary")
    (written,) = timeline.selection((run,), ViewState(buffer=buffer.id))["launches"]
    assert linked(run, ViewState(buffer=buffer.id)).kernel is not None and written in kernels
    assert timeline.selection((run,), ViewState()) == {}


def test_without_times_launches_are_as_long_as_the_machine_needs(recording, tmp_path):
    limits = "(SELECT value FROM figure WHERE section = 'timing' AND name = 'limits')"
    said = f"INSERT INTO figure VALUES (NULL, 'run', 'machine_limits', {limits})"
    run = Run(changed(recording, tmp_path, said, "DELETE FROM launch_time"))
    data = timeline.data((run,), ViewState())
    assert not data["recorded"] and "not executed" in data["note"]
    assert data["lanes"] == ["predicted"] and (data["spans"]["duration"] > 0).all()
    assert np.isnan(data["launches"]["median"]).all()
    run.close()


def test_what_was_not_executed_says_why(recording, tmp_path):
    gone = "DELETE FROM launch_time", "DELETE FROM figure WHERE name LIKE '%limits'"
    run = Run(changed(recording, tmp_path, *gone))
    with pytest.raises(Empty, match="Execute"):
        timeline.data((run,), ViewState())
    run.close()
    no_gpu = "INSERT INTO figure VALUES (NULL, 'run', 'not_executed', 'there is no GPU')"
    run = Run(changed(recording, tmp_path, *gone, no_gpu))
    with pytest.raises(Empty, match="there is no GPU"):
        timeline.data((run,), ViewState())
    run.close()


# -- the page -------------------------------------------------------------------------------------


@pytest.fixture
def opened(server, tab, recording):
    pytest.importorskip("playwright", reason="the page is tested in a browser")
    return lambda query="", path=recording: tab(f"{server.url}?run={quote(str(path))}{query}")


@pytest.mark.slow
@pytest.mark.playwright
def test_a_click_selects_everywhere(opened, file):
    page = opened("&panes=timeline,kernels")
    page.drawn("timeline")
    longest = max(file.timings(), key=lambda t: t.median_us)
    place = page.view("timeline", "placeOfLaunch", longest.launch)
    page.page.mouse.click(place["x"], place["y"])
    page.wait_query("op", str(longest.op))
    page.wait("#cw-view-kernels tr.on")
    assert longest.kernel in page.text("#cw-view-kernels tr.on td")
    assert page.view("timeline", "marked") == [longest.launch]
    page.wait("#cw-inspector section")
    # The other way: a kernel marks its launches.
    other = next(k for k in file.kernels() if k.launches and k.name != longest.kernel)
    page.locate(f'#cw-view-kernels tr[data-kernel="{other.id}"]').click()
    page.wait_query("kernel", str(other.id))
    wanted = sorted(t.launch for t in file.timings() if t.kernel == other.name)
    for _ in range(600):
        if sorted(page.view("timeline", "marked")) == wanted:
            break
        page.page.wait_for_timeout(100)
    assert sorted(page.view("timeline", "marked")) == wanted
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_keys_walk_and_enter_shows_the_code(opened, file):
    page = opened("&panes=timeline")
    page.drawn("timeline")
    page.locate(f"{VIEW} .stage").focus()
    page.press("ArrowRight")
    page.page.wait_for_function("() => new URLSearchParams(location.search).get('op') !== null")
    first = page.query("op")
    page.press("ArrowRight")
    page.page.wait_for_function(
        "(op) => new URLSearchParams(location.search).get('op') !== op", arg=first
    )
    launches = {str(t.op) for t in file.timings()}
    assert {first, page.query("op")} <= launches
    before = page.view("timeline", "window")
    page.press("w")
    after = page.view("timeline", "window")
    assert after["to"] - after["from"] < before["to"] - before["from"]
    page.press("Enter")
    page.drawn("code")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_the_trace_is_downloaded(opened, file):
    page = opened("&panes=timeline")
    page.drawn("timeline")
    page.locate(f"{VIEW} button.save").click()
    with page.page.expect_download() as download:
        page.locate(f"{VIEW} [role=menuitem]:has-text('Trace')").click()
    found = json.loads(download.value.path().read_text())
    assert download.value.suggested_filename == "digits-cnn.trace.json"
    spans = [e for e in found["traceEvents"] if e["ph"] == "X" and e["cat"] == "kernel"]
    assert {e["args"]["launch"] for e in spans} == {t.launch for t in file.timings()}
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_it_follows_the_theme_and_says_what_is_missing(opened, recording, tmp_path):
    page = opened("&panes=timeline")
    page.drawn("timeline")
    page.locate("#cw-bar button[aria-label^='Switch']").click()
    page.wait(f"{VIEW} .cw[data-theme=dark]")
    gone = "DELETE FROM launch_time", "DELETE FROM figure WHERE name LIKE '%limits'"
    page = opened("&panes=timeline", changed(recording, tmp_path, *gone))
    page.wait(f"{VIEW} .cw-message:visible")
    assert "Press Execute" in page.text(f"{VIEW} .cw-message")


# -- of two recordings ----------------------------------------------------------------------------


@pytest.mark.slow
def test_differences_are_those_of_compare(two_targets):
    """Every pair of launches once, with Compare's times; every launch in one of them."""
    cpu, cuda = Run(two_targets.cpu), Run(two_targets.cuda)
    for other in (cuda, cpu):
        found = timeline.data((cpu, other), ViewState())["two"]["pairs"]
        wanted = compare.data((cpu, other), ViewState())["launches"]
        assert found["title"] == [row["title"] for row in wanted]
        for side, of in (("a", found["of_a"]), ("b", found["of_b"])):
            us = [np.nan if row[side] is None else row[side]["us"] for row in wanted]
            np.testing.assert_array_equal(found[side]["us"], us)
            signs = [("", "≥", "≈").index(row[side]["sign"]) if row[side] else 0 for row in wanted]
            assert found[side]["sign"].tolist() == signs
            counts = [row[side]["count"] if row[side] else 0 for row in wanted]
            assert np.bincount(of[of >= 0], minlength=len(wanted)).tolist() == counts
    cpu.close()
    cuda.close()
