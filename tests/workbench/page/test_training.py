"""The view of a training run: its rows against the recording, live, and beside a second run."""

from __future__ import annotations

import csv
import json
import shutil
import time
from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_compiler.ir.events import IterationRecord
from core_compiler.record import Recorder, Recording
from core_compiler.record.resumed import ResumedTrainingRecorder
from tests.workbench.page.tasks import a_task
from widgets.encode import finite
from workbench.commands.cli import main
from workbench.export import report
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import Empty, overview, pipeline, training

VIEW = "#cw-view-training"
IDENTITY = "1d" * 32


@pytest.fixture(scope="module")
def both(training_runs):
    runs = Run(training_runs.a), Run(training_runs.b)
    yield runs
    for run in runs:
        run.close()


def made(path, rows, identity=IDENTITY, live=False, **plan) -> Run:
    """A recording with iterations and nothing else."""
    recorder = Recorder(path)
    facts = {"iterations": 9, "batch": 4, "receipts": "state", "ops_every": 0, **plan}
    recorder.begin({"mode": "training", "training_run": facts})
    recorder.figures({"identity": identity})
    recorder.iterations(rows)
    if not live:
        recorder.end("finished")
    return Run(path)


def iteration(number: int, root: str = "", loss: float = 1.0) -> IterationRecord:
    return IterationRecord(number, loss, 0.5, root)


# -- the data -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_are_those_of_the_recording(both, training_runs):
    data = training.data((both[0],), ViewState())
    json.dumps(finite(data), allow_nan=False)
    rows = training.answer((both[0],), ViewState(), {"kind": "rows", "side": "a", "after": 0})
    with Recording.open(training_runs.a) as recording:
        recorded = recording.iterations()[1]
    assert rows["number"] == [1, 2, 3, 4, 5, 6]
    for name in ("loss", "seconds", "root"):
        assert rows[name] == [getattr(r, name) for r in recorded]
    assert rows["rate"] == [0.2] * 6 and "loss_scale" not in rows and "skipped" not in rows
    assert (data["a"]["done"], data["a"]["wanted"], data["a"]["batch"]) == (6, 6, 8)
    assert data["a"]["loss"] == recorded[-1].loss and data["a"]["left"] is None
    assert (rows["last"], rows["more"]) == (data["a"]["last"], False)
    later = {"kind": "rows", "side": "a", "after": rows["last"]}
    assert training.answer((both[0],), ViewState(), later)["number"] == []


def test_pages_of_rows_are_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "PAGE", 4)
    run = made(tmp_path / "x.run", [iteration(n) for n in range(1, 11)])
    found, after = [], 0
    while True:
        rows = training.answer((run,), ViewState(), {"kind": "rows", "side": "a", "after": after})
        found += rows["number"]
        after = rows["last"]
        if not rows["more"]:
            break
    assert found == list(range(1, 11))
    run.close()


def test_what_is_no_training_run_says_what_to_do(recording, tmp_path):
    run = Run(recording)
    with pytest.raises(Empty, match="workbench train digits-cnn --iterations"):
        training.data((run,), ViewState())
    run.close()
    run = made(tmp_path / "x.run", [], live=True)
    with pytest.raises(Empty, match="the first iteration follows shortly"):
        training.data((run,), ViewState())
    run.close()


def test_a_growing_run_is_read_on(tmp_path):
    path = tmp_path / "x.run"
    recorder = Recorder(path)
    recorder.begin({"mode": "training", "training_run": {"iterations": 10, "batch": 4}})
    run = Run(path)
    recorder.iterations([iteration(1), iteration(2)])
    assert run.refresh()
    assert list(run.iterations()) == [1, 2]
    assert training.about(run)["left"] == pytest.approx(8 * 0.5)
    compiled = run.version.compiled
    recorder.iterations([iteration(3), iteration(2, loss=5.0)])  # one was done again
    assert run.refresh()
    assert list(run.iterations()) == [1, 2, 3]
    assert run.iterations()[2].loss == 5.0
    assert run.version.compiled == compiled, "what is derived of the compile stays"
    recorder.end("finished")
    run.refresh()
    assert training.about(run)["left"] is None
    run.close()


