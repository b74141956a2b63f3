"""Execute adds times to the recording that is shown, and changes nothing else of it."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from core_compiler.driver.compilation import Options
from core_compiler.record import Recording
from core_compiler.support.errors import UserError
from tests.workbench.page.conftest import Server, Tab, until
from workbench.app.workspace import Workspace
from workbench.model import jobs, models
from workbench.model.spec import read_spec
from workbench.queries.run import Run

BUTTON = '#cw-bar button:text-is("Execute")'
FACT = "#cw-view-kernels [data-fact={}]"


@pytest.fixture
def checked(server: Server, recording: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of a checked and executed recording in the library of the server, under a name that
    no other test uses: the server keeps recordings open."""
    folder = server.root / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(recording, folder / f"{request.node.name[:40]}.run"))


def content(path: Path) -> dict[str, str]:
    """A digest of each table's rows, without those that an execution adds to."""
    with sqlite3.connect(path) as db:
        tables = [t for (t,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        adds = {"figure", "execution", "launch_time"}
        rows = {t: repr(db.execute(f"SELECT * FROM {t}").fetchall()) for t in tables}
        return {t: hashlib.sha256(rows[t].encode()).hexdigest() for t in rows.keys() - adds}


@pytest.mark.slow
def test_execute_adds_times_to_the_recording_and_leaves_everything_where_it_is(
    server: Server, checked: Path, tab
):
    runs, before = set(checked.parent.glob("*.run")), content(checked)
    page: Tab = tab(f"{server.url}?run={checked.name}&panes=kernels,code&stage=3")
    page.wait("#cw-view-kernels tbody tr")
    assert page.locate(FACT.format("before")).count() == 0
    page.locate("#cw-view-kernels tbody tr").nth(1).click()
    page.rest()
    address = page.page.evaluate("() => location.search")
    page.locate(BUTTON).click()
    page.wait(FACT.format("before"))
    page.wait('.toast:has-text("Executed:")')
    page.rest()
    assert page.page.evaluate("() => location.search") == address
    assert set(checked.parent.glob("*.run")) == runs
    assert content(checked) == before and not page.errors
    with Recording.open(checked) as file:
        first, second = file.executions()
        assert first.digest == second.digest != ""
        assert len(second.samples_us) >= 6 and second.began > first.began
        (old, new) = (
            {t.launch: (t.op, t.kernel) for t in file.timings(e.id)} for e in (first, second)
        )
        assert old == new  # each launch is the recorded op's
        assert file.status == "finished" and file.meta()["checked"] is True
    headers = page.locate("#cw-view-kernels th").all_inner_texts()
    assert any(text.startswith("before") for text in headers)
    page.press("0")
    page.wait("#cw-view-overview .finding, #cw-view-overview .figure")
    assert "complete" in page.text("#cw-view-overview .status")


@pytest.mark.slow
def test_without_its_device_execute_is_off_and_says_why(library: Server, two_targets, tab):
    folder = library.root / "recordings"
    runs = set(folder.glob("*.run"))
    missing = Workspace(root=library.root).not_executable(Run(two_targets.cuda))
    if not missing:
        pytest.skip("this machine has a GPU: nothing is missing")
    page: Tab = tab(f"{library.url}?run={two_targets.cuda.name}&panes=kernels")
    page.wait(f"{BUTTON}[aria-disabled]")
    assert missing in page.locate(BUTTON).get_attribute("title")
    page.locate(BUTTON).click()
    page.rest()
    assert set(folder.glob("*.run")) == runs and page.query("run") == two_targets.cuda.name


def test_where_there_is_no_program_it_says_so(tmp_path, recording):
    path = Path(shutil.copy(recording, tmp_path / "x.run"))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '\"failed\"' WHERE key = 'status'")
    assert "the compile did not finish" in Workspace(root=tmp_path).not_executable(Run(path))


def test_a_recording_that_cannot_be_written_is_left_alone(tmp_path, recording, monkeypatch):
    path = Path(shutil.copy(recording, tmp_path / "x.run"))
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everything
    assert "not writable" in Workspace(root=tmp_path).not_executable(Run(path))


def test_another_program_is_not_timed_into_the_recording(tmp_path, recording):
    path = Path(shutil.copy(recording, tmp_path / "x.run"))
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    other = models.load(read_spec("digits-mlp", None, width=0.1))
    with pytest.raises(UserError, match="program differs from the recorded one"):
        jobs.execute(other, "cpu", Options(), path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


@pytest.mark.slow
def test_an_execution_goes_on_when_the_page_is_loaded_again(server: Server, checked: Path, tab):
    page: Tab = tab(f"{server.url}?run={checked.name}&panes=kernels")
    page.wait("#cw-view-kernels tbody tr")
    page.locate(BUTTON).click()
    page.wait("#cw-bar .job:visible")
    page.page.reload()

    def executed() -> bool:
        with Recording.open(checked) as file:
            return len(file.executions()) == 2

    until(executed)
    page.wait(FACT.format("before"))


def test_two_executions_with_other_bits_are_a_finding(tmp_path, recording):
    from workbench.advice.findings import problems

    path = Path(shutil.copy(recording, tmp_path / "x.run"))
    with sqlite3.connect(path) as db:
        db.execute(
            "INSERT INTO execution SELECT 2, began + 1, machine, threads, 'beef', median,"
            " samples FROM execution"
        )
    found = problems(Run(path))[0]
    assert found.severity == "error" and "different bits" in found.title
    assert not [f for f in problems(Run(recording)) if "different bits" in f.title]
