"""Kernels beside what the machine allows: against the recording, and as a person uses it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import xml.etree.ElementTree as ElementTree
from contextlib import closing
from urllib.parse import quote

import numpy as np
import pytest

from core_compiler.record.reader import Recording
from core_compiler.record.recorder import Recorder
from tests.workbench.two_targets import LINES, ROWS
from workbench.queries import kernel_table
from workbench.queries.run import Run
from workbench.queries.work import roofs, work
from workbench.state.view_state import ViewState
from workbench.views import Empty, code, inspector, kernels, overview, timeline

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

VIEW = "#cw-view-kernels"


@pytest.fixture(scope="module")
def cpu(two_targets):
    run = Run(two_targets.cpu)
    yield run
    run.close()


@pytest.fixture(scope="module")
def cuda(two_targets):
    run = Run(two_targets.cuda)
    yield run
    run.close()


# -- the data -------------------------------------------------------------------------------------


def test_predicted_times_are_under_the_measured_roofs(recording):
    """Each launch by hand: its arithmetic at the peak, its bytes at the bandwidth for so many."""
    with Recording.open(recording) as file:
        timings, roofs = file.timings(), json.loads(file.figures("timing")["limits"])

    def bandwidth(nbytes):
        curves = [np.transpose(roofs[name]) for name in ("read", "copy")]
        return max(np.interp(np.log2(nbytes), np.log2(x), y) for x, y in curves)

    least = {}
    for t in timings:
        seconds = max(t.flops / roofs["flops"], t.bytes / bandwidth(t.bytes))
        least[t.kernel] = least.get(t.kernel, 0.0) + 1e6 * seconds
    run = Run(recording)
    rows = {r["name"]: r for r in kernel_table.table(run) if r["count"]}
    for name, row in rows.items():
        assert row["predicted_us"] == pytest.approx(least[name])
        assert row["ratio"] == pytest.approx(row["total_us"] / least[name])
        assert row["percent"] == pytest.approx(100 / row["ratio"])
        assert row["intensity"] == pytest.approx(row["flops"] / row["bytes"])
    shown = kernels.data((run,), ViewState())
    assert shown["roofs"]["measured"] and shown["roofs"]["gflops"] == roofs["flops"] / 1e9
    assert len(shown["launches"]["op"]) == sum(1 for t in timings if t.flops)
    json.dumps(shown, allow_nan=False)
    run.close()


def test_what_was_not_executed_shows_the_recorded_prediction_and_its_bound(cuda):
    shown = kernels.data((cuda,), ViewState())
    assert shown["forecast"] and not shown["measured"]
    recorded = {k.name: k.facts["predictions"] for k in cuda.kernels()}
    for row in shown["rows"]:
        each = recorded[row["name"]]
        assert row["predicted_us"] == pytest.approx(sum(p["us"] for p in each))
        assert row["bound"] in {p["bound_by"] for p in each}
        assert row["bound"] in row["needs"]
        assert row["predicted_us"] >= 4.0 * row["count"], "the latency of its launches"
    assert sum(r["predicted_share"] for r in shown["rows"]) == pytest.approx(1.0)
    us = sum(r["predicted_us"] for r in shown["rows"])
    lane = timeline.data((cuda,), ViewState())
    assert lane["predicted"] and lane["total"] == pytest.approx(us)
    assert set(lane["bounds"]) == {p["bound_by"] for each in recorded.values() for p in each}
    (tile,) = (
        each
        for each in overview.data((cuda,), ViewState())["figures"]
        if each["label"] == "predicted time"
    )
    assert tile["value"] == pytest.approx(us / 1e3) and "on h200, mostly bound by" in tile["hint"]
    facts = inspector.data((cuda,), ViewState(kernel=shown["rows"][0]["id"]))
    assert shown["rows"][0]["bound"] in json.dumps(facts, default=str)


def test_without_a_recorded_prediction_the_time_is_the_machines_limit(cpu, cuda, tmp_path):
    """An older recording has none.  The same launches as the processor's, whose work was recorded,
    on an H200 as NVIDIA states it: 67 TFLOP/s in single precision, 4.8 TB/s."""
    path = shutil.copy(cuda.path, tmp_path / "older.run")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE kernel SET facts = json_remove(facts, '$.predictions')")
    older = Run(path)
    _is_predicted_by_its_limits(cpu, older)
    older.close()


def _is_predicted_by_its_limits(cpu, cuda):
    shown = kernels.data((cuda,), ViewState())
    assert not shown["measured"] and shown["gpu"] and not shown["roofs"]["measured"]
    assert not shown["forecast"]
    assert shown["roofs"]["name"] == "h200"
    assert shown["roofs"]["gflops"] == pytest.approx(67e3, rel=0.01)
    assert shown["roofs"]["gbytes_per_s"] == 4800
    recorded = {t.kernel: t for t in cpu.recording.timings()}
    for row in shown["rows"]:
        work = recorded[row["name"]]
        assert (row["flops"], row["bytes"]) == (work.flops, work.bytes)
        memory, arithmetic = work.bytes / 4.8e12, work.flops / 67e12
        assert row["predicted_us"] == pytest.approx(1e6 * max(memory, arithmetic), rel=0.01)
        assert row["bound"] == ("memory" if memory > arithmetic else "arithmetic")
        assert row["total_us"] is None and row["ratio"] is None
    assert sum(r["predicted_share"] for r in shown["rows"]) == pytest.approx(1.0)


def test_launch_shapes_cover_the_rows(cuda):
    rows = {r["name"]: r for r in kernel_table.table(cuda)}
    (norm,) = [r for name, r in rows.items() if name.startswith("reduce_sum")]
    assert norm["grid"] == ROWS, "a block for each row"
    for kernel in cuda.kernels():
        row = rows[kernel.name]
        facts = kernel.facts
        assert (row["grid"], row["threads"]) == (max(facts["work_items"]), facts["threads"])
        assert row["spilled"] == 0 and row["threads"] % 32 == 0


def test_rows_name_the_line_of_their_dearest_launch(cuda, two_targets):
    places = {r["place"] for r in kernel_table.table(cuda)}
    assert f"{two_targets.source}:{LINES['y = self.norm(x)']}" in places


def test_an_older_recording_has_the_roofs_it_kept(recording, tmp_path):
    """Before the curve of bandwidths was recorded, there was its end, and the percents."""
    path = tmp_path / "older.run"
    path.write_bytes(recording.read_bytes())
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM figure WHERE name = 'limits'")
    database.close()
    new, old = Run(recording), Run(path)
    for a, b in zip(kernel_table.table(new), kernel_table.table(old), strict=True):
        assert a["name"] == b["name"]
        if a["percent"]:
            assert b["percent"] == pytest.approx(a["percent"], abs=0.01)
    new.close()
    old.close()


def busy(recording, path):
    """The recording as if its machine's limits had been measured while it was busy."""
    path.write_bytes(recording.read_bytes())
    with sqlite3.connect(path) as database:
        ((text,),) = database.execute("SELECT value FROM figure WHERE name = 'limits'")
        low = json.loads(text)
        low["flops"] /= 1e3
        low |= {name: [[s, rate / 1e3] for s, rate in low[name]] for name in ("read", "copy")}
        database.execute("UPDATE figure SET value = ? WHERE name = 'limits'", (json.dumps(low),))
    database.close()
    return path


