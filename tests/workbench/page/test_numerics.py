"""The numbers view: against the recording, and as a person uses it."""

from __future__ import annotations

import sqlite3
from urllib.parse import quote

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.pipelines.pipeline import PipelineEdit, build
from core_compiler.record.reader import Recording
from core_compiler.record.recorder import Recorder
from core_compiler.targets.cpu import CPU
from tests.debug import faults
from tests.passes.programs import program
from tests.workbench.page.tasks import a_task
from workbench.advice.findings import problems
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import Empty, numerics

VIEW = "#cw-view-numerics"
#: Inputs of which some have no logarithm.
BAD = np.linspace(-1, 2, 20, dtype=np.float32).reshape(4, 5)
NONE = int((BAD < 0).sum())


@pytest.fixture(scope="module")
def run(recording):
    made = Run(recording)
    yield made
    made.close()


@pytest.fixture(scope="module")
def beside_torch(tmp_path_factory):
    """A recording whose import was compared with torch."""
    pytest.importorskip("torch", reason="the sample models need torch")
    from workbench.model import jobs, models
    from workbench.model.spec import read_spec

    path = tmp_path_factory.mktemp("beside") / "beside.run"
    model = models.load(read_spec("digits-mlp", None, width=0.25))
    jobs.compile(model, "cpu", path=path, against="torch")
    return path


@pytest.fixture(scope="module")
def file(recording):
    with Recording.open(recording) as opened:
        yield opened


