"""What quantisation lost: in the numbers, the overview, of two recordings, on the page."""

from __future__ import annotations

import json
import sqlite3
from urllib.parse import quote

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.pipelines.quantization import Quantization
from core_compiler.record.reader import Recording
from core_compiler.record.recorder import Recorder
from tests import accessibility
from tests.passes.programs import inputs, program
from widgets.encode import finite
from workbench import views
from workbench.export.tables import PAGE
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import compare, numerics, overview

VIEW = "#cw-view-numerics"
LOST, FLOATS = f"{VIEW} [data-tab=lost]", f"{VIEW} [data-tab=floats]"


def network():
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal(s).astype(np.float32) for s in ((8, 12), (12, 5))]

    def build(b, x):
        first, last = map(b.constant, weights)
        return b.matmul(b.cumsum(b.relu(b.matmul(x, first)), axis=1), last)

    return program(build, "16x8xf32")


def record(path, quantised=True, check=True, until="", arrays=None):
    """A compile of the network, or of its passes up to ``until``, which then fails."""
    module = network()
    arrays = inputs(module) if arrays is None else arrays
    edit = Quantization(method="percentile", percentile=98.0).edited(PipelineEdit())
    options = Options(check=check, edit=edit if quantised else PipelineEdit())
    recorder = Recorder(path)
    recorder.begin({"model": "network", "target": "cpu"})
    made = compilation.start(module, "cpu", options, arrays, recorder)
    while until and made.stages[-1].name != until:
        made.step()
    if until:
        recorder.end("failed", "planted: the pass raised")
    else:
        made.finish()
        recorder.end("finished")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``floats``, ``quantised``, ``unchecked`` and quantised, ``failed`` before what was lost was
    measured."""
    made = tmp_path_factory.mktemp("quantised")
    record(made / "floats.run", quantised=False)
    record(made / "quantised.run")
    record(made / "unchecked.run", check=False)
    record(made / "failed.run", until="insert_quantization")
    return made


@pytest.fixture
def opened(folder):
    made = []

    def open_(name):
        made.append(Run(folder / f"{name}.run"))
        return made[-1]

    yield open_
    for run in made:
        run.close()


# -- the data -------------------------------------------------------------------------------------


def test_values_and_ops_are_those_of_the_recording(opened, folder):
    data = views.data("numerics", (opened("quantised"),), ViewState())
    json.dumps(finite(data), allow_nan=False)
    with Recording.open(folder / "quantised.run") as file:
        recorded = file.quantisation()
        assert data["quantised"]["sqnr_db"] == recorded.sqnr_db
        assert data["lost_total"] == len(recorded.values) == len(data["lost"]) >= 4
        for row, value in zip(data["lost"], recorded.values, strict=True):
            assert (row["sqnr_db"], row["saturated"]) == (value.sqnr_db, value.saturated)
            assert row["floats"] == value.histogram[1] and row["from"] == value.histogram[0][0]
            if row["op"] is not None:
                assert value.value in file.op(row["op"]).results
        (left,) = data["floats"]
        assert left["kind"] == "core.cumsum" and left["reason"] == recorded.left[0].reason
        assert left["op"] == file.op_id(recorded.left[0].op)


def test_the_selection_marks_the_value_and_the_op_in_floats(opened):
    run = opened("quantised")
    data = numerics.data((run,), ViewState())
    imported = run.recording.module(0).main.body.ops
    for kind, rows in (("core.relu", data["lost"]), ("core.cumsum", data["floats"])):
        op = next(run.op_id(op) for op in imported if op.kind == kind)
        marked = numerics.selection((run,), ViewState(op=op))["ops"]
        assert {row["op"] for row in rows} & set(marked)


def test_a_run_without_checks_has_what_was_lost(opened):
    data = numerics.data((opened("unchecked"),), ViewState())
    assert data["lost_total"] and not data["counts"]["bitwise"]
    assert [name for _, name in data["value_stages"]] == ["integerize"]


def test_what_was_not_measured_is_said(opened):
    failed = numerics.data((opened("failed"),), ViewState())["quantised"]
    assert failed == {"measured": False, "results": 0, "sqnr_db": None, "waits": False}
    assert numerics.data((opened("floats"),), ViewState())["quantised"] is None


def test_the_overview_has_the_ratio_beside_the_error_of_the_passes(opened):
    def figures(name):
        run = opened(name)
        return {f["label"]: f for f in overview.data((run,), ViewState())["figures"]}, run

    found, run = figures("quantised")
    assert found["quantisation"]["value"] == run.figures()["quantised_sqnr_db"]
    assert "results in integers" in found["quantisation"]["hint"]
    assert figures("failed")[0]["quantisation"]["text"] == "not measured"
    assert "quantisation" not in figures("floats")[0]


def test_no_loss_at_all_is_infinite_in_words(folder, tmp_path):
    path = tmp_path / "exact.run"
    path.write_bytes((folder / "quantised.run").read_bytes())
    with sqlite3.connect(path) as database:
        database.execute("UPDATE figure SET value = 9e999 WHERE name = 'quantised_sqnr_db'")
        database.execute("UPDATE quantised_value SET sqnr = 9e999")
    database.close()
    run = Run(path)
    data = numerics.data((run,), ViewState())
    assert data["quantised"]["sqnr_db"] == "inf" == data["lost"][0]["sqnr_db"]
    figures = {f["label"]: f for f in overview.data((run,), ViewState())["figures"]}
    assert figures["quantisation"]["text"] == "no loss"
    run.close()


def test_tables_have_every_row(opened):
    run = opened("quantised")
    lost, left = (list(PAGE[name].rows(run)) for name in ("quantised_values", "float_ops"))
    assert len(lost) == numerics.data((run,), ViewState())["lost_total"] and len(left) == 1


# -- two recordings -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("floats", "quantised"), ("quantised", "floats")])
def test_values_from_integers_are_compared_with_those_in_floats(opened, order):
    a, b = map(opened, order)
    data = views.data("numerics", (a, b), ViewState())
    parts = {part["name"]: part for part in data["parts"]}
    assert set(parts) == {"import", "integers", "compiled"} and parts["integers"]["matched"] >= 3
    rows = [row for row in data["rows"] if row["part"] == "integers"]
    assert {row["why"] for row in rows} == {"value map"}
    for row in rows:
        assert row["differs"] and row["relative"] < 0.5, "both are in floats"
    for row in data["rows"]:
        assert (".i8" in row["a"]["type"]) == (".i8" in row["b"]["type"])
        kinds = ["i8>" in row[side]["type"] for side in "ab"]
        assert kinds[0] == kinds[1], "integers are not compared with floats"
    side = data["a" if order[0] == "quantised" else "b"]
    assert side["quantised"]["sqnr_db"] > 10


def test_two_quantised_recordings_are_compared_by_their_dequantised_values(opened):
    data = numerics.data((opened("quantised"), opened("unchecked")), ViewState())
    (part,) = data["parts"]
    assert part["name"] == "integers" and data["differing"] == 0 < data["total"]


def test_compare_has_the_ratio_of_both(opened):
    data = compare.data((opened("floats"), opened("quantised")), ViewState())
    rows = {row["name"]: row for row in data["figures"]}
    found = rows["SQNR of the outputs"]
    assert found["a"] is None and found["b"] > 10 and found["better"] == "more"


# -- the page -------------------------------------------------------------------------------------


@pytest.fixture
def page_of(server, tab, folder):
    pytest.importorskip("playwright", reason="the page is tested in a browser")
    return lambda name, query="": tab(
        f"{server.url}?run={quote(str(folder / f'{name}.run'))}{query}"
    )


@pytest.mark.playwright
def test_the_table_its_histogram_and_the_selection(page_of, opened):
    data = numerics.data((opened("quantised"),), ViewState())
    page = page_of("quantised", "&panes=numerics,graph")
    page.wait(f"{VIEW} [data-quantised]")
    said = page.text(f"{VIEW} [data-quantised]")
    assert f"{data['quantised']['sqnr_db']:.1f} dB" in said and "1 op left in floats" in said
    page.locate(f"{VIEW} [data-do=lost]").click()
    page.wait(f"{LOST}[aria-selected=true]")
    rows = page.locate(f"{VIEW} tbody tr")
    assert rows.count() == data["lost_total"]
    assert f"{data['lost'][0]['sqnr_db']:.1f}" in rows.first.inner_text()
    # Nothing is selected: the histogram is that of the worst value.
    page.wait(f"{VIEW} [data-lost='{data['lost'][0]['value']}']")
    relu = next(i for i, row in enumerate(data["lost"]) if row["kind"] == "core.relu")
    rows.nth(relu).locator("td").first.click()
    page.wait(f"{VIEW} [data-lost='{data['lost'][relu]['value']}']")
    page.wait("#cw-inspector .head b:has-text('core.relu')")
    bins = page.locate(f"{VIEW} .chart .bin")
    assert bins.count() == 32
    titles = bins.locator("title").all_text_contents()
    assert titles[0].endswith(
        f"{data['lost'][relu]['floats'][0]} in floats,"
        f" {data['lost'][relu]['dequantised'][0]} from integers"
    )
    table = page.saved(VIEW, "What quantisation lost, CSV").read_text().splitlines()
    assert len(table) == data["lost_total"] + 1 and table[0].startswith("place,stage,name")
    page.locate(FLOATS).click()
    page.wait(f"{VIEW} td.why")
    assert page.text(f"{VIEW} td.why") == data["floats"][0]["reason"]
    page.locate(f"{VIEW} tbody tr td").first.click()
    page.wait("#cw-inspector .head b:has-text('core.cumsum')")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_the_keys_go_from_value_to_value(page_of, opened):
    data = numerics.data((opened("unchecked"),), ViewState())
    page = page_of("unchecked", "&panes=numerics,graph")
    page.wait(f"{LOST}[aria-selected=true]")  # without checks it comes first
    page.locate(f"{VIEW} .scroll").focus()
    selectable = [row for row in data["lost"] if row["op"] is not None]
    page.press("ArrowDown")
    page.wait(f"{VIEW} [data-lost='{selectable[0]['value']}']")
    page.press("ArrowDown")
    page.wait(f"{VIEW} [data-lost='{selectable[1]['value']}']")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_small_window_shows_rows_and_the_histogram(page_of, scheme):
    page = page_of("unchecked", "&panes=numerics")
    page.page.emulate_media(color_scheme=scheme)
    page.page.set_viewport_size({"width": 1024, "height": 700})
    page.wait(f"{VIEW} .chart .integers")
    for selector in (f"{VIEW} .chart svg", f"{VIEW} tbody tr >> nth=2", LOST):
        box = page.locate(selector).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 1024
        assert box["y"] + box["height"] <= 700
    assert accessibility.findings(page.page, accessibility.axe()) == []
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_failed_and_float_runs_say_so_or_nothing(page_of):
    page = page_of("failed", "&panes=numerics")
    page.wait(f"{VIEW} [data-quantised]")
    assert "was not recorded" in page.text(f"{VIEW} [data-quantised]")
    assert page.locate(LOST).count() == 0
    assert page.errors == []
    page = page_of("floats", "&panes=numerics")
    page.wait(f"{VIEW} .told")
    assert page.locate(f"{VIEW} [data-quantised]").count() == 0 == page.locate(LOST).count()
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_two_recordings_side_by_side(page_of, folder):
    other = quote(str(folder / "quantised.run"))
    both = quote('{"ab":true}')
    page = page_of("floats", f"&other={other}&panes=numerics,graph&numerics.view={both}")
    page.wait(f"{VIEW} [data-part=integers][aria-selected=true]")
    assert "signal-to-noise ratio" in page.text(f"{VIEW} .two .told")
    assert page.errors == []