@pytest.mark.slow
def test_the_overview_and_the_pipeline_know_what_it_is(both):
    figures = {f["label"]: f for f in overview.data((both[0],), ViewState())["figures"]}
    assert figures["iterations"]["value"] == 6
    assert figures["loss"]["value"] == both[0].iterations()[6].loss
    assert figures["compile time"]["value"] == sum(s.seconds for s in both[0].stages())
    shown = pipeline.data((both[0],), ViewState())
    assert shown["fixed"] == "" and shown["itself"]
    assert "apply_optimizer" in [row["label"] for row in shown["shown"]["rows"]]


# -- two runs -------------------------------------------------------------------------------------


def test_two_runs_part_where_the_rounding_was_flipped(both, training_runs):
    found = training.data((both[0], both[1]), ViewState())["together"]
    assert found == {"by": "receipts", "why": "", "first": 1, "last": 6, "parts": training_runs.at}
    same = training.together(both[0], both[0])
    assert (same["by"], same["parts"]) == ("receipts", None)


class Rows(Run):
    """A run of which only iterations are known."""

    def __init__(self, rows):
        self._rows = {row.number: row for row in rows}

    def iterations(self):
        return self._rows

    def figures(self, section="run"):
        return {"identity": IDENTITY}

    def meta(self):
        return {"training_run": {"receipts": "state", "ops_every": 0}}


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(0, 3), st.integers(0, 3))
def test_roots_part_at_the_first_that_differs(same, more_a, more_b):
    """A chain: from the first difference on all roots differ."""
    parts = next((n for n, is_same in enumerate(same, 1) if not is_same), None)

    def rows(name: str, more: int):
        numbers = range(1, len(same) + more + 1)
        return [iteration(n, f"{name if parts and n >= parts else 'x'}{n}") for n in numbers]

    found = training._together(Rows(rows("a", more_a)), Rows(rows("b", more_b)))
    shared = len(same) + min(more_a, more_b)
    assert found == {"by": "receipts", "why": "", "first": 1, "last": shared, "parts": parts}


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ([iteration(n, f"x{n}") for n in (7, 8)], {}, ("", "no iteration in common")),
        (
            [iteration(n, f"x{n}") for n in (1, 2)],
            {"identity": "2e" * 32},
            ("", "numerics identities differ"),
        ),
        (
            [iteration(n, f"y{n}") for n in (1, 2)],
            {"receipts": "gradients"},
            ("losses", "hash different values"),
        ),
        ([iteration(n, f"x{n}") for n in (1, 2)], {"ops_every": 2}, ("losses", "hash different")),
        ([iteration(n, f"y{n}") for n in (2, 3)], {}, ("losses", "hash different values")),
        ([iteration(n) for n in (1, 2)], {}, ("losses", "without receipts")),
        ([iteration(1), iteration(2, loss=2.0)], {}, ("losses", "without receipts")),
    ],
)
def test_what_cannot_be_compared_by_digests_is_said(rows, more, said, tmp_path):
    a = made(tmp_path / "a.run", [iteration(n, f"x{n}") for n in (1, 2, 3)])
    b = made(tmp_path / "b.run", rows, **more)
    for one, other in ((a, b), (b, a)):
        found = training.together(one, other)
        assert found["by"] == said[0] and said[1] in found["why"]
        lossy = rows[-1].loss != 1.0
        assert found["parts"] == (2 if lossy else None)
    for run in (a, b):
        run.close()


# -- in a browser ---------------------------------------------------------------------------------


def shown(page, count: int) -> None:
    page.wait(f'{VIEW} .root[data-iterations="{count}"]')


