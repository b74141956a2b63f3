"""The code of two recordings: a kernel of A beside that of B which computes the same."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from widgets.encode import finite
from workbench.app import worker
from workbench.queries import code_pairs, kernel_texts
from workbench.queries.pairs import pairs
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import Empty, code

VIEW = "#cw-view-code "


@pytest.fixture(scope="module")
def unfused(tmp_path_factory) -> Path:
    """The recorded model again, with every launch on its own."""
    pytest.importorskip("torch", reason="the sample models need torch")
    path = tmp_path_factory.mktemp("unfused") / "unfused.run"
    skip = ["fuse_elementwise", "fuse_epilogues", "fuse_reductions"]
    job = {"model": "digits-cnn", "sizes": {"width": 0.25}, "edit": {"skip": skip}}
    worker._run({**job, "out": str(path)})
    return path


@pytest.fixture(scope="module")
def both(recording, unfused):
    runs = Run(recording), Run(unfused)
    yield runs
    for run in runs:
        run.close()


def launched(run: Run):
    return [kernel for kernel in run.kernels() if kernel.launches]


@pytest.mark.slow
def test_a_kernel_stands_beside_those_that_compute_the_same(both):
    a, b = both
    several = 0
    for kernel in launched(a):
        wanted = {
            each.work.kernel
            for pair in pairs(a, b)
            if {e.op for e in pair.first} & {*kernel.launches}
            for each in pair.second
        }
        data = code.data((a, b), ViewState(kernel=kernel.id))["two"]
        json.dumps(finite(data), allow_nan=False)
        assert {each["name"] for each in data["partners"]} == wanted
        assert (data["title"], data["names"]) == (kernel.name, [a.path.name, b.path.name])
        several += len(wanted) > 1
        for part in data["parts"]:
            there = data["partners"][part["partner"]]["name"]
            assert kernel.name in part["left"]["title"] and a.path.name in part["left"]["title"]
            assert there in part["right"]["title"] and b.path.name in part["right"]["title"]
    assert several


@pytest.mark.slow
def test_every_line_of_both_texts_is_there_once_and_a_patch_makes_one_of_the_other(both, tmp_path):
    a, b = both
    kernel = launched(a)[0]
    state = ViewState(kernel=kernel.id)
    data = code.data((a, b), state)["two"]
    theirs = {each.id: each for each in b.kernels()}
    for number, part in enumerate(data["parts"]):
        partner = theirs[data["partners"][part["partner"]]["id"]]
        left = next(
            text for title, _, text in kernel_texts.texts_of(a, kernel) if title == part["text"]
        )
        right = next(
            text for title, _, text in kernel_texts.texts_of(b, partner) if title == part["text"]
        )
        shown = [line["left"] for line in part["lines"]]
        assert [line for line in shown if line is not None] == left.removesuffix("\n").split("\n")
        shown = [line.get("right", line["left"]) for line in part["lines"]]
        assert [line for line in shown if line is not None] == right.removesuffix("\n").split("\n")
        assert all(
            (line["left"] == line.get("right", line["left"])) == (line["kind"] == "equal")
            for line in part["lines"]
        )

        def saved(what, number=number):
            request = {"kind": "text", "what": what, "from": 0, "part": number}
            return code.answer((a, b), state, request)

        file = tmp_path / saved("before")["file"]
        for what, path in (("before", file), ("patch", tmp_path / "patch")):
            path.write_text("\n".join([*saved(what)["lines"], ""]))
        if shutil.which("patch") and left != right:
            subprocess.run(["patch", "-s", file, tmp_path / "patch"], check=True)
            assert file.read_text().rstrip("\n") == right.rstrip("\n")


@pytest.mark.slow
def test_lines_of_a_have_the_ops_that_they_compute(both):
    a, b = both
    kernel = launched(a)[0]
    data = code.data((a, b), ViewState(kernel=kernel.id))["two"]
    (source,) = [p for p in data["parts"] if (p["text"], p["partner"]) == ("Generated source", 0)]
    lines = [line for line in source["lines"] if line["left"] is not None]
    first = {}
    for line, op in kernel.line_map:
        first.setdefault(line, op)
    assert {n: line["leftKey"] for n, line in enumerate(lines, 1) if line["leftKey"]} == first
    op = next(iter(first.values()))
    found = code.answer(
        (a, b),
        ViewState(kernel=kernel.id),
        {"kind": "find", "op": op, "part": data["parts"].index(source)},
    )
    assert source["lines"][found["row"]]["leftKey"] == op


def test_equal_texts_say_so_and_a_name_alone_is_told_apart(both):
    a, _ = both
    for part in code.data((a, a), ViewState())["two"]["parts"]:
        assert part["said"] == "the same text"
        assert {line["kind"] for line in part["lines"]} == {"equal"}
    rows, same = code_pairs._aligned("def f():\n  f2\n", "def g():\n  f2\n", ("f", "g"), {1: 7})
    assert same and [row["kind"] for row in rows] == ["changed", "same"]
    assert [row["left_key"] for row in rows] == [7, None]
    _, same = code_pairs._aligned("f\n", "g\n", ("h", "h"), {})
    assert not same


def test_what_b_does_not_have_is_said(both):
    a, b = both
    matched = {each.op for pair in pairs(b, a) if pair.second for each in pair.first}
    alone = [k for k in launched(b) if not matched & {*k.launches}]
    assert alone, "of the unfused some kernel has no partner"
    with pytest.raises(Empty, match=rf"No kernel of B \(digits-cnn\.run\) .*{alone[0].name} of A"):
        code.data((b, a), ViewState(kernel=alone[0].id))
    helper = next(k for k in a.kernels() if not k.launches)
    with pytest.raises(Empty, match=f"{helper.name} is not launched in A"):
        code.data((a, b), ViewState(kernel=helper.id))


def test_texts_that_are_too_long_are_named(both, monkeypatch):
    a, b = Run(both[0].path), both[1]
    monkeypatch.setattr(code_pairs, "MAX_LINES", 300)
    data = code.data((a, b), ViewState())["two"]
    assert {part["text"] for part in data["parts"]} == {"Generated source"}
    assert any(said.startswith("LLVM IR of ") for said in data["left_out"])
    a.close()


def test_a_match_by_work_alone_is_a_guess(both, monkeypatch):
    a, b = both
    one, two = launched(a)[0], launched(b)[0]

    def launch(run, kernel):
        work = SimpleNamespace(kernel=kernel.name, median_us=None, predicted_us=2.0)
        return SimpleNamespace(op=kernel.launches[0], work=work)

    pair = SimpleNamespace(first=(launch(a, one),), second=(launch(b, two),), by_work=True)
    monkeypatch.setattr(code_pairs, "pairs", lambda *_: [pair])
    assert code_pairs.partners_of(a, b, one) == [code_pairs.Partner(two, 1, 2.0, True)]


@pytest.mark.slow
def test_processor_and_gpu_have_texts_of_their_own_names(two_targets):
    cpu, cuda = Run(two_targets.cpu), Run(two_targets.cuda)
    data = code.data((cpu, cuda), ViewState())["two"]
    assert "LLVM IR | PTX" in {part["text"] for part in data["parts"]}
    request = {"kind": "text", "what": "after", "from": 0, "part": 1}
    assert code.answer((cpu, cuda), ViewState(), request)["file"].endswith(".ptx")
    cpu.close()
    cuda.close()


@pytest.mark.slow
def test_a_person_reads_both_and_selects_a_line(server, recording, unfused, tab):
    folder = server.root / "recordings"
    folder.mkdir(exist_ok=True)
    shutil.copy(recording, folder / "fused.run")
    shutil.copy(unfused, folder / "unfused.run")
    page = tab(f"{server.url}?run=fused.run&other=unfused.run&panes=code")
    page.wait(VIEW + ".pane .row")
    page.locate(".cw-tabs .two button >> text=A | B").click()
    page.wait(VIEW + ".both .cell.left")
    bar = page.text(VIEW + ".of-two.bar")
    assert "fused.run" in bar and "unfused.run" in bar and "match recorded" in bar
    left = page.locate(VIEW + ".both .cell.left").first
    assert left.bounding_box()["x"] < page.locate(VIEW + ".cell.right").first.bounding_box()["x"]
    assert "Kernel" in left.inner_text(), "A is on the left"
    page.locate(VIEW + ".of-two .group button >> text=LLVM IR").click()
    page.wait(VIEW + ".of-two .group button[aria-pressed=true] >> text=LLVM IR")
    page.wait_query("code.view", "LLVM", partly=True)
    page.locate(VIEW + ".of-two .group button >> text=Generated source").click()
    page.locate(VIEW + ".both button >> text=whole").click()
    run = Run(recording)
    shown = code.data((run, run), ViewState())["two"]
    line = next(n for n, each in enumerate(shown["parts"][0]["lines"], 1) if each["leftKey"])
    wanted = shown["parts"][0]["lines"][line - 1]["leftKey"]
    run.close()
    page.locate(f"{VIEW}.both .cell.left >> text=/^{line}\\D/").first.click()
    page.wait_query("op", str(wanted))
    page.wait(VIEW + ".both .row.selected")
    page.locate(".cw-tabs .two button >> text=/^A$/").click()
    page.wait(VIEW + ".pane .row")
    assert not page.errors
