"""The library on the first page: searching, tagging, deleting, figures over time, files."""

from __future__ import annotations

import csv
import io
import json
import shutil
import urllib.error
import urllib.request

import pytest

from core_compiler.record.reader import Recording
from tests.workbench.page.conftest import Server
from workbench.app.library import Library

pytestmark = pytest.mark.playwright
RUNS = "#cw-start .runs"


@pytest.fixture(scope="module")
def store(tmp_path_factory, recording):
    """A server whose library has three runs of a model."""
    server = Server(tmp_path_factory.mktemp("library")).start()
    folder = server.root / "recordings"
    folder.mkdir(parents=True)
    for name in ("one", "two", "three"):
        shutil.copy(recording, folder / f"{name}.run")
    yield server
    server.stop()


@pytest.mark.slow
def test_who_writes_a_note_goes_on_writing_while_the_list_changes(own_server, tab, recording):
    server = own_server()
    folder = server.root / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(recording, folder / "mine.run")
    page = tab(server.url)
    page.locate(f'{RUNS} [aria-label="Tags and note of mine.run"]').click()
    page.locate(f"{RUNS} .edit textarea").click()
    page.type("ac")
    page.press("ArrowLeft")
    shutil.copy(recording, folder / "theirs.run")
    page.wait(f'{RUNS} tr[data-run="theirs.run"]')
    page.type("b")
    assert page.locate(f"{RUNS} .edit textarea").input_value() == "abc"
    assert page.errors == []


@pytest.mark.slow
def test_a_run_is_found_tagged_deleted_and_restored(store, tab, recording):
    page = tab(store.url)
    page.wait(f'{RUNS} tr[data-run="three.run"]')
    page.locate(f'{RUNS} [aria-label="Tags and note of two.run"]').click()
    page.locate(f"{RUNS} .edit input").fill("fast <b>x</b>")
    page.locate(f"{RUNS} .edit textarea").fill("as <i>released</i>")
    page.locate(f"{RUNS} .edit button.primary").click()
    page.wait(f"{RUNS} .tag:has-text('<b>x</b>')")
    assert page.locate(f"{RUNS} b, {RUNS} i").count() == 0
    page.locate(f"{RUNS} .tag:has-text('fast')").click()
    page.wait_query("find", "tag:fast")
    page.wait(f'{RUNS} tr[data-run="one.run"]', state="detached")
    page.open(page.page.url)
    page.wait(f'{RUNS} tr[data-run="two.run"]')
    assert page.locate(f"{RUNS} tbody tr").count() == 1, "the address keeps the search"
    page.locate(f'{RUNS} [aria-label="Delete two.run"]').click()
    page.wait("#cw-start [data-do=trash]:visible")
    assert not (store.root / "recordings" / "two.run").exists()
    page.locate("#cw-bar .toast [data-do=act]").click()
    page.wait(f'{RUNS} tr[data-run="two.run"] .note')
    page.locate("#cw-start .runs-head input").fill("nothing like it")
    page.wait(f"{RUNS}:has-text('No runs match')")
    page.locate("#cw-start .runs-head input").fill("")
    shutil.copy(recording, store.root / "recordings" / "copied.run")
    page.wait(f'{RUNS} tr[data-run="copied.run"]')
    shutil.copy(recording, store.root / "recordings" / "spare.run")
    page.locate(f'{RUNS} [aria-label="Delete spare.run"]').click()
    page.locate("#cw-start [data-do=trash]").click()
    for says in ("Delete", "Press again"):
        page.locate(f'{RUNS} [aria-label="{says}: spare.run, permanently"]').click()
    page.wait(f"{RUNS}:has-text('The trash is empty.')")
    assert not list((store.root / "trash").iterdir())
    assert page.locate("#cw-start [data-do=uploads]:visible").count() == 0
    folder = store.root / "uploads" / "20260101-x"
    folder.mkdir(parents=True)
    (folder / "mine.onnx").write_bytes(bytes(2048))
    page.locate("#cw-start [data-do=uploads]").click()
    page.wait(f"{RUNS} tr:has-text('mine.onnx'):has-text('2.00 KiB')")
    for says in ("Delete", "Press again"):
        page.locate(f'{RUNS} [aria-label="{says}: mine.onnx, permanently"]').click()
    page.wait(f"{RUNS}:has-text('No uploads.')")
    assert not folder.exists()
    page.locate("#cw-start [data-do=trend]").click()
    page.wait_query("shelf", "trend")
    page.wait('#cw-start figure[data-figure="compile_s"] circle >> nth=3')
    page.locate("#cw-start [data-table=trend] tbody tr").first.click()
    page.wait("#cw-view-overview h1")
    assert page.errors == []