@pytest.mark.slow
@pytest.mark.playwright
def test_a_run_grows_before_ones_eyes(server, tab, tmp_path, training_runs):
    """New rows without a reload, the time left, then the end; and all of it as CSV."""
    path = tmp_path / "x.run"
    shutil.copy(training_runs.a, path)
    with Recording.open(path) as recording:
        identity = recording.figures()["identity"]
        meta = recording.meta()
    recorder = ResumedTrainingRecorder(path, identity)
    recorder.begin({"training_run": {**meta["training_run"], "iterations": 40}})
    page = tab(f"{server.url}?run={quote(str(path))}&panes=training")
    shown(page, 6)
    for number in range(7, 31):
        recorder.iterations([iteration(number, f"{number:064x}", 2.0 / number)])
    shown(page, 30)
    assert "30 of 40 iterations" in page.text(f"{VIEW} .facts")
    page.wait(f"{VIEW} .facts >> text=left")
    page.wait(f'{VIEW} .row[data-iteration="30"]')
    recorder.end("finished")
    page.wait(f"{VIEW} .state", state="detached")
    text = page.saved(VIEW, "All iterations, CSV").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert [int(r["iteration"]) for r in rows] == list(range(1, 31))
    assert (rows[29]["root"], float(rows[29]["loss"])) == (f"{30:064x}", 2.0 / 30)
    assert not page.errors


#: While the file ``hold`` is there, deriving the view waits, and says so with the file ``held``.
_HELD = """
import time
from pathlib import Path
from workbench.views import training
derive = training.data
def held(*arguments):
    while Path({hold!r}).exists():
        Path({held!r}).touch()
        time.sleep(0.01)
    return derive(*arguments)
training.data = held
"""


@pytest.mark.slow
@pytest.mark.playwright
def test_what_is_set_while_a_run_grows_stays_set(own_server, tab, tmp_path, training_runs):
    """A live run is derived all the time; what was derived before a click must not undo it."""
    path, hold, held = (tmp_path / name for name in ("x.run", "hold", "held"))
    shutil.copy(training_runs.a, path)
    with Recording.open(path) as recording:
        recorder = ResumedTrainingRecorder(path, recording.figures()["identity"])
    recorder.begin({})
    server = own_server(before=_HELD.format(hold=str(hold), held=str(held)))
    page = tab(f"{server.url}?run={quote(str(path))}&panes=training")
    shown(page, 6)
    page.locate(f'{VIEW} [data-scale="log"]').click()
    page.wait_query("training.view", '"scale":"log"', partly=True)
    hold.touch()
    recorder.iterations([iteration(7, f"{7:064x}")])
    deadline = time.monotonic() + 60
    while not held.exists():
        assert time.monotonic() < deadline, "the row is not derived"
        time.sleep(0.02)
    page.locate(f'{VIEW} [data-do="smooth"]').click()
    page.wait_query("training.view", '"smooth":true', partly=True)
    hold.unlink()
    shown(page, 7)
    assert page.locate(f"{VIEW} .line.raw").count() == 1
    assert page.locate(f'{VIEW} [data-do="smooth"][aria-pressed="true"]').count() == 1
    recorder.end("finished")
    assert not page.errors


