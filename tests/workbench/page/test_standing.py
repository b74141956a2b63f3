"""What goes wrong in one part of the page, or with one recording, leaves the rest standing."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from urllib.parse import quote

import pytest

from core_compiler.record import schema
from tests.slow import slow_but
from tests.workbench.page.conftest import Server, _need_panel

pytestmark = pytest.mark.playwright

#: A view whose data cannot be derived, one whose module cannot draw at all, one that cannot draw
#: what it is given; all by names that are no HTML.
_FAULTY = """
from workbench.ui import browser_modules as modules
from workbench.views import source
def data(run, state):
    raise RuntimeError("no <b>data</b> today")
source.data = data
text = modules.module_text
FAULTS = {
    "numerics": "export default { render() { throw new Error('no <b>drawing</b> today'); } };",
    "kernels": "export default component('', ({ watch, model }) => watch('data', () => {"
               "  if (model.get('data')) throw new Error('no <b>rows</b> today'); }));",
}
modules.module_text = lambda name: (
    modules.shared_text() + FAULTS[name] if name in FAULTS else text(name)
)
"""
SAID = {
    "source": ("RuntimeError: no <b>data</b> today", "the other parts work"),
    "numerics": ("This part of the page did not load (no <b>drawing</b> today)", "Reload the page"),
    "kernels": ("This part of the page failed: no <b>rows</b> today", "The other parts still work"),
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    _need_panel()
    server = Server(tmp_path_factory.mktemp("faulty"), before=_FAULTY).start()
    yield server
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("view", slow_but(("numerics",), SAID))
def test_a_view_that_fails_says_so_and_the_others_go_on(faulty, tab, recording, view):
    """The view beside it draws, keys lead on, other views are opened, and come back to it."""
    page = tab(f"{faulty.url}?run={quote(str(recording))}&stage=7&panes={view},graph")
    said = [f"#cw-view-{view} :text({text!r}):visible >> nth=0" for text in SAID[view]]
    for each in said:
        page.wait(each)
    page.drawn("graph")
    page.press("j")
    page.wait('#cw-rail .pass.on:not([data-stage="7"])')
    page.press("1")
    page.drawn("diff")
    page.show(view)
    for each in said:
        page.wait(each)
    page.wait("#cw-inspector section")
    # The console has it for who reports it; nothing of ours failed besides.
    assert all("today" in error for error in page.errors), page.errors


@pytest.fixture
def changed(recording, tmp_path):
    """``changed(statement)``: a copy of the recording in which a statement of SQL was executed."""

    def make(statement: str) -> Path:
        path = shutil.copy(recording, tmp_path / "changed.run")
        with sqlite3.connect(path) as database:
            database.executescript(statement)
        database.close()
        return path

    return make


@pytest.mark.slow
def test_a_recording_of_a_newer_version_is_said_and_the_page_goes_on(
    server, tab, recording, changed
):
    path = changed(f"PRAGMA user_version = {schema.VERSION + 1}")
    page = tab(f"{server.url}?run={quote(str(path))}")
    page.wait("#cw-start .error:visible")
    assert schema.made_by_newer(schema.VERSION + 1) in page.text("#cw-start .error")
    page.locate("#cw-start input[type=text]").fill(str(recording))
    page.press("Enter")
    page.wait("#cw-view-overview .status.finished")
    assert page.errors == []


@pytest.mark.slow
def test_half_a_copy_is_said_to_be_written_on_another_machine_and_can_be_looked_through(
    server, tab, changed
):
    path = changed(
        """UPDATE meta SET value = '"recording"' WHERE key = 'status';
        UPDATE meta SET value = '"1@another machine"' WHERE key = 'writer';
        DELETE FROM kernel_op; DELETE FROM kernel_step; DELETE FROM kernel; DELETE FROM launch_time;
        DELETE FROM check_result WHERE stage > 9; DELETE FROM rewrite WHERE stage > 9;
        DELETE FROM figure WHERE stage > 9 OR stage IS NULL; DELETE FROM tensor_stats;
        DELETE FROM buffer; DELETE FROM stage WHERE id > 9;"""
    )
    page = tab(f"{server.url}?run={quote(str(path))}")
    page.wait("#cw-view-overview .status.recording")
    assert page.text("#cw-view-overview .status") == "being written on another machine"
    page.press("1")
    page.drawn("graph")
    page.drawn("diff")
    before = page.query("stage")
    page.press("j")
    page.page.wait_for_function(
        "(before) => new URLSearchParams(location.search).get('stage') !== before", arg=before
    )
    page.press("2")
    page.wait("#cw-view-kernels .cw-message:visible")
    assert page.errors == []