@pytest.mark.slow
def test_what_others_say_of_a_run_meanwhile_is_kept(store, tab):
    """Only what was changed in an editor is saved; it stays when its run is no longer listed."""
    library = Library(store.root)
    library.annotate("three.run", tags=["old", "first"], note="from before")
    page = tab(store.url)
    page.wait(f"{RUNS} .tag:has-text('first')")
    page.locate(f'{RUNS} [aria-label="Tags and note of three.run"]').click()
    page.locate(f"{RUNS} .edit input").fill("first mine")
    library.annotate("three.run", tags=["old", "first", "theirs"], note="their note")
    page.wait(f"{RUNS} .tag:has-text('theirs')")
    page.locate("#cw-start .runs-head input").fill("name:one")
    page.wait(f'{RUNS} tr[data-run="three.run"]', state="detached")
    page.wait(f"{RUNS} .edit:has-text('three.run (not listed here)')")
    assert page.locate(f"{RUNS} .edit input").input_value() == "first mine"
    page.locate(f"{RUNS} .edit button.primary").click()
    page.locate("#cw-start .runs-head input").fill("")
    page.wait(f"{RUNS} .tag:has-text('mine')")
    (run,) = library.entries("name:three")
    assert (run.tags, run.note) == (("first", "theirs", "mine"), "their note")
    assert page.errors == []


@pytest.mark.slow
def test_a_run_that_is_deleted_while_it_is_open_stays_readable(store, tab):
    page = tab(f"{store.url}?run=one.run")
    page.wait("#cw-view-overview h1")
    other = tab(store.url)
    other.locate(f'{RUNS} [aria-label="Delete one.run"]').click()
    page.wait("#cw-bar .toast.error:has-text('This run was deleted')")
    page.press("2")
    page.wait("#cw-view-kernels tbody tr")
    page.locate("#cw-bar .toast [data-do=act]").click()
    page.wait("#cw-bar .run:not(:has-text('deleted'))")
    assert (store.root / "recordings" / "one.run").exists()


@pytest.mark.slow
def test_runs_and_their_list_are_downloaded(store, tab, recording, tmp_path):
    page = tab(store.url)
    page.wait(f'{RUNS} tr[data-run="one.run"]')
    with page.page.expect_download() as got:
        page.locate(f'{RUNS} [aria-label="Download one.run"]').click()
    with Recording.open(got.value.path()) as copy, Recording.open(recording) as original:
        assert copy.stage_count() == original.stage_count() > 3
    page.locate("#cw-start .runs-head input").fill("name:t")
    page.wait(f'{RUNS} tr[data-run="one.run"]', state="detached")
    with page.page.expect_download() as got:
        page.locate("#cw-start [data-do=csv]").click()
    rows = [*csv.DictReader(io.StringIO(got.value.path().read_text()))]
    assert sorted(row["name"] for row in rows) == ["three.run", "two.run"]
    assert all(float(row["compile_s"]) > 0 for row in rows)
    for path in ("file?run=one.run", "runs.csv?token=guess"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            store.get(path)
        assert refused.value.code == 403
    token = page.locate("#cw-start [data-do=csv]").get_attribute("href").rpartition("token=")[2]
    body = recording.read_bytes()
    request = urllib.request.Request(
        f"{store.url}upload?name=mine.run", body, {"X-Workbench-Token": token}, method="PUT"
    )
    answer = json.loads(urllib.request.urlopen(request).read())
    assert answer["path"] == str(store.root / "recordings" / "imported" / "mine.run")
    page.locate("#cw-start .runs-head input").fill("is:imported")
    page.wait(f'{RUNS} tr[data-run="imported/mine.run"]')
