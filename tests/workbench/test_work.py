"""The work of each launch is what its compile counted, whatever today's code counts."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from core_compiler.driver import compilation
from core_compiler.targets.cpu import CPU
from tests.passes.programs import program
from workbench.queries import work as queries
from workbench.queries.run import Run


def two_kernels(b, x, y):
    return b.matmul(b.cumsum(x, axis=1), y)


@pytest.fixture
def compiled(tmp_path):
    made = compilation.start(program(two_kernels, "64x32xf32", "32x16xf32"), CPU())
    made.finish()
    return made, made.record(tmp_path / "run.cwrun")


def told(path):
    with closing(Run(path)) as run:
        return [(w.kernel, w.flops, w.bytes) for w in queries.work(run)]


def test_a_recording_holds_the_work_that_its_compile_counted(compiled, monkeypatch):
    made, path = compiled
    program, _, _ = made.facts["program"]
    monkeypatch.setattr(queries, "launch_cost", lambda op: pytest.fail("counted again"))
    found = told(path)
    assert found == [(each.kernel, each.flops, each.bytes) for each in program.launches]
    assert len(found) == 2 and sum(flops for _, flops, _ in found) >= 2 * 64 * 32 * 16


def test_the_work_is_counted_where_a_recording_does_not_hold_it(compiled):
    _, path = compiled
    held = told(path)
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT id, facts FROM kernel").fetchall()
        for number, facts in [(n, json.loads(text)) for n, text in rows if "work" in text]:
            del facts["work"]
            file.execute("UPDATE kernel SET facts = ? WHERE id = ?", (json.dumps(facts), number))
        file.commit()
    assert told(path) == held