def test_a_kernel_above_the_measured_limit_says_so(recording, tmp_path):
    with closing(Run(busy(recording, tmp_path / "busy.run"))) as run:
        rows = [row for row in kernels.data((run,), ViewState())["rows"] if row["percent"]]
        assert any(row["beyond"] for row in rows)
        assert all(row["beyond"] == (row["percent"] > 105) for row in rows)
        chosen = next(row for row in rows if row["beyond"])
        told = json.dumps(inspector.data((run,), ViewState(kernel=chosen["id"])))
        assert "above the measured limit" in told


def test_before_the_first_stage_there_is_nothing_to_predict(tmp_path):
    path = tmp_path / "begun.run"
    recorder = Recorder(path)
    recorder.begin({"model": "rows", "target": "cuda"})
    run = Run(path)
    assert kernel_table.table(run) == [] == work(run)
    assert roofs(run).name == "h200"
    with pytest.raises(Empty, match="generate_code"):
        kernels.data((run,), ViewState())
    run.close()
    recorder.end("cancelled")


def test_a_line_is_labelled_with_the_models_line(cuda):
    row = next(r for r in kernel_table.table(cuda) if r["name"].startswith("reduce_sum"))
    data = code.data((cuda,), ViewState(kernel=row["id"]))
    labels = {g["label"] for g in data["groups"] if g.get("label")}
    here = f"rows.py:{LINES['y = self.norm(x)']}"
    assert any("layer_norm" in label and label.endswith(here) for label in labels)


