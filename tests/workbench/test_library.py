"""The library of runs: its index, searches, tags, the trash, and the command line."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from core_compiler.record import schema
from core_compiler.record.recorder import Recorder, machine_id
from core_compiler.support.errors import UserError
from workbench.app import trash
from workbench.app.library import Library
from workbench.app.run_entry import MAX_NAME
from workbench.state.view_state import ViewState

DAY = 86400.0


@cache
def _empty() -> bytes:
    """A recording without anything in it."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    schema.create(db)
    content = db.serialize()
    db.close()
    return content


class Store(Library):
    """A library with small recordings: facts and figures, no stages."""

    def make(
        self, name: str, began: float = 1.0, figures=(), checks=(), folder=None, **meta
    ) -> Path:
        place = folder or self.folder
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{name}.run"
        path.unlink(missing_ok=True)
        path.write_bytes(_empty())
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        facts = {"model": name, "target": "cpu", "status": "finished", "began": began, **meta}
        db.executemany(
            "INSERT INTO meta VALUES (?, ?)", [(k, json.dumps(v)) for k, v in facts.items()]
        )
        db.executemany("INSERT INTO figure VALUES (NULL, ?, ?, ?)", figures)
        db.executemany(
            "INSERT INTO check_result (stage, verdict, worst_error, value, element, seconds, note)"
            " VALUES (0, ?, ?, ?, '', 0, '')",
            checks,
        )
        db.execute("COMMIT")
        db.close()
        return path

    def names(self, query: str = "") -> list[str]:
        return [entry.name.removesuffix(".run") for entry in self.entries(query)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_recordings_of_the_same_model_that_can_be_read_are_offered(store):
    for name, model in (("a", 'the "net"'), ("b", 'the "net"'), ("c", 'the "net"'), ("d", "other")):
        store.make(name, began=ord(name), model=model.replace('"', ""))
    (store.folder / "c.run").write_bytes(b"no recording")
    assert [entry.name for entry in store.runs_of_model('the "net"')] == ["b.run", "a.run"]
    assert [entry.name for entry in store.runs_of_model("the net", limit=1)] == ["b.run"]
    assert store.runs_of_model("net") == []


def test_recordings_of_a_model_with_a_long_name_are_offered(store):
    store.make("a", model="n" * 1_000)
    store.make("b", model="n" * 100)
    assert [entry.name for entry in store.runs_of_model("n" * 1_000)] == ["a.run"]


def test_the_figures_of_a_run_come_from_its_recording(store):
    store.make(
        "net",
        began=5.0,
        device={"name": "H200"},
        mode="training",
        figures=[
            ("timing", "total_ms", 1.5),
            ("run", "compile_seconds", 2.5),
            ("memory", "arena_bytes", 4096),
        ],
        checks=[
            ("bitwise", 0.0, 7),
            ("within", 1e-6, 7),
            ("within", 1e-5, 7),
            ("within", 0.5, None),
        ],
    )
    (entry,) = store.entries()
    assert (entry.total_ms, entry.compile_s, entry.peak_bytes) == (1.5, 2.5, 4096)
    # The last is a slope's: it is no part of a tensor's largest value.
    assert (entry.worst_error, entry.checks) == (1e-5, {"bitwise": 1, "within": 3})
    assert (entry.device, entry.mode, entry.began, entry.kernels) == ("H200", "training", 5.0, None)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["c", "b", "a", "d"]),
        ("res", ["a", "d"]),
        ("RES cuda", ["d"]),
        ("model:res -target:cuda", ["a"]),
        ("model:=res", []),
        ('model:="resnet 50"', ["a"]),
        ('model:="resnet"" 50"', []),
        ('note:"the ""slow"" one" model:abc', ["b"]),
        ("status:fail", ["b"]),
        ("tag:fast", ["d"]),
        ("slow", ["b"]),
        ("note:slow", ["b"]),
        ("is:noted", ["b"]),
        ("is:training", ["c"]),
        ("after:1970-01-03", ["c", "b"]),
        ("before:1970-01-03 -tag:fast", ["a"]),
        ("sort:time", ["b", "a", "c", "d"]),
        ("sort:-time", ["c", "a", "b", "d"]),
        ("100%", []),
        ("pkg.mod:function", ["c"]),
        ("a_c", []),
    ],
)
def test_searches(store, query, found):
    time = [("timing", "total_ms", 2.0)]
    store.make("a", 1 * DAY + 1, time, model="resnet 50")
    store.make("b", 3 * DAY, [("timing", "total_ms", 1.0)], status="failed", model="abc")
    store.make(
        "c", 4 * DAY, [("timing", "total_ms", 3.0)], mode="training", model="pkg.mod:function"
    )
    store.make("d", 1 * DAY, model="resnet18", target="cuda")
    store.annotate("d.run", tags=["Fast", "fast"])
    store.annotate("b.run", note='the "slow" one')
    assert store.names(query) == found