def record(path, module, inputs, check=True, edit=PipelineEdit(), until="bufferize"):
    """A compile of ``module`` until it has buffers."""
    recorder = Recorder(path)
    recorder.begin({"model": "planted", "target": "cpu"})
    made = compilation.start(module, "cpu", Options(check=check, edit=edit), inputs, recorder)
    while made.stages[-1].name != until:
        made.step()
    recorder.end("finished")
    return path


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A pass turns exp(-x) into exp(x) and says that bits are kept; and a value has NaN."""
    module = program(lambda b, x: b.add(b.exp(b.neg(x)), b.log(x)), "4x5xf32")
    labels = [step.label for step in build(CPU(), {})]
    at = labels.index("fold_constants") + 1
    edit = PipelineEdit(insert=((at, faults.Rules((faults.NEGATED_TWICE,))),))
    return record(tmp_path_factory.mktemp("broken") / "broken.run", module, [BAD], edit=edit)


# -- the data -------------------------------------------------------------------------------------


def test_passes_have_their_checks_and_errors(run, file):
    found = numerics.data((run,), ViewState())
    counted = file.query(
        "SELECT stage, verdict, count(*) FROM check_result GROUP BY stage, verdict"
    )
    for stage, verdict, count in counted.rows:
        assert found["passes"][stage]["verdicts"][verdict] == count
    figures = file.figures()
    accumulated = {p["index"]: p["accumulated"] for p in found["passes"]}
    assert {f"accumulated_error/{i}": e for i, e in accumulated.items() if e is not None} == {
        name: value for name, value in figures.items() if name.startswith("accumulated_error/")
    }
    # Folding the batch norms is what changes bits first (and only) in this model.
    assert found["first"]["name"] == "fold_batch_norm"
    assert found["first"]["worst"] == max(s.worst_error or 0.0 for s in file.stages())


def test_checks_are_those_of_the_stage_with_the_numbers_at_the_worst_element(run, file):
    stage = next(s.index for s in file.stages() if s.pass_name == "fold_batch_norm")
    every = numerics.data((run,), ViewState(stage=stage))["checks"]
    rows = [r for r in every if r["rewrite"] is not None]
    (results,) = (r for r in every if r["rewrite"] is None)
    assert results["verdict"] == "within" and "against f64" in results["note"]
    records = {r.number: r.check for r in file.rewrites(stage)}
    assert sorted(r["rewrite"] for r in rows) == sorted(records)
    errors = [r["error"] for r in rows]
    assert errors == sorted(errors, reverse=True)
    for row in rows:
        check = records[row["rewrite"]]
        assert (row["verdict"], row["error"]) == (check.verdict, check.worst_error)
        assert row["element"] == list(check.index)
        assert np.float32(row["old"]) == np.float32(check.old)
        ours = abs(
            int(np.float32(row["old"]).view(np.int32)) - int(np.float32(row["new"]).view(np.int32))
        )
        assert row["ulps"] == ours > 0
        assert row["absolute"] == abs(check.old - check.new) > 0
        assert row["file"] and row["line"] > 0
        assert row["op"] in {file.op_id(op) for op in file.module(stage).main.body.ops}


def test_checks_of_machine_code_lead_to_their_launches(run, file):
    stage = next(s.index for s in file.stages() if s.pass_name == "generate_code")
    rows = numerics.data((run,), ViewState(stage=stage))["checks"]
    launches = {
        file.op_id(op): op["kernel"]
        for op in file.module(stage).main.body.ops
        if op.kind == "target.launch"
    }
    told = {k: f"kernel {n}" for k, n in launches.items()}
    assert {r["op"]: r["note"] for r in rows} == {**told, None: "the program, executed three times"}


def test_values_are_the_statistics_of_the_recording(run, file):
    data = numerics.data((run,), ViewState())
    stats = {(s.stage, file.value_id(s.value)): s for s in file.tensors()}
    assert len(data["values"]) == data["values_total"] == len(stats) > 10
    for row in data["values"]:
        found = stats[row["stage"], row["value"]]
        assert (row["minimum"], row["maximum"]) == (found.minimum, found.maximum)
        assert len(row["bins"]) in (0, 1, 24)
        if row["op"] is not None:
            assert file.value(row["value"]) in file.op(row["op"]).results
    assert [s for s, _ in data["value_stages"]] == sorted({stage for stage, _ in stats})


def test_a_failed_check_and_nan_come_first(broken):
    run = Run(broken)
    found = numerics.data((run,), ViewState())
    first = found["first"]
    assert first["verdicts"]["failed"] == 1 and found["counts"]["failed"] == 1
    (row, *_) = numerics.data((run,), ViewState(stage=first["index"]))["checks"]
    assert row["verdict"] == "failed" and row["rule"] == "exp(-x) => exp(x)"
    assert row["ulps"] > 1000 and row["tolerance"] is None
    worst, *rest = found["values"]
    assert worst["kind"] == "core.log" and worst["nan"] == NONE and worst["first_bad"]
    bad = [v for v in rest if v["nan"]]
    assert bad and found["values"][1 : 1 + len(bad)] == bad
    (nan,) = [f for f in problems(run) if "NaN" in f.title]
    assert nan.severity == "error" and nan.go["op"] == worst["op"]
    run.close()


def test_values_with_inf_come_first_and_stages_stay_in_order(recording, file, tmp_path):
    stage = max(s.stage for s in file.tensors())
    path = tmp_path / "inf.run"
    path.write_bytes(recording.read_bytes())
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE tensor_stats SET inf = 3 WHERE stage = {stage} AND value > 20")
    database.close()
    run = Run(path)
    found = numerics.data((run,), ViewState())
    assert found["values"][0]["stage"] == stage and found["values"][0]["inf"] == 3
    assert [s for s, _ in found["value_stages"]] == [0, stage]
    assert found["bad"]["nan"] == 0 < found["bad"]["inf"]
    (inf,) = [f for f in problems(run) if "Inf" in f.title]
    assert inf.severity == "note" and inf.go["stage"] == stage
    run.close()


def test_the_selection_marks_the_op_where_values_were_looked_at(run, file):
    conv = next(op for op in file.module(0).main.body.ops if op.kind == "core.conv")
    last = file.stage_count() - 1
    marked = numerics.selection((run,), ViewState(stage=last, op=file.op_id(conv)))["ops"]
    stages = {s.stage for s in file.tensors()}
    assert file.op_id(conv) in marked
    for stage in stages:
        ids = {file.op_id(op) for op in file.module(stage).main.body.ops}
        assert ids & set(marked)
    assert numerics.selection((run,), ViewState()) == {"rewrite": None, "ops": []}


def test_without_checks_it_says_what_would_bring_some(tmp_path):
    module = program(lambda b, x: b.exp(x), "4x5xf32")
    run = Run(record(tmp_path / "x.run", module, None, check=False, until="canonicalise"))
    with pytest.raises(Empty, match="check every rewrite"):
        numerics.data((run,), ViewState())
    run.close()


# -- the page -------------------------------------------------------------------------------------


@pytest.fixture
def opened(server, tab, recording):
    pytest.importorskip("playwright", reason="the page is tested in a browser")
    return lambda query="", path=recording: tab(f"{server.url}?run={quote(str(path))}{query}")


@pytest.mark.slow
@pytest.mark.playwright
def test_what_a_pass_did_to_an_op_by_keys_alone(opened, file):
    """Search the op, go to its next change: the rewrite, before and after, and its check."""
    stage = next(s.index for s in file.stages() if s.pass_name == "fold_batch_norm")
    step = file.rewrites(stage)[0]
    assert any(op.kind == "core.batch_norm" for op in step.rewrite.old)
    with a_task(opened("&panes=graph,diff"), 0) as page:
        page.drawn("graph")
        page.press("/")
        page.type("kind:batch_norm")
        page.press("Enter")
        page.wait("#cw-inspector h3:has-text('History')")
        for _ in range(6):  # its changes, one after the other
            page.press("h")
            page.rest()
            if page.query("stage") == str(stage):
                break
        page.wait("#cw-inspector h3:has-text('Rewrite')")
        page.stage(stage)
        page.wait(f"#cw-inspector section:has-text({step.rewrite.rule!r}) >> nth=0")


@pytest.mark.slow
@pytest.mark.playwright
def test_which_pass_changed_the_numbers_in_two_steps(opened, file):
    """From the recording's first page: a key, then a click shows the pass."""
    stage = next(s.index for s in file.stages() if s.pass_name == "fold_batch_norm")
    with a_task(opened()) as page:
        page.wait("#cw-view-overview .figure")
        page.press("4")
        page.wait(f"{VIEW} [data-first]")
        assert page.text(f"{VIEW} [data-first]") == "fold_batch_norm"
        page.locate(f"{VIEW} [data-first]").click()
        page.stage(stage)
        page.wait(f"{VIEW} tbody tr[data-verdict=within]")
    page.drawn("diff")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_which_pass_changed_the_numbers_by_clicks_alone(opened):
    with a_task(opened()) as page:
        page.locate("#cw-view-overview .figure:has-text('end-to-end error')").click()
        page.wait(f"{VIEW} .told")
    assert "First pass that changed bits: fold_batch_norm" in page.text(f"{VIEW} .told")
    page.wait_query("panes", "numerics,diff")


