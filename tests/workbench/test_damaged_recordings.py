"""Recordings whose rows say what no compile says: a view tells it or shows the rest, and a command
ends in one line."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from core_compiler.support.errors import BAD_INPUT
from tests.slow import slow_but
from workbench.queries.run import Run
from workbench.state.view_state import VIEWS, ViewState
from workbench.ui.updates import UpdateTracker

FAILED = "UPDATE check_result SET verdict = 'failed'"
DAMAGES = {
    "figure is text": "UPDATE figure SET value = 'many' WHERE name = 'ops'",
    "figure is nothing": "UPDATE figure SET value = NULL WHERE name = 'ops'",
    "figure is infinite": "UPDATE figure SET value = 9e999 WHERE name = 'ops'",
    "figures of timing are text": "UPDATE figure SET value = 'fast' WHERE section = 'timing'",
    "figures of memory are text": "UPDATE figure SET value = 'much' WHERE section = 'memory'",
    "figures of the run are text": "UPDATE figure SET value = 'x' WHERE section = 'run'",
    "check without numbers": f"{FAILED}, worst_error = NULL, tolerance = NULL",
    "check without a value": f"{FAILED}, value = NULL",
    "check of an infinite error": f"{FAILED}, worst_error = 9e999",
    "line far away": "UPDATE node SET line = 3000000000",
    "line before the first": "UPDATE node SET line = -1",
    "edit is a list": "REPLACE INTO meta VALUES ('edit', '[1, [2]]')",
    "edit of numbers": """REPLACE INTO meta VALUES ('edit', '{"disable": 7}')""",
    "edit is text": """REPLACE INTO meta VALUES ('edit', '"all"')""",
    "model is a list": "REPLACE INTO meta VALUES ('model', '[]')",
    "inputs are a number": "REPLACE INTO meta VALUES ('inputs', '5')",
    "timing without a median": "UPDATE launch_time SET median = NULL",
    "timing of an infinite median": "UPDATE launch_time SET median = 9e999",
    "kernel facts are a list": "UPDATE kernel SET facts = '[]'",
    "buffer of no size": "UPDATE buffer SET size = -1",
    "buffer far away": "UPDATE buffer SET offset = 9000000000000000000",
    "seconds are infinite": "UPDATE stage SET seconds = 9e999",
}


@pytest.fixture(params=slow_but(("figure is text", "line far away"), DAMAGES))
def damaged(request, recording, tmp_path) -> Path:
    path = tmp_path / "damaged.run"
    shutil.copy(recording, path)
    with closing(sqlite3.connect(path)) as db:
        count = db.execute(DAMAGES[request.param]).rowcount
        db.commit()
    assert count > 0
    return path


def _faults(path: Path) -> dict[str, str]:
    """What is shown as a fault of ours, by view."""
    found = {}
    run = Run(path)
    try:
        for name in VIEWS:
            messages: dict[str, dict] = {}
            for stage in (None, 1):
                state = ViewState(run=path.name, panes=(name,), stage=stage)
                for _ in UpdateTracker().updates(state, run, None, messages):
                    pass
            for told in messages.values():
                if told.get("where") == "this part of the page":
                    found[name] = told["what"]
    finally:
        run.close()
    return found


def test_no_view_breaks(damaged, caplog):
    assert _faults(damaged) == {}
    assert not [r for r in caplog.records if r.name == "workbench" and r.levelname == "ERROR"]


COMMANDS = ("report", "passes", "kernels", "memory", "numerics", "lines", "advise", "bisect")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_ends_in_a_traceback(damaged, command, tmp_path, name):
    to = ("-o", tmp_path / "out.html") if name == "report" else ()
    code, _, said = command(name, damaged, *to)
    assert code in (0, 1, BAD_INPUT)
    assert len(said.splitlines()) <= (code == BAD_INPUT) * 2, said
