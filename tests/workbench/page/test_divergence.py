"""Where two training runs part: by their receipts, by doing an iteration again, and what is said
of runs that cannot be compared."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from core_compiler.record import Recording
from core_compiler.record.resumed import ResumedTrainingRecorder
from core_compiler.support.errors import UserError
from tests.training.test_commands import OWN_PASS
from tests.workbench.page.conftest import WORDS
from widgets.encode import finite
from workbench.app import worker
from workbench.app.library import Library
from workbench.app.workspace import Workspace
from workbench.commands.cli import main
from workbench.model import divergences, kept_results
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.training import runs as training_runs
from workbench.views import divergence

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

VIEW = "#cw-view-divergence"


@pytest.fixture
def copies(training_runs, tmp_path):
    """Both runs in folders of the test's own: ``(a, b)``; the recordings know where they are."""
    made = []
    for path in (training_runs.a, training_runs.b):
        folder = tmp_path / path.stem
        shutil.copytree(path.with_suffix(""), folder)
        shutil.copy(path, tmp_path / path.name)
        with Recording.open(path) as recording:
            identity, facts = recording.figures()["identity"], recording.meta()["training_run"]
        recorder = ResumedTrainingRecorder(tmp_path / path.name, identity)
        recorder.begin({"training_run": {**facts, "folder": str(folder)}})
        recorder.end("finished")
        made.append(tmp_path / path.name)
    return tuple(made)


def told(copies, **how) -> dict:
    runs = [Run(path, **how) for path in copies]
    try:
        data = divergence.data((runs[0], runs[1]), ViewState())
        json.dumps(finite(data), allow_nan=False)
        return data
    finally:
        for run in runs:
            run.close()


@pytest.fixture(scope="module")
def found(training_runs):
    """The data, once the worker has found the op."""
    a, b = Run(training_runs.a), Run(training_runs.b)
    worker._diverge(divergence.job(a, b))
    data = divergence.data((a, b), ViewState())
    yield a, data
    a.close()
    b.close()


# -- by the receipts ------------------------------------------------------------------------------


@pytest.mark.slow
def test_receipts_say_where_they_part_without_computing(copies, training_runs, monkeypatch):
    monkeypatch.setattr("workbench.training.runs.make", None)
    data = told(copies)
    assert data["problem"] is None and data["result"] is None
    part = data["part"]
    assert (part["iteration"], part["until"], part["last"]) == (training_runs.at, 6, 6)
    assert (part["kind"], part["name"] != "") == ("state", True)
    folders = [str(path.with_suffix("")) for path in copies]
    assert data["command"] == f"workbench diverge {folders[0]} {folders[1]}"
    assert data["together"]["parts"] == training_runs.at


@pytest.mark.slow
def test_a_run_beside_itself_has_no_difference(copies):
    data = told((copies[0], copies[0]))
    assert (data["part"], data["problem"], data["compared"]) == (None, None, 6)
    run = Run(copies[0])
    with pytest.raises(UserError, match="do not differ"):
        divergence.job(run, run)
    run.close()


def _lines(path: Path) -> list[str]:
    return (path.with_suffix("") / "receipts.jsonl").read_text().splitlines()


def _write(path: Path, lines: list[str]) -> None:
    (path.with_suffix("") / "receipts.jsonl").write_text("\n".join(lines) + "\n")


def _moved(a: Path, b: Path) -> None:
    os.rename(b.with_suffix(""), b.parent / "elsewhere")


def _without_receipts(a: Path, b: Path) -> None:
    (b.with_suffix("") / "receipts.jsonl").unlink()


def _cut(a: Path, b: Path) -> None:
    _write(b, [_lines(b)[0][:40], *_lines(b)[1:]])


def _changed(a: Path, b: Path) -> None:
    lines = _lines(b)
    row = json.loads(lines[2])
    row["loss"] = (2.0).hex()
    _write(b, [*lines[:2], json.dumps(row), *lines[3:]])


def _of_another_run(a: Path, b: Path) -> None:
    _write(b, _lines(a))