@pytest.mark.slow
@pytest.mark.playwright
def test_rows_select_their_rewrite_and_its_op(opened, file):
    stage = next(s.index for s in file.stages() if s.pass_name == "fold_batch_norm")
    page = opened(f"&panes=numerics,diff&stage={stage}")
    page.locate(f"{VIEW} tbody td:first-child").first.click()
    page.wait("#cw-inspector h3:has-text('Rewrite')")
    number = page.query("rewrite")
    carrier = page.query("op")
    (row,) = (r for r in file.rewrites(stage) if str(r.number) == number)
    assert file.value(file.value_id(row.check.value)) in row.rewrite.values
    assert carrier in {str(file.op_id(op)) for op in row.rewrite.new}
    page.press("ArrowDown")
    page.page.wait_for_function(
        "(n) => new URLSearchParams(location.search).get('rewrite') !== n", arg=number
    )
    page.press("Enter")
    page.drawn("diff")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_values_are_sorted_filtered_and_followed(opened, tab, file):
    page = opened("&panes=numerics,graph&stage=0")
    page.locate(f"{VIEW} [data-tab=values]").click()
    page.wait(f"{VIEW} th[data-column=largest]")
    page.locate(f"{VIEW} th[data-column=largest]").click()
    page.wait(f"{VIEW} th[data-column=largest][aria-sort=descending]")
    stats = [s for s in file.tensors() if s.stage == 0]
    most = max(stats, key=lambda s: max(abs(s.minimum), abs(s.maximum)))
    name = page.text(f"{VIEW} tbody tr td .mono")
    assert name == f"%{most.value.name or file.value_id(most.value)}"
    page.locate(f"{VIEW} input[type=search]").fill("relu")
    rows = page.locate(f"{VIEW} tbody tr")
    relus = [op for op in file.module(0).main.body.ops if op.kind == "core.relu"]
    assert rows.count() == len(relus)
    rows.first.locator("td").nth(1).click()
    page.wait(f"{VIEW} tr.on")
    page.wait("#cw-inspector .head b:has-text('core.relu')")
    assert page.query("op") in {str(file.op_id(op)) for op in relus}
    # What was set is in the link.
    again = tab(page.page.url)
    again.wait(f"{VIEW} th[data-column=largest][aria-sort=descending]")
    assert page.errors == []


