"""Recordings that bring every view into each of its states: complete, with failed checks, with
nothing to show, still growing, damaged.  Nothing in them depends on the clock or on how fast this
machine is: times are those of a table."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_compiler.record.recorder import writer_id

#: Views that show something else where two recordings are, or a training run.
OF_TRAINING = ("training", "divergence")
STATES = ("complete", "failed", "empty", "loading", "error")


@dataclass(frozen=True)
class Recordings:
    """A recording for each of ``STATES``; ``training``: of a training run."""

    complete: Path
    failed: Path
    empty: Path
    loading: Path
    error: Path
    training: Path

    def of(self, state: str, view: str) -> Path:
        if view in OF_TRAINING and state == "complete":
            return self.training
        found: Path = getattr(self, state)
        return found


def make(folder: Path, training: Path) -> Recordings:
    """Compile a small network as it is, with a wrong pass, and without executing it."""
    from core_compiler.driver.compilation import Options
    from core_compiler.pipelines.pipeline import PipelineEdit
    from tests.debug.planted import QuickGelu
    from workbench.model import jobs, models
    from workbench.model.spec import read_spec

    def record(name: str, model: str, width: float, options: Options, execute: bool) -> Path:
        path = folder / f"{name}.run"
        made = models.load(read_spec(model, None, width=width))
        jobs.compile(made, "cpu", options, path=path, execute=execute)
        fix_times(path)
        return path

    wrong = PipelineEdit(insert=(("before:canonicalise", QuickGelu()),))
    complete = record("complete", "digits-cnn", 0.25, Options(check=True), True)
    failed = record("failed", "digits-mlp", 0.1, Options(check=True, edit=wrong), True)
    empty = record("empty", "digits-mlp", 0.1, Options(), False)
    loading = changed(
        complete,
        folder / "loading.run",
        f"""
      UPDATE meta SET value = '"recording"' WHERE key = 'status';
      UPDATE meta SET value = '"{writer_id()}"' WHERE key = 'writer';
      DELETE FROM kernel_op; DELETE FROM kernel_step; DELETE FROM kernel;
      DELETE FROM launch_time; DELETE FROM execution; DELETE FROM tensor_stats; DELETE FROM buffer;
      DELETE FROM check_result WHERE stage > 3; DELETE FROM rewrite WHERE stage > 3;
      DELETE FROM figure WHERE stage > 3 OR stage IS NULL; DELETE FROM stage WHERE id > 3;""",
    )
    error = changed(complete, folder / "error.run", "UPDATE block SET data = x'00';")
    return Recordings(complete, failed, empty, loading, error, fix_times(training))


def changed(source: Path, to: Path, statement: str) -> Path:
    """A copy in which statements of SQL were executed."""
    to.write_bytes(source.read_bytes())
    return _edited(to, lambda db: db.executescript(statement))


def fix_times(path: Path) -> Path:
    """Whatever was measured becomes a number of a table."""

    def fix(db: sqlite3.Connection) -> None:
        db.execute("UPDATE meta SET value = '1750000000.0' WHERE key = 'began'")
        db.execute("UPDATE meta SET value = '12.5' WHERE key = 'seconds'")
        db.execute("UPDATE stage SET seconds = 0.001 * (1 + id % 7), ended = id")
        db.execute("UPDATE rewrite SET microseconds = 20 + id % 50")
        db.execute("UPDATE check_result SET seconds = 0.001")
        db.execute("UPDATE kernel SET compile_seconds = 0.5, cached = 0")
        db.execute("UPDATE iteration SET seconds = 0.01 * (1 + number % 3)")
        db.execute("DELETE FROM event")
        db.create_function("spread", 1, _spread)
        db.execute(
            "UPDATE launch_time SET median = 10 * (1 + launch), minimum = 9 * (1 + launch),"
            " p95 = 12 * (1 + launch), samples = spread(10 * (1 + launch))"
        )
        db.execute(
            "UPDATE execution SET began = 1750000000.0, median = 900.0, samples = spread(900)"
        )
        figures: dict[str, Any] = {
            "total_ms": 0.9,
            "total_min_ms": 0.85,
            "total_p95_ms": 1.1,
            "compile_seconds": 12.0,
            "planning_seconds": 0.1,
            "peak_gflops": 100.0,
            "dram_gbytes_per_s": 20.0,
        }
        for name, value in figures.items():
            db.execute("UPDATE figure SET value = ? WHERE name = ?", (value, name))
        db.execute("DELETE FROM figure WHERE name IN ('limits', 'percent_of_limit')")
        for rowid, text in db.execute(
            "SELECT rowid, value FROM figure WHERE name = 'timeline'"
        ).fetchall():
            told = json.loads(text)
            told["start"] = [1000 * i for i in range(len(told["start"]))]
            told["duration"] = [900] * len(told["duration"])
            db.execute("UPDATE figure SET value = ? WHERE rowid = ?", (json.dumps(told), rowid))

    return _edited(path, fix)


def _spread(median: float) -> bytes:
    """Ten samples around a median."""
    return struct.pack("<10d", *(median * (1 + 0.01 * (i % 3 - 1)) for i in range(10)))


def _edited(path: Path, edit: Callable[[sqlite3.Connection], Any]) -> Path:
    db = sqlite3.connect(path)
    try:
        edit(db)
        db.commit()
    finally:
        db.close()
    return path
