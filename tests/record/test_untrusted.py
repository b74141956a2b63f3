"""Recordings of unknown origin: damaged, foreign, newer, older, hostile; and growing ones."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from core_compiler.ir.events import StageRecord, TimingRecord
from core_compiler.record import Recorder, Recording, migrate, schema
from core_compiler.support.errors import UserError
from tests.ir.modules import difference
from tests.record.compiles import chain, record, stages


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("untrusted") / "fine.run"
    record(Recorder(path), stages(12, 8))
    return path.read_bytes()


@pytest.fixture
def path(content, tmp_path) -> Path:
    path = tmp_path / "x.run"
    path.write_bytes(content)
    return path


def read_everything(path: Path) -> None:
    """Every way of looking at a recording."""
    with Recording.open(path) as recording:
        recording.meta()
        assert recording.status
        recording.progress()
        recording.sources()
        recording.figures()
        for stage in recording.stages():
            recording.module(stage.index)
            recording.rewrites(stage.index)
            recording.checks(stage.index)
            recording.text(stage.index)
        recording.diagnostics()
        for kernel in recording.kernels():
            recording.kernel_text(kernel.id)
        recording.buffers()
        recording.timings()
        recording.tensors()
        recording.quantisation()
        for table in recording.tables():
            for _ in table.rows():
                pass
        recording.weight_digests()
        if recording.stage_count():
            recording.diff_lines(0, recording.stage_count() - 1)
            for op in recording.module(0).walk():
                recording.op_history(recording.op_id(op))


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


# -- damage --------------------------------------------------------------------------------------


def test_the_file_is_fine_to_begin_with(path):
    read_everything(path)


def test_cut_files_are_user_errors(path, content):
    for size in [0, 1, 50, 99, 100, 1000, *range(4096, len(content), 8192)]:
        path.write_bytes(content[:size])
        with pytest.raises(UserError) as caught:
            read_everything(path)
        assert caught.value.where == str(path)


def test_altered_bytes_never_give_another_error(path, content):
    rng = random.Random(7)
    for _ in range(80):
        data = bytearray(content)
        start = rng.randrange(len(data))
        for offset in range(start, min(len(data), start + rng.choice([1, 4, 64]))):
            data[offset] = rng.randrange(256)
        path.write_bytes(data)
        with contextlib.suppress(UserError):  # some bytes do not matter
            read_everything(path)


def test_random_bytes_and_foreign_files_are_user_errors(tmp_path):
    path = tmp_path / "x.run"
    for data in (b"", b"hello", os.urandom(5000), b"SQLite format 3\0" + os.urandom(5000)):
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"not a recording|damaged|truncated"):
            Recording.open(path)
    path.unlink()
    with pytest.raises(UserError, match="file not found"):
        Recording.open(path)
    with pytest.raises(UserError):
        Recording.open(tmp_path)
    change(path, "CREATE TABLE t (x)")
    with pytest.raises(UserError, match="but not a recording"):
        Recording.open(path)


# -- versions ------------------------------------------------------------------------------------


def test_a_newer_recording_says_so(path):
    change(path, f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(UserError, match="made by a newer version"):
        Recording.open(path)


def test_an_older_recording_is_upgraded_in_memory(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    with pytest.raises(UserError, match=f"unknown schema version {schema.VERSION - 1}"):
        Recording.open(path)
    monkeypatch.setitem(migrate.STEPS, schema.VERSION - 1, "CREATE TABLE extra (x);")
    extra = ("table", "extra", "CREATE TABLE extra (x)")
    expected = schema.expected_objects() | {extra}
    monkeypatch.setattr(schema, "expected_objects", lambda: expected)
    with Recording.open(path) as upgraded:
        assert upgraded.query("SELECT * FROM extra").rows == []
        assert upgraded.stage_count() == 8
    assert path.read_bytes() == before


def test_a_recording_of_version_1_says_what_it_said(tmp_path):
    path = tmp_path / "old.run"
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(Path(__file__).with_name("version-1.sql").read_text())
    made = stages(6, 4)
    record_again = tmp_path / "new.run"
    with Recorder(record_again) as recorder:
        recorder.begin({"model": "m"})
        for stage in made:
            recorder.stage(stage)
    with Recording.open(path) as old, Recording.open(record_again) as new:
        assert old.status == "finished"
        assert [s.ops for s in old.stages()] == [s.ops for s in new.stages()]
        for index, stage in enumerate(made):
            assert difference(old.module(index), stage.module) == ""
            pairs = zip(old.rewrites(index), new.rewrites(index), strict=True)
            for one, other in pairs:
                assert one.rewrite.rule == other.rewrite.rule
                assert [old.op_id(op) for op in (*one.rewrite.old, *one.rewrite.new)] == [
                    new.op_id(op) for op in (*other.rewrite.old, *other.rewrite.new)
                ]
        for view in ("result", "stage_op", "rewrite_op", "rewrite_value"):
            rows = (
                f"SELECT * FROM {view} ORDER BY 1, 2, 3"
                if view != "result"
                else ("SELECT * FROM result ORDER BY 1, 2")
            )
            assert old.query(rows).rows == new.query(rows).rows
        (last,) = new.query("SELECT max(id) FROM op").rows[0]
        for op in range(1, last + 1):
            assert old.op_history(op) == new.op_history(op)


def test_times_of_a_recording_of_version_5_are_its_first_execution(tmp_path):
    path, now = tmp_path / "old.run", tmp_path / "new.run"
    with Recorder(now) as recorder:
        recorder.begin({"model": "m"})
        recorder.figures({"digest": "abc"})
        timing = TimingRecord(0, (3.0, 1.0, 2.0), 10, 20, "k", None, 2)
        recorder.timings([timing], {"total_ms": 0.5})
    shutil.copy(now, path)
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript("""
          DROP VIEW timing;
          CREATE TABLE timing (
            id INTEGER PRIMARY KEY, launch INTEGER NOT NULL, kernel TEXT NOT NULL,
            op INTEGER REFERENCES op, threads INTEGER NOT NULL, flops INTEGER NOT NULL,
            bytes INTEGER NOT NULL, median REAL, minimum REAL, p95 REAL, samples BLOB NOT NULL);
          INSERT INTO timing SELECT id, launch, kernel, op, threads, flops, bytes, median, minimum,
            p95, samples FROM launch_time;
          DROP TABLE launch_time;
          DROP TABLE execution;
          DROP TABLE quantised_value;
          DROP TABLE float_op;
          PRAGMA user_version = 5;""")
    with Recording.open(path) as old, Recording.open(now) as new:
        assert old.is_old and not new.is_old
        (execution,), (before,), (after,) = old.executions(), old.timings(), new.timings()
        assert (execution.digest, execution.median_us, execution.threads) == ("abc", 500.0, 2)
        assert execution.samples_us.size == 0
        assert before.samples_us.tolist() == after.samples_us.tolist() == [3.0, 1.0, 2.0]
        assert old.timings(execution.id)[0].kernel == "k"


def test_a_recording_of_version_6_is_not_quantised(tmp_path):
    path = tmp_path / "old.run"
    with Recorder(path) as recorder:
        recorder.begin({"model": "m"})
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(
            "DROP TABLE quantised_value; DROP TABLE float_op; PRAGMA user_version = 6;"
        )
    with Recording.open(path) as old:
        assert old.is_old and old.quantisation() is None
        assert old.query("SELECT * FROM quantised_value").rows == []


def test_every_older_version_has_a_way_to_this_one():
    assert sorted(migrate.STEPS) == list(range(1, schema.VERSION))


# -- hostile content -----------------------------------------------------------------------------

_ENDLESS = (
    "CREATE VIEW stage AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    " SELECT i AS id FROM n"
)
HOSTILE_SCHEMA = {
    "a trigger": ["CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM op; END"],
    "a view for a table": ["ALTER TABLE stage RENAME TO s2", _ENDLESS],
    "a virtual table": ["CREATE VIRTUAL TABLE v USING fts5(x)"],
    "an extra table": ["CREATE TABLE extra (x)"],
    "a missing table": ["DROP TABLE buffer"],
    "an extra column": ["ALTER TABLE meta ADD COLUMN x DEFAULT 1"],
    "an index with an expression": ["CREATE INDEX i ON op (abs(id))"],
}


@pytest.mark.parametrize("what", HOSTILE_SCHEMA)
def test_another_schema_is_refused(path, what):
    change(path, *HOSTILE_SCHEMA[what])
    with pytest.raises(UserError, match="its schema differs"):
        Recording.open(path)


HOSTILE_ROWS = {
    "an endless block": "UPDATE block SET size = 1 << 40",
    "a long block": "UPDATE block SET length = 1 << 40",
    "a block on itself": "UPDATE block SET base = id",
    "a bomb": "UPDATE blob SET size = 1 << 50",
    "a shorter blob": "UPDATE blob SET size = size - 1",
    "origins in a circle": "UPDATE origin SET parents = '[' || id || ']'",
    "a block inside itself": "UPDATE op SET regions = '[1]'",
    "a missing op": "DELETE FROM op WHERE id = 3",
    "a missing value": "DELETE FROM value WHERE id = 3",
    "no type": "UPDATE type SET text = 'tensor<9'",
    "no constant": """UPDATE attributes SET json = '{"a":{"dense":"tensor<9xf32>","hex":1}}'""",
    "deep attributes": f"UPDATE attributes SET json = '{{\"a\":{'[' * 100000}'",
    "null attribute": """UPDATE attributes SET json = '{"a":null}'""",
    "ids that are none": """UPDATE op SET operands = '[{}]'""",
    "ids that are text": """UPDATE op SET operands = 'abc'""",
    "a blob for text": "UPDATE name SET text = x'ff00'",
    "a text for a blob": "UPDATE block SET data = 'abc'",
    "odd samples": "UPDATE launch_time SET samples = x'00'",
    "odd meta": "UPDATE meta SET value = '{'",
    "bad symbols": "UPDATE stage SET symbols = '[1]'",
}


@pytest.mark.parametrize("what", HOSTILE_ROWS)
def test_forged_rows_are_user_errors(path, what):
    change(path, HOSTILE_ROWS[what])
    with pytest.raises(UserError) as caught:
        read_everything(path)
    assert caught.value.where == str(path)


# -- growing files -------------------------------------------------------------------------------


def test_a_recording_can_be_read_while_it_grows(tmp_path):
    made = stages(20, 12)
    recorder = Recorder(tmp_path / "live.run")
    recorder.begin({"model": "m"})
    live = Recording.open(tmp_path / "live.run")
    for count, stage in enumerate(made):
        assert live.stage_count() == count
        recorder.stage(stage)
        assert live.stage_count() == count + 1
        assert difference(live.module(count), stage.module) == ""
    assert live.status == "recording"
    live.export(tmp_path / "copy.run")
    recorder.end("finished")
    assert live.status == "finished"
    assert difference(live.module(11), made[11].module) == ""
    live.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.run", "live.run"]
    with Recording.open(tmp_path / "copy.run") as copy:
        assert copy.stage_count() == 12


def test_a_reader_who_comes_as_the_writer_finishes_is_not_in_its_way(tmp_path):
    """The writer has said that it is finished, and is about to put the file together."""
    path = tmp_path / "live.run"
    readers = []

    class Watched(Recorder):
        def close(self) -> None:
            readers.append(Recording.open(path))
            assert readers[0].status == "finished"
            super().close()

    with Watched(path) as recorder:
        recorder.begin({"model": "m"})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["live.run"]
    assert readers[0].meta()["model"] == "m"
    readers[0].close()


def test_readers_in_other_threads_see_whole_stages(tmp_path):
    made = stages(20, 30)
    recorder = Recorder(tmp_path / "live.run")
    recorder.begin({})
    live = Recording.open(tmp_path / "live.run")
    problems: list[BaseException] = []
    done = threading.Event()

    def look() -> None:
        try:
            while not done.is_set():
                count = live.stage_count()
                if count:
                    found = live.module(count - 1)
                    assert difference(found, made[count - 1].module) == ""
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for stage in made:
        recorder.stage(stage)
    recorder.end("finished")
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []
    live.close()


@pytest.mark.parametrize("after", [1, 5, 14])
def test_a_killed_compile_keeps_every_finished_stage(tmp_path, after):
    code = (
        "import os, signal, sys\nfrom core_compiler.record import Recorder\n"
        "from tests.record.compiles import stages\n"
        "recorder = Recorder(sys.argv[1])\nrecorder.begin({'model': 'm'})\n"
        "for stage in stages(20, 15)[:int(sys.argv[2])]:\n    recorder.stage(stage)\n"
        "with recorder._transaction():\n"
        "    recorder._meta({'half': 'written'})\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "killed.run"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(after)], cwd=Path(__file__).parents[2]
    )
    assert done.returncode == -signal.SIGKILL
    with Recording.open(path) as recording:
        assert recording.status == "interrupted"
        assert recording.stage_count() == after
        assert "half" not in recording.meta()
        expected = stages(20, 15)[after - 1]
        assert difference(recording.module(after - 1), expected.module) == ""
        recording.export(tmp_path / "rescued.run")
    with Recording.open(tmp_path / "rescued.run") as rescued:
        assert rescued.stage_count() == after


def test_a_full_disk_keeps_what_was_recorded(tmp_path):
    """SQLite's own limit on pages stands for the disk's end."""
    recorder = Recorder(tmp_path / "full.run")
    recorder.begin({})
    recorder.stage(StageRecord(0, "import", chain(5)))
    recorder._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(UserError, match="cannot record"):
        recorder.stage(StageRecord(1, "next", chain(20_000)))
    recorder.end("failed")  # nothing to write to any more: no second error
    with Recording.open(tmp_path / "full.run") as recording:
        assert recording.stage_count() == 1
