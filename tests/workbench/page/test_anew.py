"""A recording that is written anew while pages show it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from core_compiler.driver import compilation
from core_compiler.record import Recording
from core_compiler.record.recorder import Recorder
from tests.passes.programs import program

TOLD = "#cw-bar .toast"
ANEW = "The recording was replaced"


def _recorded(path: Path, name: str, function) -> Path:
    made = compilation.start(program(function, "256x256xf32"), "cpu").finish()
    with Recorder(path) as recorder:
        made.report(recorder, spec=name, model=name, kind="onnx", target="cpu", edit={})
    return path


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("anew")
    return (
        _recorded(folder / "one.run", "one", lambda b, x: b.exp(b.tanh(x))),
        _recorded(folder / "two.run", "two", lambda b, x: b.neg(x)),
    )


def _copied(new: Path, path: Path) -> None:
    path.write_bytes(new.read_bytes())


def _moved(new: Path, path: Path) -> None:
    beside = path.with_suffix(".new")
    shutil.copy(new, beside)
    os.replace(beside, path)


def _recorded_again(new: Path, path: Path) -> None:
    _recorded(path, "two", lambda b, x: b.neg(x))


@pytest.mark.slow
@pytest.mark.playwright
@pytest.mark.parametrize("write", [_copied, _moved, _recorded_again])
def test_what_is_written_in_its_place_is_shown(server, tab, two, tmp_path, write):
    path = tmp_path / "shown.run"
    shutil.copy(two[0], path)
    page = tab(f"{server.url}?run={quote(str(path))}&panes=graph,diff&stage=3")
    page.wait("#cw-bar :text-is('one')")
    page.drawn("graph")
    write(two[1], path)
    page.wait("#cw-bar :text-is('two')")
    page.wait(f"{TOLD}:has-text('{ANEW}')")
    assert "error" not in page.locate(TOLD).get_attribute("class")
    page.show("overview")
    page.wait("#cw-view-overview h1:has-text('two')")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_the_other_of_two_too(server, tab, two, tmp_path):
    path = tmp_path / "other.run"
    shutil.copy(two[0], path)
    page = tab(f"{server.url}?run={quote(str(two[0]))}&other={quote(str(path))}&panes=compare")
    page.wait("#cw-view-compare:has-text('one')")
    _copied(two[1], path)
    page.wait("#cw-view-compare:has-text('two')")
    page.wait(f"{TOLD}:has-text('{ANEW}')")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_newer_copies_of_one_that_grows_are_followed(server, tab, tmp_path):
    """As `rsync` leaves them, of a compile on another machine: it is the same recording."""
    there, path = tmp_path / "there.run", tmp_path / "here.run"
    made = compilation.start(program(lambda b, x: b.exp(b.tanh(x)), "256x256xf32"), "cpu")

    def copy() -> None:
        new = tmp_path / "copy.run"
        with Recording.open(there) as recording:
            recording.export(new)
        os.replace(new, path)

    with Recorder(there) as recorder:
        made.report(recorder, spec="grows", model="grows", kind="onnx", target="cpu", edit={})
        made.observer = recorder
        copy()
        page = tab(f"{server.url}?run={quote(str(path))}&panes=overview")
        page.wait("#cw-view-overview .status.recording")
        page.wait("#cw-rail :text('0 of 0')")
        made.step()
        made.step()
        copy()
        page.wait("#cw-rail :text('of 2')")
        made.finish()
    copy()
    page.wait("#cw-view-overview .status.finished")
    assert page.locate(TOLD).is_hidden()
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_half_of_one_is_told_once_and_the_rest_is_shown(server, tab, two, tmp_path):
    path = tmp_path / "half.run"
    shutil.copy(two[0], path)
    page = tab(f"{server.url}?run={quote(str(path))}&panes=overview")
    page.wait("#cw-view-overview h1:has-text('one')")
    content = two[1].read_bytes()
    path.write_bytes(content[: len(content) // 2])
    page.wait(f"{TOLD}.error")
    page.locate(f"{TOLD} [aria-label=Close]").click()
    page.page.wait_for_timeout(3000)  # what would be told again is told with each look
    assert page.locate(TOLD).is_hidden()
    path.write_bytes(content)
    page.wait("#cw-view-overview h1:has-text('two')")
