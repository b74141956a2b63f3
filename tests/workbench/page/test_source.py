"""The source view: its figures against the recording, and where its clicks lead."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.ir import Block, FrontendNode, Function, Module, Origin
from core_compiler.record.reader import Recording
from core_compiler.record.recorder import Recorder
from tests.passes.programs import program
from tests.workbench.page.tasks import a_task
from tests.workbench.two_blocks import LINES
from widgets.encode import finite
from workbench.queries import kernel_texts
from workbench.queries.kernel_table import table
from workbench.queries.model_lines import NODES, model_lines, traced
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import code, source

VIEW = "#cw-view-source"


@pytest.fixture(scope="module")
def run(two_blocks):
    made = Run(two_blocks.run)
    yield made
    made.close()


@pytest.fixture
def opened(server, tab, two_blocks):
    """``opened(query)``: the page with the recording open."""
    return lambda query="": tab(f"{server.url}?run={quote(str(two_blocks.run))}{query}")


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """A recording without source texts and without times, of a model read from ONNX."""
    pytest.importorskip("torch", reason="the sample models need torch")
    from workbench.model import jobs, models
    from workbench.model.spec import read_spec

    path = tmp_path_factory.mktemp("bare") / "mlp.run"
    model = models.load(read_spec("digits-mlp", "onnx", width=0.25))
    jobs.compile(model, "cpu", Options(), path=path, source_text=False)
    return path


# -- the data -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_lines_and_nowhere_together_are_all_kernels(run):
    data = source.data((run,), ViewState())
    total = sum(t.median_us for t in run.timings())
    files = [f for f in data["files"] if f["path"] != NODES]
    (nodes,) = [f for f in data["files"] if f["path"] == NODES]
    assert sum(f["us"] for f in files) + data["nowhere_us"] == pytest.approx(total, rel=1e-12)
    assert sum(row["us"] for row in nodes["rows"]) == pytest.approx(total, rel=1e-9)
    assert data["total_us"] == pytest.approx(total, rel=1e-12)
    assert [f["us"] for f in files] == sorted((f["us"] for f in files), reverse=True)
    hottest = [each["us"] for each in data["hottest"]]
    assert hottest == sorted(hottest, reverse=True)
    assert hottest[0] == max(row["us"] for f in files for row in f["rows"])
    json.dumps(finite(data), allow_nan=False)


@pytest.mark.slow
def test_the_texts_are_the_recordings_own(run):
    texts = run.recording.sources()
    for file in source.data((run,), ViewState())["files"]:
        assert file["text"] == (texts.get(file["path"]) if file["path"] else None)
        for row in file["rows"]:
            if file["text"] is not None and row["text"]:
                assert row["text"] == file["text"].split("\n")[row["line"] - 1].strip()


def test_ops_are_counted_in_the_stage_shown(run):
    for stage in (0, len(run.stages()) - 1):
        data = source.data((run,), ViewState(stage=stage))
        counted = model_lines(run.recording).count(run.index(stage).module, run.op_id)
        for file in data["files"]:
            for row in file["rows"]:
                assert row["now"] == counted.get((file["path"], row["line"]), 0)
                assert stage or row["now"] == row["import"]
    assert source.key(run, ViewState(stage=0)) != source.key(run, ViewState(stage=3))


def test_a_line_selects_an_op_that_marks_the_line(run):
    """There and back: the op that a line selects leads to that line, or to one below it."""
    for file in source.data((run,), ViewState())["files"]:
        for row in file["rows"]:
            if row["op"] is None:
                continue
            marked = source.selection((run,), ViewState(op=row["op"]))
            places = [[NODES, n] for n in marked["nodes"]] + marked["path"] + marked["lines"]
            assert [file["path"], row["line"]] in places


def test_a_kernel_marks_the_line_that_takes_most_of_its_dearest_launch(run):
    found = traced(run)
    for row in table(run):
        if not row["count"]:
            continue
        marked = source.selection((run,), ViewState(kernel=row["id"]))
        kernel = next(k for k in run.kernels() if k.id == row["id"])
        timings = {t.op: t.median_us for t in run.timings()}
        launch = max(kernel.launches, key=lambda op: timings[op])
        shares = found.of_launch[launch]
        assert shares[marked["node"] - 1] == max(shares.values())


def test_the_code_marks_the_lines_that_compute_the_op(run):
    """Of a convolution: the innermost work, no loop around everything."""
    convs = [op for op in run.index(0).module.main.body.ops if op.kind == "core.conv"]
    assert convs
    for conv in convs:
        chosen = code.selection((run,), ViewState(op=run.op_id(conv)))
        kernel = next(k for k in run.kernels() if k.id == chosen["kernel"])
        lines = {line for line, op in kernel.line_map if op in chosen["ops"]}
        assert lines and lines < {line for line, _ in kernel.line_map}
        kinds = {run.recording.op(op).kind for op in chosen["ops"]}
        assert "kernel.for" not in kinds


@pytest.mark.slow
def test_without_source_there_are_rows_and_nodes(bare):
    run = Run(bare)
    data = source.data((run,), ViewState())
    assert not data["measured"] and {f["text"] for f in data["files"]} == {None}
    (nodes,) = [f for f in data["files"] if f["path"] == NODES]
    kinds = {row["kind"] for row in nodes["rows"]}
    assert {"Gemm", "Erf"} <= kinds  # a gelu in its parts
    assert sum(row["flops"] for row in nodes["rows"]) > 0
    run.close()


# -- in a browser ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.playwright
def test_the_slowest_kernel_and_its_model_line_in_two_clicks(opened, run):
    with a_task(opened(), 2) as page:
        page.locate("#cw-view-overview .kernel").first.click()  # the list is sorted by time
        page.drawn("code")  # at its hot loop
        hot = kernel_texts.hot_line(run.recording.kernel_text(table(run)[0]["id"], "source"))
        page.wait(f'#cw-view-code .pane:first-child .row[data-line="{hot}"]')
        page.locate("#cw-inspector .place .link").first.click()
        page.wait(f"{VIEW} tr.on td.code")
    slowest = table(run)[0]
    page.wait_query("panes", "source", partly=True)
    file, line = source.selection((run,), ViewState(kernel=slowest["id"]))["lines"][0]
    assert page.locate(f"{VIEW} tr.on").get_attribute("data-line") == str(line)
    shown = page.locate(f"{VIEW} tr.on td.code").inner_text()
    assert shown.strip() == run.recording.sources()[file].split("\n")[line - 1].strip()
    # Each node that the op came from leads to its own line.
    links = page.locate("#cw-inspector .place .link")
    links.last.click()
    wanted = links.last.inner_text().rpartition(":")[2]
    page.wait(f'{VIEW} tr.on[data-line="{wanted}"]')
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_the_assembly_of_the_line_under_the_cursor(opened, run):
    """Source, a line, Enter: its kernel's code, the lines of the assembly marked."""
    page = opened()
    page.wait("#cw-view-overview .kernel")
    page.show("source")
    page.wait(f"{VIEW} tr.on")  # the cursor is on the hottest line
    page.locate(f"{VIEW} tr.on").click()
    page.wait("#cw-inspector .place .link")
    page.press("Enter")
    page.drawn("code")
    page.wait("#cw-view-code .pane:nth-last-child(1) .row.pinned")
    page.wait_query("panes", "source,code")
    hottest = source.data((run,), ViewState())["hottest"][0]
    page.wait_query("kernel", str(hottest["kernel"]))
    title = page.text("#cw-view-code .pane:nth-last-child(1) h3")
    assert title.startswith("Assembly")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_keys_walk_the_lines_and_everything_follows(opened, run):
    page = opened("&panes=source,graph")
    page.wait(f"{VIEW} tr.on")
    lines = [int(row.get_attribute("data-line")) for row in page.locate(f"{VIEW} tr.ops").all()]
    page.locate(f"{VIEW} .scroll").focus()
    page.press("Home")
    ops = {r["line"]: r["op"] for r in source.data((run,), ViewState())["files"][0]["rows"]}
    page.wait_query("op", str(ops[lines[0]]))
    page.press("ArrowDown")
    page.wait(f'{VIEW} tr.on[data-line="{lines[1]}"]')
    page.wait_query("op", str(ops[lines[1]]))
    page.page.go_back()
    page.wait(f'{VIEW} tr.on[data-line="{lines[0]}"]')
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_an_op_selected_elsewhere_is_found_in_the_source(opened, run, two_blocks):
    page = opened("&panes=source,graph&stage=0")
    page.wait(f"{VIEW} tr.on")
    page.drawn("graph")
    (conv,) = [op for op in run.index(0).module.main.body.ops if op.kind == "core.conv"]
    page.locate("#cw-bar input[type=search]").fill("core.conv")
    page.wait("#cw-bar .hit .text")
    page.press("Enter")
    page.wait_query("op", str(run.op_id(conv)))
    line = LINES["z = self.conv(y[:, None, :])"]
    page.wait(f'{VIEW} tr.on[data-line="{line}"]')
    assert page.locate(f"{VIEW} tr.path").count() == 1  # nothing calls it but the network itself
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_a_call_shows_what_is_below_it_and_leads_there(opened, run, two_blocks):
    page = opened("&panes=source")
    call = f'{VIEW} tr.calls[data-line="{LINES["y = self.first(x)"]}"]'
    page.wait(call)
    below = traced(run).lines[two_blocks.source, LINES["y = self.first(x)"]]
    assert below.own.flops == 0 < below.total.flops
    page.locate(call).click()
    page.wait_query("op", str(below.op))
    page.wait(f"{call[:-1]}].on")  # the cursor stays at the call
    page.locate(call).dblclick()
    node = traced(run).nodes[traced(run).nodes_of(below.op)[0]]
    page.wait(f'{VIEW} tr.on[data-line="{node.place[1]}"]')
    page.press("ArrowLeft")
    page.wait(f"{call[:-1]}].on")
    page.press("ArrowRight")
    page.wait(f'{VIEW} tr.on[data-line="{node.place[1]}"]')
    # Before anybody has said where the call leads: it is gone into when that is known.
    page.press("Home")
    page.rest()
    source_lines = page.locate(f"{VIEW} .scroll").first
    numbers = page.locate(f"{VIEW} tr.ops").evaluate_all("(all) => all.map((e) => +e.dataset.line)")
    down = numbers.index(LINES["y = self.first(x)"])
    page.quickly(source_lines, *["ArrowDown"] * down, "ArrowRight")
    page.wait(f'{VIEW} tr.on[data-line="{node.place[1]}"]')
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_files_calls_and_downloads(opened, run):
    page = opened("&panes=source")
    page.wait(f"{VIEW} tr.on")
    page.locate(f"{VIEW} .bar select").select_option(label="Nodes of the graph")
    page.wait(f"{VIEW} td.code .hl-f")
    data = source.data((run,), ViewState())
    (nodes,) = [f for f in data["files"] if f["path"] == NODES]
    assert page.locate(f"{VIEW} tr.ops").count() == len(nodes["rows"])
    page.page.wait_for_function("() => location.search.includes('source.view')")
    text = page.saved(f"{VIEW} .bar", "All lines, CSV").read_text().split("\n")
    assert len(text) == 1 + sum(len(f["rows"]) for f in data["files"])
    assert text[0].startswith("file,line,node,own_us")
    page.locate(f"{VIEW} .hot .row").first.click()
    hottest = data["hottest"][0]
    page.wait(f'{VIEW} tr.on[data-line="{hottest["line"]}"]')
    page.wait_query("op", str(hottest["op"]))
    calls = page.locate(f"{VIEW} tr.calls td.amount").first
    before = calls.inner_text()
    page.page.locator(f"{VIEW} .bar button", has_text="calls").click()
    assert page.locate(f"{VIEW} tr.calls td.amount").first.inner_text() != before
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_a_recording_without_source_says_so(server, tab, bare):
    page = tab(f"{server.url}?run={quote(str(bare))}&panes=source")
    page.wait(f"{VIEW} tr.ops")
    assert "not timed: press Execute" in page.text(f"{VIEW} .bar")
    with Recording.open(bare) as file:
        assert file.sources() == {}
    assert page.errors == []


