"""Jobs beside what a page shows: each view hears of its own, whatever else goes on."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core_compiler.driver import compilation
from core_compiler.record.recorder import Recorder
from tests.passes.programs import program
from tests.workbench.page.conftest import _need_panel, run_apart
from tests.workbench.page.test_trust import compiled
from workbench.app.compiles import Limits
from workbench.app.workspace import Workspace

#: Waits for a file with its exit code; the search's is called ``bisect``, the compile's ``edited``.
WORKER = """
read job
case "$job" in *'"bisect":'*) name=bisect;; *) name=edited;; esac
out=$(echo "$job" | sed 's/.*"out": "\\([^"]*\\)".*/\\1/')
echo "{{\\"progress\\": {{\\"what\\": \\"$name goes on\\", \\"done\\": 0, \\"total\\": 0}}}}"
while [ ! -e {folder}/$name ]; do sleep 0.02; done
[ $name = edited ] && cp {folder}/made.run "$out"
exit $(cat {folder}/$name)
"""


@pytest.fixture
def workspace(tmp_path: Path, stands_in: Callable[[str], None]) -> Iterator[Workspace]:
    """A server for a team, with the run ``a`` in its library."""
    _need_panel()
    made = Workspace(root=tmp_path / "store", limits=Limits(compiles=3, queue=3))
    for path in (tmp_path / "made.run", made.library.folder / "a.run"):
        compiled(path)
    stands_in(WORKER.format(folder=tmp_path))
    yield made
    made.compiles.stop_all()


@pytest.fixture
def drive(workspace: Workspace) -> Callable[[Callable[[Any], Awaitable[None]]], None]:
    """``drive(story)``: ``story(page)`` of a page that shows run ``a`` with First bad pass."""

    async def driven(story: Callable[[Any], Awaitable[None]]) -> None:
        from tests.workbench.page.driven import Driven

        page = Driven(workspace, "run=a.run&panes=pipeline,bisect")
        try:
            await page.until(lambda: page.detail("bisect"))
            await story(page)
        finally:
            page.close()

    return lambda story: run_apart(driven(story))


async def searching(page: Any) -> None:
    page.send("bisect", again=True)
    await page.until(lambda: page.search.get("progress", {}).get("what") == "bisect goes on")


async def compiling(page: Any) -> None:
    page.send("rerun", draft={})
    await page.until(lambda: page.detail("pipeline").get("state") == "running")


@pytest.mark.slow
def test_a_compile_leaves_the_search_its_progress_its_cancel_and_its_end(drive, tmp_path):
    async def story(page: Any) -> None:
        await searching(page)
        await compiling(page)
        await page.until(lambda: page.bar["job"]["what"] == "edited goes on")
        assert page.bar["job"]["of"] == "pipeline"
        assert page.search["progress"]["what"] == "bisect goes on"
        page.send("cancel", of="bisect")
        await page.until(lambda: page.search["state"] == "cancelled")
        assert page.detail("pipeline")["state"] == "running" and page.bar["job"] is not None
        (tmp_path / "edited").write_text("0")
        await page.until(lambda: page.page.view_state.other == "a.run")
        assert page.detail("pipeline")["state"] == "done"

    drive(story)


def test_a_search_leaves_the_compile_its_end(drive, tmp_path):
    async def story(page: Any) -> None:
        await compiling(page)
        await searching(page)
        (tmp_path / "edited").write_text("1")
        await page.until(lambda: page.detail("pipeline")["state"] == "failed")
        assert page.search["state"] == "running"
        (tmp_path / "bisect").write_text("0")
        await page.until(lambda: page.search["state"] == "finished")
        assert page.bar["job"] is None

    drive(story)


@pytest.mark.slow
def test_what_is_stepped_through_is_followed_to_its_end_behind_a_search(drive):
    async def story(page: Any) -> None:
        await searching(page)
        page.send("rerun", draft={}, hold=True)
        await page.until(lambda: page.page.view_state.run != "a.run")
        made = compilation.start(
            program(lambda b, x: b.relu(x), "4xf32"),
            observer=(recorder := Recorder(page.page.job.path)),
        )
        recorder.begin({"model": "x", "spec": "digits-mlp", "kind": "sample", "target": "cpu"})
        await page.until(lambda: page.page.run is not None)
        for _ in range(3):
            made.step()
            recorder.progress("step", 1, 1)
            await page.until(lambda: page.page.view_state.stage == len(made.stages) - 1)
        page.send("show", view="bisect")
        await page.until(lambda: page.page.view_state.panes[0] == "bisect")
        await page.until(lambda: page.search == {})

    drive(story)


def test_another_recording_shows_no_state_of_a_search_in_this_one(drive, tmp_path):
    async def story(page: Any) -> None:
        await searching(page)
        (tmp_path / "bisect").write_text("1")
        await page.until(lambda: page.search["state"] == "failed")
        page.send("open", what="digits-cnn")
        await page.until(lambda: page.page.view_state.run != "a.run")
        (tmp_path / "edited").write_text("0")
        await page.until(lambda: page.page.run is not None and page.page.job is None)
        page.send("show", view="bisect")
        await page.until(lambda: "bisect" in page.page.view_state.panes)
        await page.until(lambda: page.search == {})

    drive(story)


def test_of_a_run_that_was_made_here_another_page_hears_too(drive, workspace, tmp_path):
    """Of a search in it, and that it was deleted."""
    from tests.workbench.page.driven import Driven

    async def story(page: Any) -> None:
        await compiling(page)
        (tmp_path / "edited").write_text("0")
        await page.until(lambda: page.page.view_state.run != "a.run" and page.page.run is not None)
        await searching(page)
        other = Driven(workspace, f"run={page.page.view_state.run}&panes=bisect")
        await other.until(lambda: other.search.get("state") == "running")
        (tmp_path / "bisect").write_text("0")
        await other.until(lambda: other.search["state"] == "finished")
        other.close()
        name = page.page.view_state.run
        workspace.library.remove(name)
        late = Driven(workspace, f"run={name}")
        late.close()
        assert late.page.problem["what"] == "this run was deleted"
        assert late.page.run is None and late.page.view_state.run == ""

    drive(story)


def test_the_same_refusal_is_told_again(drive):
    async def story(page: Any) -> None:
        for times in (1, 2):
            page.send("rerun", draft={"edit": {"skip": ["bufferize"]}})
            await page.until(lambda times=times: len(page.told["pipeline"]) == times)
            assert page.detail("pipeline")["state"] == "refused"
        assert len(page.told["overview"]) == 2

    drive(story)


@pytest.mark.slow
def test_a_view_of_another_recording_does_not_wait_for_the_compile_of_this_one(
    drive, workspace, tmp_path
):
    shutil.copy(tmp_path / "made.run", workspace.library.folder / "b.run")

    async def story(page: Any) -> None:
        await compiling(page)
        page.send("open", what="b.run")
        await page.until(lambda: page.page.view_state.run == "b.run")
        assert page.detail("pipeline")["state"] == "done"

    drive(story)