def _large(a: Path, b: Path) -> None:
    _write(a, [*_lines(a), " " * divergence.MAX_RECEIPT_BYTES])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_moved, "folder of b.run not found"),
        (_without_receipts, "b.run has no receipts"),
        (_cut, "cannot read the receipts"),
        (_changed, "the root of iteration 2 does not match its receipt"),
        (_of_another_run, "the receipts do not match b.run"),
        (_large, "the receipts of a.run are too large"),
    ],
)
def test_what_cannot_be_compared_says_why(damage, said, copies):
    damage(*copies)
    data = told(copies)
    assert said in data["problem"]["what"] and data["problem"]["fix"]
    assert data["part"] is None and data["together"]["parts"] == 3, "the recordings still say it"
    assert data["command"]


def test_a_run_that_kept_no_folder_says_so(copies):
    with Recording.open(copies[1]) as recording:
        identity, facts = recording.figures()["identity"], recording.meta()["training_run"]
    recorder = ResumedTrainingRecorder(copies[1], identity)
    recorder.begin({"training_run": {**facts, "folder": ""}})
    recorder.end("finished")
    data = told(copies)
    assert "no folder with receipts" in data["problem"]["what"] and data["command"] == ""


def test_a_public_address_reads_no_folders_and_runs_nothing(copies, tmp_path):
    """A recording is untrusted: it would name any folder."""
    assert "disabled on this address" in told(copies, folders=False)["problem"]["what"]
    public = Workspace(local=False, root=tmp_path / "cache")
    assert not public.runs_code
    run = Run(copies[0])
    with pytest.raises(UserError, match="is disabled on this address"):
        public.search(run, run)
    run.close()


# -- by doing the iteration again -----------------------------------------------------------------


@pytest.mark.slow
def test_the_op_is_found_and_linked(found, training_runs):
    run, data = found
    result = data["result"]
    assert (result["op"], result["iteration"], result["ulps"]) == (
        training_runs.op,
        training_runs.at,
        1,
    )
    assert result["count"] == 1 and result["numbers"][0] != result["numbers"][1]
    op = run.recording.op(result["id"])
    assert op.kind == training_runs.op.partition("#")[0]
    assert op in set(run.index(result["stage"]).module.main.body.ops)
    of_kind = [o for o in run.index(result["stage"]).module.main.body.ops if o.kind == op.kind]
    assert of_kind.index(op) + 1 == int(training_runs.op.partition("#")[2])
    names = {k.id: k.name for k in run.kernels()}
    assert [names[i] for i in result["kernel_ids"][:1]] == result["kernels"][:1]


def test_a_result_is_kept_and_a_damaged_one_is_none(found, training_runs, tmp_path):
    kept = divergences.RESULTS.path_of(training_runs.a)
    (key, result), *_ = json.loads(kept.read_text()).items()
    path = tmp_path / "x.run"
    for n in range(kept_results.MAX_RESULTS + 3):
        divergences.RESULTS.keep(path, f"key{n}", result)
    assert divergences.RESULTS.kept(path, "key0") is None
    last = f"key{kept_results.MAX_RESULTS + 2}"
    assert (
        divergences.RESULTS.kept(path, last)
        == divergences.RESULTS.kept(training_runs.a, key)
        == result
    )
    for broken in (
        {**result, "numbers": [1]},
        {**result, "ulps": "x"},
        {},
        3,
        {**result, "element": 1},
    ):
        divergences.RESULTS.path_of(path).write_text(json.dumps({last: broken}))
        assert divergences.RESULTS.kept(path, last) is None
    divergences.RESULTS.path_of(path).write_text("{")
    assert divergences.RESULTS.kept(path, last) is None
    divergences.RESULTS.keep(path, last, result)  # what is no JSON is written anew
    assert divergences.RESULTS.kept(path, last) == result
    with pytest.raises(UserError, match=f"{result['op']} is the first that differs, but"):
        divergences.RESULTS.keep(tmp_path / "no folder" / "x.run", last, result)


def test_a_recording_that_is_removed_takes_its_results_along(tmp_path):
    library = Library(tmp_path)
    path = library.new_path("m")
    path.write_bytes(b"")
    divergences.RESULTS.path_of(path).write_text("{}")
    library.remove(path.name)
    assert list(library.folder.iterdir()) == []