def on_lines(path: Path, lines: tuple[int, int, int], text: str) -> Path:
    """A recording of three ops that come from ``lines`` of a file with ``text``."""
    module = program(lambda b, x: b.log(b.exp(b.neg(x))), "4x5xf32")
    block = module.main.body
    nodes = [
        FrontendNode(op.kind, op.kind, "model.py", line)
        for op, line in zip(block.ops, lines, strict=True)
    ]
    ops = tuple(
        op.with_(origin=Origin.root(node)) for op, node in zip(block.ops, nodes, strict=True)
    )
    module = Module({"main": Function("main", Block(block.arguments, ops, block.outputs))})
    recorder = Recorder(path)
    recorder.begin({"model": path.stem, "sources": {"model.py": text}})
    compilation.start(module, observer=recorder).finish()
    recorder.end("finished")
    return path


@pytest.mark.slow
@pytest.mark.playwright
def test_another_recording_shows_its_own_text_and_selects_its_own_ops(server, tab, tmp_path):
    """The lines of both have the same numbers, their texts the same length."""
    first = on_lines(tmp_path / "first.run", (1, 2, 2), "x = 0 - x\nx = log(x)\n")
    second = on_lines(tmp_path / "second.run", (1, 1, 2), "y = 0 - y\ny = log(y)\n")
    page = tab(f"{server.url}?run={quote(str(first))}&panes=source&stage=0")
    code = page.locate(f"{VIEW} tr.ops .code")
    page.wait(f"{VIEW} tr.ops .code:has-text('x = log(x)')")
    page.page.evaluate(
        "(query) => { history.pushState(null, '', query); dispatchEvent(new Event('popstate')); }",
        f"?run={quote(str(second))}&panes=source&stage=0",
    )
    page.wait(f"{VIEW} tr.ops .code:has-text('y = log(y)')")
    page.rest()
    assert code.all_inner_texts() == ["y = 0 - y", "y = log(y)"]
    run = Run(second)
    (file,) = [f for f in source.data((run,), ViewState(stage=0))["files"] if f["path"] != NODES]
    run.close()
    code.last.click()
    page.wait_query("op", str(file["rows"][1]["op"]))
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_lines_that_the_recorded_text_has_not_stand_below_it(server, tab, tmp_path):
    """The file was made shorter after the export, and one op has no line; drawn at two stages."""
    path = on_lines(tmp_path / "shorter.run", (2, 0, 7), "import model\nx = -x\n")
    page = tab(f"{server.url}?run={quote(str(path))}&panes=source&stage=0")
    page.wait(f"{VIEW} tr.ops")
    drawn = page.locate(f"{VIEW} tr.ops .no")
    assert drawn.all_inner_texts() == ["2", "0", "7"]
    page.press("j")
    page.wait(f"{VIEW} tr.ops td[title*=' after ']:not([title$=' after import'])")
    assert drawn.all_inner_texts() == ["2", "0", "7"]
    assert page.errors == []
