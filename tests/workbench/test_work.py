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


def network(b, x, y, z):
    """Its products are launches of one kernel, of other sizes each."""
    h = b.cumsum(b.matmul(x, y), axis=1)
    return b.matmul(h, z)


@pytest.fixture
def compiled(tmp_path):
    made = compilation.start(program(network, "64x32xf32", "32x48xf32", "48x80xf32"), CPU())
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
    products = [flops for kernel, flops, _ in found if kernel == "matmul"]
    assert products == [2 * 64 * 32 * 48, 2 * 64 * 48 * 80]


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