@pytest.mark.playwright
def test_failures_are_seen_first_and_in_the_dark(opened, broken):
    page = opened("&panes=numerics,diff", broken)
    page.wait(f"{VIEW} [data-first]")
    assert "1 check failed" in page.text(f"{VIEW} .told")
    page.page.emulate_media(color_scheme="dark")
    page.locate("#cw-bar button[aria-label^='Switch']").click()
    page.locate(f"{VIEW} [data-first]").click()
    page.wait(f"{VIEW} tbody tr[data-verdict=failed]")
    assert page.locate(f"{VIEW} tbody tr").first.get_attribute("data-verdict") == "failed"
    page.locate(f"{VIEW} [data-tab=values]").click()
    page.wait(f"{VIEW} td.nan")
    assert page.text(f"{VIEW} td.nan").endswith(str(NONE))
    rows = page.saved(VIEW, "Values, CSV").read_text().splitlines()
    assert rows[0].startswith("stage,place,name,kind") and "core.log" in rows[1]
    assert page.errors == []


@pytest.mark.playwright
def test_a_failed_pass_that_changed_nothing_is_not_folded_away(opened, recording, file, tmp_path):
    stage = next(s for s in file.stages() if s.pass_name == "generate_code")
    assert not stage.changed
    path = tmp_path / "failed.run"
    path.write_bytes(recording.read_bytes())
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE check_result SET verdict = 'failed' WHERE stage = {stage.index}")
    database.close()
    page = opened("", path)
    page.wait(f"#stage-{stage.index}:visible")
    assert "failed" in page.locate(f"#stage-{stage.index} .mark").get_attribute("class")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_what_was_not_checked_is_said(opened, tmp_path):
    module = program(lambda b, x: b.exp(x), "4x5xf32")
    path = record(tmp_path / "x.run", module, None, check=False, until="canonicalise")
    page = opened("&panes=numerics", path)
    page.wait(f"{VIEW} .cw-message:visible")
    assert "check every rewrite" in page.text(f"{VIEW} .cw-message")


@pytest.mark.slow
def test_the_import_is_listed_beside_its_framework(server, tab, beside_torch):
    with Recording.open(beside_torch) as opened:
        records = opened.framework_values()
    worst = max(records, key=lambda r: r.error)
    page = tab(f"{server.url}?run={quote(str(beside_torch))}&panes=numerics,graph")
    page.wait(f"{VIEW} [data-framework=torch]")
    said = page.text(f"{VIEW} [data-framework=torch]")
    assert f"{len(records)} values of the import" in said and worst.node in said
    assert page.text(f"{VIEW} [data-verdict]") == "within"
    page.locate(f"{VIEW} [data-do=beside]").click()
    page.wait(f"{VIEW} [data-tab=beside][aria-selected=true]")
    page.wait(f"{VIEW} tbody tr.on")
    assert worst.node in page.text(f"{VIEW} tbody tr.on")
    rows = page.locate(f"{VIEW} tbody tr")
    assert rows.count() == len(records)
    table = page.saved(VIEW, "Values beside torch, CSV").read_text().splitlines()
    assert len(table) == len(records) + 1 and table[0].startswith("place,node,name")
    assert page.errors == []


@pytest.mark.slow
def test_what_differs_from_the_framework_is_in_the_colour_of_failures(
    server, tab, beside_torch, tmp_path
):
    path = tmp_path / "differs.run"
    path.write_bytes(beside_torch.read_bytes())
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE figure SET value = 'differs' WHERE name = 'values_against_verdict'"
        )
    database.close()
    page = tab(f"{server.url}?run={quote(str(path))}&panes=numerics")
    said = f"{VIEW} [data-framework] [data-verdict=differs]"
    page.wait(said)
    assert "failed" in page.locate(said).get_attribute("class")
    assert page.errors == []