def test_sass_keeps_its_lines(cuda):
    for kernel in cuda.kernels():
        panes = {
            p["title"]: p["text"] for p in code.data((cuda,), ViewState(kernel=kernel.id))["panes"]
        }
        recorded = cuda.recording.kernel_text(kernel.id, "assembly")
        assert [line.split() for line in panes["SASS"].split("\n")] == [
            line.split() for line in recorded.split("\n")
        ]
        instructions = [x for x in panes["SASS"].split("\n") if x.lstrip().startswith("/*")]
        assert instructions and all(x[:4] == "  /*" and x[10:13] != "   " for x in instructions)


# -- in a browser ---------------------------------------------------------------------------------


@pytest.fixture
def opened(server, tab):
    """``opened(path, query)``: the page with a recording open."""
    return lambda path, query="": tab(f"{server.url}?run={quote(str(path))}{query}")


@pytest.mark.slow
@pytest.mark.playwright
def test_a_point_of_the_roofline_selects_its_kernel_everywhere(opened, cpu, two_targets):
    page = opened(two_targets.cpu, "&panes=kernels,code")
    first, second = kernel_table.table(cpu)
    page.wait(f"{VIEW} .point")
    assert page.locate(f"{VIEW} .point").count() == 2
    for row in (second, first):
        page.locate(f'{VIEW} .point[data-kernel="{row["id"]}"]').click()
        page.wait_query("kernel", str(row["id"]))
        page.wait(f'{VIEW} tr.on[data-kernel="{row["id"]}"]')
        page.wait(f'{VIEW} .point.on[data-kernel="{row["id"]}"]')
        page.wait(f'#cw-view-code .bar:has-text("{row["name"]}")')
        page.wait(f'#cw-inspector :text("{row["name"]}")')
    page.press("End")  # the last mark
    page.press("Enter")
    page.wait_query("kernel", str(second["id"]))
    assert not page.errors


@pytest.mark.slow
@pytest.mark.playwright
@pytest.mark.parametrize(("factor", "unit"), [(1, "µs"), (1e4, "ms"), (1e8, "s")])
def test_times_of_a_column_have_one_unit(server, tab, two_targets, tmp_path, factor, unit):
    """That of the largest; the numbers are those of the recording."""
    path = shutil.copy(two_targets.cpu, tmp_path / "slow.run")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE launch_time SET median = ? * (1 + launch)", (factor,))
    run = Run(path)
    wanted = {row["id"]: row["total_us"] for row in kernel_table.table(run) if not row["core"]}
    run.close()
    page = tab(f"{server.url}?run={quote(str(path))}&panes=kernels")
    page.wait(f"{VIEW} tbody tr")
    head = page.locate(f"{VIEW} thead th").all_inner_texts()
    column = next(i for i, text in enumerate(head) if text.startswith("total"))
    assert head[column].split()[-1] == unit
    for kernel, us in wanted.items():
        text = page.text(f'{VIEW} tr[data-kernel="{kernel}"] td >> nth={column}')
        shown = float(text.replace(",", "")) * {"µs": 1, "ms": 1e3, "s": 1e6}[unit]
        assert shown == pytest.approx(us, rel=0.006)


@pytest.mark.slow
@pytest.mark.playwright
def test_table_roofline_or_both_stays_in_the_address_and_downloads(opened, cpu, two_targets):
    page = opened(two_targets.cpu, "&panes=kernels")
    page.wait(f"{VIEW} .chart svg")
    page.locate(f'{VIEW} th[data-column="ratio"]').click()
    page.locate(f'{VIEW} [data-mode="table"]').click()
    page.wait(f"{VIEW} .chart", state="hidden")
    page.wait_query("kernels.view", '{"mode":"table","order":["ratio",-1]}')
    page.page.reload()
    page.wait(f"{VIEW} .scroll", state="visible")
    assert page.locate(f"{VIEW} .chart").is_hidden()
    shown = page.locate(f"{VIEW} tbody tr").evaluate_all("rows => rows.map(r => r.dataset.kernel)")
    wanted = sorted(kernel_table.table(cpu), key=lambda r: -r["ratio"])
    assert shown == [str(r["id"]) for r in wanted]
    page.locate(f'{VIEW} [data-mode="roofline"]').click()
    page.wait(f"{VIEW} .chart svg")
    assert page.locate(f"{VIEW} .scroll").is_hidden()
    drawing = ElementTree.parse(page.saved(VIEW, "Roofline, SVG")).getroot()
    circles = [e for e in drawing.iter() if e.tag.endswith("circle")]
    assert len(circles) == 2 and all(c.get("fill", "").startswith("rgb") for c in circles)
    assert "var(" not in ElementTree.tostring(drawing, encoding="unicode")
    assert not page.errors