@pytest.mark.slow
@pytest.mark.playwright
def test_two_runs_beside_each_other(server, tab, training_runs):
    page = tab(f"{server.url}?run={quote(str(training_runs.a))}&panes=training,graph")
    shown(page, 6)
    page.locate(f'{VIEW} select[aria-label="Compare with"]').select_option("/")
    page.locate(f"{VIEW} .bar input").fill(str(training_runs.b))
    page.press("Enter")
    page.wait(f"{VIEW} [data-says=strip]")
    assert page.locate(f"{VIEW} [data-says=strip]").text_content() == (
        "same bits up to iteration 2, then different digests"
    )
    assert page.locate(f"{VIEW} .line.b").count() == 1
    page.wait(f'{VIEW} .row[data-iteration="3"] .digest.differs')
    row = page.locate(f'{VIEW} .row[data-iteration="3"] .digest')
    assert row.nth(0).get_attribute("title") != row.nth(1).get_attribute("title")
    assert "differs" in row.nth(1).get_attribute("class")
    page.locate(f'{VIEW} [data-scale="log"]').click()
    page.wait_query("training.view", '"scale":"log"', partly=True)
    page.locate(f'{VIEW} [data-do="smooth"]').click()
    page.wait(f"{VIEW} .line.raw")
    page.locate(f'{VIEW} .row[data-iteration="2"] > span').first.click()
    page.wait_query("training.view", '"at":2', partly=True)
    page.locate(f"{VIEW} .chart").press("ArrowRight")
    page.wait(f'{VIEW} .row.on[data-iteration="3"]')
    page.locate(f'{VIEW} [data-do="divergence"]').click()
    page.wait("#cw-view-divergence .told")
    assert not page.errors


@pytest.mark.playwright
@pytest.mark.slow
def test_a_hundred_thousand_iterations(server, tab, tmp_path, training_runs):
    """What is drawn is what can be seen, and no peak is lost."""
    path, count = tmp_path / "x.run", 100_000
    shutil.copy(training_runs.a, path)
    with Recording.open(path) as recording:
        recorder = ResumedTrainingRecorder(path, recording.figures()["identity"])
    rows = [iteration(n, f"{n:064x}", 1.0) for n in range(1, count + 1)]
    rows[54_321] = replace(rows[54_321], loss=7.5)
    recorder.iterations(rows)
    recorder.end("finished")
    page = tab(f"{server.url}?run={quote(str(path))}&panes=training")
    shown(page, count)
    assert page.locate(f"{VIEW} .rows .row").count() < 120
    d = page.locate(f"{VIEW} .line.a").first.get_attribute("d")
    points = [tuple(map(float, part.split())) for part in d.replace("M", "L").split("L")[1:]]
    assert len(points) < 8_000
    base = max(y for _, y in points)
    assert min(y for _, y in points) < base - 50, "the one high loss is drawn"
    page.locate(f"{VIEW} .scroll").press("End")
    page.wait(f'{VIEW} .row.on[data-iteration="{count}"]')
    assert not page.errors


@pytest.mark.slow
@pytest.mark.playwright
def test_a_report_has_all_iterations(training_runs, tmp_path, tab):
    path = tmp_path / "report.html"
    report.write(training_runs.a, path)
    page = tab(path.as_uri())
    page.show("training")
    shown(page, 6)
    assert page.locate(f"{VIEW} select[aria-label='Compare with']").count() == 0
    assert not page.errors


@pytest.mark.slow
@pytest.mark.playwright
def test_where_the_loss_first_became_nan_in_one_click(server, tab, tmp_path):
    pytest.importorskip("torch", reason="the sample models need torch")
    path = tmp_path / "nan.run"
    words = ["train", "digits-mlp", "--width", "0.1", "--depth", "1", "--rate", "1e22"]
    assert main([*words, "--iterations", "4", "-o", str(path)]) != 0
    with Recording.open(path) as file:
        told, figures = file.meta()["message"], file.figures()
        stage = figures["not_finite/stage"]
        op = file.op_id(file.module(stage).main.body.ops[figures["not_finite/place"]])
        kind = file.op(op).kind
    assert f"iteration {figures['not_finite/iteration']} is nan: {kind}" in told
    with a_task(tab(f"{server.url}?run={quote(str(path))}")) as page:
        page.page.locator("#cw-view-overview .finding", has_text="is not finite").click()
        page.wait("#cw-view-source tr.on")
    page.wait_query("op", str(op))
    page.wait(f"#cw-inspector :text('{kind}')")
    line = page.text("#cw-view-source tr.on")
    assert figures["not_finite/op"].rstrip(")").rpartition(":")[2] in line
    assert page.errors == []