@pytest.mark.parametrize("query", ["sort:colour", "after:yesterday", "is:purple"])
def test_a_search_that_means_nothing_is_said(store, query):
    with pytest.raises(UserError):
        store.listing(query)


def test_pinned_runs_stand_first(store):
    for number, name in enumerate("abc", 1):
        store.make(name, number)
    store.annotate("a.run", pinned=True)
    assert store.names() == ["a", "c", "b"] and store.names("is:pinned") == ["a"]
    store.annotate("a.run", pinned=False)
    assert store.names() == ["c", "b", "a"]


@pytest.mark.slow
def test_ten_thousand_new_files_are_listed_before_they_are_read(store):
    first = store.make("net-00000", model="first")
    for number in range(1, 10_000):
        os.link(first, store.folder / f"net-{number:05}.run")
    pending = store.index.refresh(seconds=0)
    found = store.listing(limit=100)
    assert (found.total, found.known, len(found.entries)) == (10_000, 10_000, 100)
    assert 0 < pending < 10_000 and found.pending == pending
    assert store.listing("name:net-0123").total == 10
    seen = {
        e.name for skip in range(0, 10_000, 2500) for e in store.listing("", 2500, skip).entries
    }
    assert len(seen) == 10_000
    assert store.index.refresh(seconds=0) == pending - 1, "each look reads more, at least one"


def test_the_index_follows_the_files(store):
    path = store.make("a", model="before")
    store.make("b")
    assert store.names() == ["a", "b"]
    os.utime(store.make("a", model="after"), ns=(1, 1))
    path.with_name("b.run").unlink()
    shutil.copy(path, store.folder / "copied.run")
    assert {e.model for e in store.entries()} == {"after"} and len(store.names()) == 2
    (store.folder / "a.about.json").write_text('{"tags": ["new", 3], "note": 5, "pinned": "yes"}')
    (tagged,) = store.entries("tag:new")
    assert (tagged.tags, tagged.note, tagged.pinned) == (("new",), "", False)