@pytest.mark.slow
@pytest.mark.playwright
def test_a_gpus_kernels_say_what_they_need_and_why_nothing_was_measured(
    opened, cuda, two_targets, tmp_path
):
    path = tmp_path / "asked.run"
    path.write_bytes(two_targets.cuda.read_bytes())
    with sqlite3.connect(path) as database:
        database.execute(
            "INSERT INTO figure (stage, section, name, value)"
            " VALUES (NULL, 'run', 'not_executed', 'there is no NVIDIA driver')"
        )
    database.close()
    page = opened(path, "&panes=kernels")
    page.wait(f'{VIEW} .why:has-text("not executed: there is no NVIDIA driver")')
    assert "on h200" in page.text(f"{VIEW} .bar")
    heads = page.locate(f"{VIEW} th").evaluate_all("all => all.map((th) => th.dataset.column)")
    assert {"predicted_us", "grid", "threads", "registers", "shared", "spilled"} <= set(heads)
    assert not {"total_us", "gflops", "percent"} & set(heads)
    row = kernel_table.table(cuda)[0]
    cells = page.locate(f'{VIEW} tr[data-kernel="{row["id"]}"] td').all_inner_texts()
    found = dict(zip(heads, cells, strict=True))
    assert found["registers"] == f"{row['registers']:.0f}"
    assert found["grid"] == str(row["grid"])
    assert page.locate(f"{VIEW} .point.said").count() == len(cuda.kernels())
    assert not page.errors


@pytest.mark.slow
@pytest.mark.playwright
def test_the_sass_of_the_line_under_the_cursor_in_two_clicks(opened, cuda, two_targets):
    """From the first page: the kernel in the overview, then its line."""
    kernel = next(k for k in cuda.kernels() if k.name.startswith("reduce_sum"))
    lines: dict[int, list[int]] = {}
    for line, at in kernel.assembly_map:
        lines.setdefault(at, []).append(line)
    with_op = {line for line, _ in kernel.line_map}
    at = max((n for n in lines if n in with_op and n < 60), key=lambda n: len(lines[n]))
    page = opened(two_targets.cuda)
    # Advice comes when the rest is drawn, and moves what stands below it.
    page.wait("#cw-view-overview h2:has-text('Findings'):not(:has-text('looking'))")
    page.locate(f'#cw-view-overview .kernel:has-text("{kernel.name}")').click()  # 1
    page.drawn("code")
    page.wait_query("kernel", str(kernel.id))
    source, sass = page.locate("#cw-view-code .pane").first, page.locate("#cw-view-code .pane").last
    row = source.locator(f'[data-line="{at}"]')
    source.locator(".lines").evaluate("(e, n) => e.scrollTop = 18 * (n - 5)", at)
    row.hover(position={"x": 60, "y": 8})
    page.wait("#cw-view-code .pane:first-child .row.hover")
    row.click(position={"x": 60, "y": 8})  # 2
    page.wait("#cw-view-code .pane:last-child .row.pinned")
    marked = sass.locator(".row.pinned").evaluate_all("rows => rows.map((r) => +r.dataset.line)")
    assert marked and set(marked) <= set(lines[at])
    label = page.text("#cw-view-code .bar [aria-live]")
    assert "1 ↔" in label and f"↔ {len(lines[at])} lines" in label
    # and back: an instruction leads to its source line
    other = next(n for n in sorted(lines) if n != at)
    sass.locator(".lines").evaluate("(e, n) => e.scrollTop = 18 * (n - 5)", lines[other][0])
    back = sass.locator(f'[data-line="{lines[other][0]}"]')
    back.click(position={"x": 60, "y": 8})
    page.wait(f'#cw-view-code .pane:first-child .row.pinned[data-line="{other}"]')
    assert not page.errors


@pytest.mark.slow
@pytest.mark.playwright
def test_texts_of_a_kernel_can_be_hidden(opened, two_targets):
    page = opened(two_targets.cuda, "&panes=code")
    page.drawn("code")
    page.locate('#cw-view-code .bar button:text-is("PTX")').click()
    page.wait_query("code.view", '{"hidden":["PTX"]}')
    titles = page.locate("#cw-view-code .pane:visible h3 span:first-child").all_inner_texts()
    assert titles == ["Generated source", "SASS"]
    page.page.reload()
    page.drawn("code")
    assert page.locate("#cw-view-code .pane:visible").count() == 2
    assert not page.errors