@pytest.mark.slow
def test_iterations_that_are_done_again_are_told(copies):
    """From the start, where the checkpoint before is gone."""
    for path in copies[0].with_suffix("").glob("*.safetensors"):
        path.unlink()
    lines = []

    class Told:
        def __getattr__(self, name):
            return lambda *what: lines.append((name, *what))

    run = training_runs.read(copies[0].with_suffix(""), Told())
    run.restore_before(4)
    assert [what[1:] for what in lines if "again" in str(what)] == [
        (f"iteration {n} again", n - 1, 3) for n in (1, 2, 3)
    ]


# -- in a browser ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.playwright
def test_a_result_leads_to_the_op_and_its_kernel(server, tab, found, training_runs):
    _, data = found
    result = data["result"]
    query = f"run={quote(str(training_runs.a))}&other={quote(str(training_runs.b))}"
    page = tab(f"{server.url}?{query}&panes=divergence")
    page.wait(f'{VIEW} [data-result="op"]')
    said = page.text(f'{VIEW} [data-result="op"]')
    assert result["op"] in said and "1 ulp apart" in said
    assert page.text(f"{VIEW} .told").startswith("Bitwise equal up to iteration 2.")
    page.locate(f'{VIEW} button:text-is("{result["op"]}")').click()
    page.wait_query("op", str(result["id"]))
    page.wait_query("stage", str(result["stage"]))
    page.drawn("graph")
    page.locate(f'{VIEW} button:text-is("{result["kernels"][0]}")').click()
    page.wait_query("kernel", str(result["kernel_ids"][0]))
    page.drawn("code")
    assert not page.errors


@pytest.mark.playwright
@pytest.mark.slow
def test_the_op_is_looked_for_from_the_page(server, tab, copies, training_runs):
    """A job of its own: it is begun, cancelled, begun again, and its result outlives a reload."""
    query = "&".join(f"{k}={quote(str(p))}" for k, p in zip(("run", "other"), copies, strict=True))
    page = tab(f"{server.url}?{query}&panes=divergence")
    page.locate(f'{VIEW} [data-do="find"]').click()
    page.locate(f'{VIEW} [data-do="cancel"]').click()
    page.wait(f"{VIEW} >> text=The search was cancelled.")
    page.locate(f'{VIEW} [data-do="find"]').click()
    page.page.wait_for_selector(f'{VIEW} [data-result="op"]', timeout=300_000)
    assert training_runs.op in page.text(f'{VIEW} [data-result="op"]')
    page.page.reload()
    page.wait(f'{VIEW} [data-result="op"]')
    assert not page.errors


@pytest.mark.playwright
@pytest.mark.slow
def test_of_two_pipelines_the_pass_is_looked_for(server, tab, training_runs, tmp_path):
    own = tmp_path / "louder.py"
    own.write_text(OWN_PASS)
    path = tmp_path / "louder.run"
    assert (
        main(
            [
                *WORDS,
                "--folder",
                str(tmp_path / "louder"),
                "-o",
                str(path),
                "--insert",
                f"{own}@after:canonicalise",
            ]
        )
        == 0
    )
    query = f"run={quote(str(path))}&other={quote(str(training_runs.a))}&panes=divergence"
    page = tab(f"{server.url}?{query}")
    assert page.text(f"{VIEW} .told") == "Different in iteration 1."
    page.locate(f'{VIEW} button:text-is("Find the pass")').click()
    page.locate(f'{VIEW} [data-do="trust"]').click()  # the folder brings a pass of a person's own
    page.page.wait_for_selector(f'{VIEW} [data-result="pass"]', timeout=300_000)
    said = page.text(f'{VIEW} [data-result="pass"]')
    for part in ("louder", "inserted after canonicalise", "is absent", "core.gelu#1"):
        assert part in said
    page.locate(f'{VIEW} button:text-is("1 of 1: louder")').click()
    page.wait_query("rewrite", "0")
    page.wait("#cw-view-rewrites >> text=louder")
    assert not page.errors