@pytest.mark.parametrize("damage", [b"no database at all", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_index_is_made_anew_and_nothing_is_lost(store, damage):
    store.make("a")
    store.annotate("a.run", tags=["kept"], pinned=True)
    store.index.file.write_bytes(damage)
    assert Store(store.root).names("tag:kept is:pinned") == ["a"]


def test_an_index_of_another_version(store):
    store.make("a")
    store.entries()
    for version in (0, 999):
        with sqlite3.connect(store.index.file) as db:
            db.execute("DELETE FROM run")
            db.execute(f"PRAGMA user_version = {version}")
        db.close()
        assert Store(store.root).names() == ["a"]
    with sqlite3.connect(store.index.file) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (999,), "a newer one is left alone"
    db.close()


def test_a_recording_of_a_newer_version_is_not_read(store):
    path = store.make("a")
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    db.close()
    (entry,) = store.entries()
    assert entry.status == "unreadable" and entry.error == schema.made_by_newer(schema.VERSION + 1)


@pytest.mark.parametrize(
    "meta",
    [
        {"figures": [("memory", "arena_bytes", float("inf"))]},
        {"figures": [("memory", "arena_bytes", 1e300)]},
        {"model": "half \ud800", "device": {"name": "\ud800"}, "status": "\ud800"},
        {"sizes": {"of": "\ud800"}},
        {"edit": {"skip": ["\ud800"]}},
        {"began": 10**400},
    ],
)
def test_a_recording_that_says_what_no_index_holds_hides_no_other(store, meta):
    store.make("sound", began=2.0)
    store.make("strange", **meta)
    found = store.entries()
    assert sorted(entry.name for entry in found) == ["sound.run", "strange.run"]
    assert {entry.peak_bytes for entry in found} == {None}
    assert "\ud800" not in "".join(f"{e.model}{e.device}{e.status}{e.variant}" for e in found)


def test_facts_nested_too_deep_and_half_letters_in_a_note_hide_no_other_run(store):
    store.make("sound", began=3.0)
    noted = store.make("noted", began=2.0)
    noted.with_suffix(".about.json").write_text(json.dumps({"note": "\ud83d", "tags": ["\ud83d"]}))
    db = sqlite3.connect(store.make("deep"))
    with db:
        db.execute("INSERT INTO meta VALUES ('nested', ?)", ("[" * 100_000,))
    db.close()
    told = {entry.name: (entry.status, entry.note, entry.tags) for entry in store.entries()}
    assert told["sound.run"] == ("finished", "", ())
    assert told["noted.run"] == ("finished", "?", ("?",))
    assert told["deep.run"][0] == "unreadable"


@pytest.mark.parametrize("began", [1e300, 1e12, -1e18])
def test_a_recording_of_no_date_has_that_of_its_file(store, command, began):
    path = store.make("net", began=began)
    os.utime(path, (1e9, 1e9))
    assert [entry.began for entry in store.entries()] == [1e9]
    assert "2001-09-0" in command.text("runs", "--store", store.root)


def test_a_file_whose_name_is_no_text_hides_no_other_run(store):
    store.make("sound")
    os.rename(store.make("other"), os.fsencode(store.folder) + b"/\xff.run")
    assert store.names() == ["sound"]


def test_two_processes_share_an_index(store):
    for number in range(20):
        store.make(f"a{number:02}")
    code = (
        "import sys; from pathlib import Path; from workbench.app.library import Library\n"
        "library = Library(Path(sys.argv[1]))\n"
        "for n in range(5):\n"
        "    library.annotate('a00.run', tags=lambda had: [*had, sys.argv[2] + str(n)])\n"
        "    library.index.refresh()\n"
        "print(library.listing().total)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def run(name: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", code, store.root, name],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(run, "xy")] == ["20\n", "20\n"]
    assert len(store.names()) == 20
    (entry,) = store.entries("name:a00")
    assert sorted(entry.tags) == [f"{p}{n}" for p in "xy" for n in range(5)]


def test_a_run_that_is_being_recorded(store):
    store.folder.mkdir(parents=True)
    recorder = Recorder(store.folder / "live.run")
    recorder.begin({"model": "live", "target": "cpu"})
    (entry,) = store.entries()
    assert (entry.status, entry.elsewhere) == ("recording", False)
    with pytest.raises(UserError, match="still being recorded"):
        store.remove("live.run")
    recorder.end("finished")
    (entry,) = store.entries()
    assert entry.status == "finished"
    store.make("far", status="recording", writer="17@elsewhere")
    store.make("dead", status="recording", writer=f"999999999@{machine_id()}")
    states = {e.name: (e.status, e.elsewhere) for e in store.entries()}
    assert states["far.run"] == ("recording", True)
    assert states["dead.run"] == ("interrupted", False)


def test_a_deleted_run_comes_back_whole(store):
    path = store.make("a")
    store.annotate("a.run", tags=["kept"])
    (store.folder / "a.diverge.json").write_text("{}")
    before = {f.name: f.read_bytes() for f in store.folder.iterdir()}
    gone = store.remove("a.run")
    assert not any(store.folder.iterdir()) and not store.entries()
    assert [d.name for d in store.deleted()] == ["a.run"]
    assert store.restore(gone.token) == "a.run"
    assert {f.name: f.read_bytes() for f in store.folder.iterdir()} == before
    assert store.names("tag:kept") == ["a"] and not store.deleted()
    gone = store.remove("a.run")
    shutil.copy(store.make("b"), path)
    assert store.restore(gone.token) == "a-1.run", "what is there is not written over"
    assert sorted(store.names()) == ["a", "a-1", "b"]


def test_the_trash_empties_itself_after_a_month(store, monkeypatch):
    for name in "ab":
        store.make(name)
    store.remove("a.run")
    monkeypatch.setattr(trash.time, "time", lambda: sys.maxsize)
    assert not store.deleted() and store.names() == ["b"]


@pytest.mark.parametrize(
    "name", ["../a.run", "/etc/passwd", "a", "absent.run", "imported/../a.run"]
)
def test_only_runs_of_the_library_are_deleted(store, name):
    outside = store.make("a", folder=store.root)
    with pytest.raises(UserError, match="run not found in the library"):
        store.remove(name)
    assert outside.exists()
    for token in ("../recordings", "absent"):
        with pytest.raises(UserError, match="deleted run not found"):
            store.restore(token)


def test_a_store_that_cannot_be_written_is_listed_all_the_same(store, monkeypatch):
    store.make("a")
    store.index.file.mkdir()  # nothing can be opened there
    assert store.names() == ["a"] and store.names("model:a") == ["a"]


@pytest.mark.parametrize(
    "tags",
    [["two words"], ["a:b"], [""], ["x" * 41], ["t\x1b"], [str(n) for n in range(21)]],
)
def test_tags_that_cannot_be_searched_are_refused(store, tags):
    store.make("a")
    with pytest.raises(UserError, match="tag"):
        store.annotate("a.run", tags=tags)
    assert store.entries()[0].tags == ()


def test_an_uploaded_recording_is_imported_and_not_trusted(store):
    from workbench.app.workspace import Workspace

    upload = store.uploads.new_path("mine.run")
    upload.write_bytes(store.make("x", folder=store.root).read_bytes())
    path = store.import_upload(upload)
    assert store.name(path) == "imported/mine.run" and store.find("imported/mine.run") == path
    assert not upload.parent.exists() and store.names("is:imported") == ["imported/mine"]
    assert not Workspace(root=store.root).made_here(path)
    bad = store.uploads.new_path("bad.run")
    bad.write_bytes(b"no recording")
    with pytest.raises(UserError, match="not a recording"):
        store.import_upload(bad)
    assert not bad.exists()
    assert store.restore(store.remove("imported/mine.run").token) == "imported/mine.run"


def test_a_viewer_gets_nothing_to_restore_a_run_by(store):
    from workbench.app import runs

    store.make("a")
    token = store.remove("a.run").token
    for viewer, given in ((False, token), (True, "")):
        (gone,) = runs.facts(store, ViewState(shelf="trash"), viewer)["trash"]
        assert gone["token"] == given
    store.uploads.new_path("a.onnx").write_bytes(b"x")
    for viewer in (False, True):
        (file,) = runs.facts(store, ViewState(shelf="uploads"), viewer)["uploads"]
        assert bool(file["token"]) is not viewer
    assert runs.lost(store, "a.run")["act"]["data"]["token"] == token
    assert runs.lost(store, "a.run", viewer=True)["act"] is None


def test_a_trend_is_of_one_model_on_one_target(store):
    for number in range(4):
        store.make(f"a{number}", 1 + number, [("timing", "total_ms", 9.0 - number)], model="net")
    store.make("b", 9, model='n"et', target="cuda")
    store.index.refresh()
    trend = store.trend("model:=net sort:-time")
    assert [r["total_ms"] for r in trend["runs"]] == [9.0, 8.0, 7.0, 6.0] and trend["total"] == 4
    store.make("c", 9, model="net", sizes={"width": 0.5, "depth": None})
    store.make("d", 8, model="net", kind="sample", frontend="onnx-passes")
    store.make("e", 7, model="file", kind="file", frontend="onnx")
    store.index.refresh()
    groups = store.trend("")["groups"]
    assert sorted(g[:4] for g in groups) == [
        ["file", "", "cpu", 1],
        ['n"et', "", "cuda", 1],
        ["net", "", "cpu", 4],
        ["net", "by onnx-passes", "cpu", 1],
        ["net", "width 0.5", "cpu", 1],
    ]
    for model, _, _, total, query in groups:
        assert store.trend(query)["total"] == total, model


def test_a_trend_of_long_names_has_its_runs(store):
    """Also where it was chosen of several, and behind a long search."""
    for name in "ab":
        store.make(name, model="m" * MAX_NAME, target="t" * MAX_NAME, sizes={name * MAX_NAME: 1})
    store.index.refresh()
    trends = [store.trend(query) for *_, query in store.trend("")["groups"]]
    assert [[run["name"] for run in trend["runs"]] for trend in trends] == [["a.run"], ["b.run"]]
    searched = store.trend("name:a " + "-no " * 248)
    assert [run["name"] for run in searched["runs"]] == ["a.run"]


def test_the_first_page_shows_a_part_of_what_is_found(store):
    from workbench.app import runs

    for number in range(runs.PAGE_SIZE + 2):
        store.make(f"a{number:02}", 1 + number)
    store.index.refresh()
    facts = runs.facts(store, ViewState(find="a", skip=runs.PAGE_SIZE))
    assert [r["name"] for r in facts["runs"]] == ["a01.run", "a00.run"]
    assert facts["total"] == runs.PAGE_SIZE + 2 and facts["pending"] == 0
    assert runs.facts(store, ViewState(skip=500))["skip"] == 0, "what stood there has gone"
    assert runs.facts(store, ViewState(find="sort:x"))["problem"]["fix"]


@pytest.mark.slow
def test_the_benchmark_of_the_store_asks_what_it_says(tmp_path):
    from benchmarks import store

    made = store.measure(tmp_path / "store", 200)
    assert all(made["found"].values()) and made["index_bytes"] > 0
    assert {"list", "search", "tag", "page"} <= made["ms"].keys()


# -- the command line -----------------------------------------------------------------------------


def test_the_command_line_does_all_of_it(store, command):
    store.make("one", 1, [("timing", "total_ms", 1.5)], model="net")
    store.make("two", 2, model="net", target="cuda")
    where = ("--store", store.root)
    assert "no runs found" in command.text("runs", "absent", *where)
    lines = command.text("runs", "net", "sort:-newest", *where).splitlines()
    assert [line.split()[0] for line in lines] == ["run", "one.run", "two.run"]
    assert "1 of 2" in command.text("runs", "--limit", "1", *where)
    command.text("runs", "tag", "one", "fast", "good", *where)
    command.text("runs", "untag", "one.run", "good", *where)
    command.text("runs", "note", store.folder / "one.run", "as", "released", *where)
    command.text("runs", "pin", "one", *where)
    (entry,) = command.json("runs", "tag:fast", *where)["runs"]
    assert (entry["note"], entry["pinned"], entry["tags"]) == ("as released", True, ["fast"])
    assert command.json("runs", "delete", "one", "two", *where) == {"runs": ["one.run", "two.run"]}
    assert {d["name"] for d in command.json("runs", "--trash", *where)["trash"]} == {
        "one.run",
        "two.run",
    }
    assert command.text("runs", "restore", "one", *where) == "one.run\n"
    assert command.json("runs", "is:pinned", *where)["total"] == 1
    elsewhere = store.make("far", folder=store.root / "away")
    assert command.text("runs", "import", elsewhere, *where) == "imported/far.run\n"
    assert command.json("runs", "is:imported", *where)["total"] == 1 and elsewhere.exists()
    assert command.json("runs", "empty-trash", *where) == {"emptied": 1}
    assert "the trash is empty" in command.text("runs", "--trash", *where)
    assert "no uploaded files" in command.text("runs", "--uploads", *where)
    for name in ("a.onnx", "b.onnx"):
        store.uploads.new_path(name, "mara").write_bytes(b"12345")
    found = command.json("runs", "--uploads", *where)["uploads"]
    assert {(u["name"], u["by"], u["size"]) for u in found} == {
        ("a.onnx", "mara", 5),
        ("b.onnx", "mara", 5),
    }
    token = next(u["token"] for u in found if u["name"] == "a.onnx")
    assert command.text("runs", "delete-upload", token, *where) == "a.onnx\n"
    assert [u.name for u in store.uploads.content()] == ["b.onnx"]


@pytest.mark.parametrize(
    "words",
    [
        ("delete", "absent"),
        ("tag", "absent", "x"),
        ("tag", "absent"),
        ("note",),
        ("restore", "absent"),
        ("delete-upload", ".."),
        ("sort:colour",),
        ("--limit", "0"),
        ("--limit", "9" * 20),
        ("--offset", "9" * 20),
    ],
)
def test_what_cannot_be_done_is_one_line(store, command, words):
    code, out, err = command("runs", *words, "--store", store.root)
    assert (code, out) == (2, "") and len(err.splitlines()) == 1


def test_a_search_that_is_no_text_finds_nothing(store, command):
    store.make("net")
    assert "no runs found" in command.text("runs", "\udcff", "--store", store.root)


def test_tags_that_were_copied_here_do_not_steer_the_terminal(store, command):
    path = store.make("net")
    path.with_suffix(".about.json").write_text(json.dumps({"tags": ["t\x1b[2J"]}))
    assert "t\\x1b[2J" in command.text("runs", "--store", store.root)
