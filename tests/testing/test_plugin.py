"""The pytest plugin, by small projects that use it: golden files, recordings, and sessions that
use none of it.  The projects run in this process, where the compiler is imported already."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest

from core_compiler.record import Recording
from workbench.export import report
from workbench.testing.names import LONGEST, file_name

pytest_plugins = ("pytester",)

PROGRAM = '''
"""
module {
  "core.func"() ({
  ^bb0(%x: tensor<4xf32>):
    %a = "core.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %b = "core.neg"(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %c = "core.exp"(%b) : (tensor<4xf32>) -> tensor<4xf32>
    "core.return"(%c) : (tensor<4xf32>) -> ()
  }) {level = "tensor", sym_name = "main"} : () -> ()
}
"""
'''
HEAD = f"""
import numpy as np
import pytest
from core_compiler.ir.parser import parse
from core_compiler.passes.canonicalise import Canonicalise
from core_compiler.pipelines.pipeline import PipelineEdit
from tests.compiler import broken
PROGRAM = {PROGRAM.strip()}
X = np.linspace(-1, 1, 4, dtype=np.float32)
"""
#: An installed workbench registers the plugin, another checkout's perhaps; here it is this one's.
ARGUMENTS = ("-p", "workbench.testing.plugin", "-p", "no:cacheprovider", "--import-mode=importlib")


class Imported:
    """Modules that a project has imported first: pytester would forget them, and a compiler that
    is imported in parts twice has two of each class."""

    def __init__(self) -> None:
        self.modules: dict[str, ModuleType] = {}

    def pytest_unconfigure(self) -> None:
        self.modules |= sys.modules

    def keep(self) -> None:
        for name, module in self.modules.items():
            if not name.startswith("test_"):
                sys.modules.setdefault(name, module)


@pytest.fixture
def imported():
    """Set up before pytester, so that it ends after it."""
    made = Imported()
    yield made
    made.keep()


@pytest.fixture
def project(imported, pytester, monkeypatch, repository):
    """Runs pytest on the files that it is given; what it answers is a RunResult."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(repository))  # of xdist's processes

    def run(*options: str, **files: str):
        for name, text in files.items():
            (pytester.path / f"{name}.py").write_text(HEAD + textwrap.dedent(text))
        result = pytester.runpytest_inprocess(*ARGUMENTS, *options, plugins=[imported])
        imported.keep()
        return result

    run.path = pytester.path
    return run


def outcome(result) -> dict[str, int]:
    return {k: n for k, n in result.parseoutcomes().items() if k != "warnings"}


# -- golden files ----------------------------------------------------------------------------------

GOLDEN = """
def test_one(run_pass, golden_ir):
    golden_ir(run_pass(Canonicalise(), PROGRAM))

@pytest.mark.parametrize("limit", [0, 1])
def test_two(run_pass, golden_ir, limit):
    golden_ir(run_pass(Canonicalise(), PROGRAM, limit=limit), "after")
    golden_ir(f"{limit} rewrites\\n", "text")
"""


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_golden_files_from_the_first_run_to_the_last(project):
    folder = project.path / "golden" / "test_a"
    result = project(test_a=GOLDEN)
    assert outcome(result) == {"failed": 3}
    result.stdout.fnmatch_lines(
        [
            "E*AssertionError: golden file golden/test_a/test_one.mlir not found",
            "E*pytest --workbench-update writes it",
        ]
    )
    assert not folder.exists()

    result = project("--workbench-update")
    assert outcome(result) == {"passed": 3}
    made = [
        "test_one.mlir",
        "test_two-0.after.mlir",
        "test_two-0.text.txt",
        "test_two-1.after.mlir",
        "test_two-1.text.txt",
    ]
    assert files(folder) == made
    assert {f"written: golden/test_a/{name}" for name in made} <= set(result.outlines)

    # Names of values may change; a file that says the same is not written again.
    path = folder / "test_one.mlir"
    path.write_text(path.read_text().replace("%x", "%argument").replace("%c", "%0"))
    kept = path.read_text()
    result = project()
    assert outcome(result) == {"passed": 3} and "golden files" not in result.stdout.str()
    assert outcome(project("--workbench-update")) == {"passed": 3} and path.read_text() == kept

    path.write_text(kept.replace("core.exp", "core.tanh"))
    (folder / "test_two-1.text.txt").write_text("3 rewrites\n")
    result = project()
    assert outcome(result) == {"failed": 2, "passed": 1}
    result.stdout.fnmatch_lines(
        [
            "E*AssertionError: golden/test_a/test_one.mlir says something else",
            'E*-    %0 = "core.tanh"(%argument) : *',
            'E*+    %0 = "core.exp"(%argument) : *',
            'E*     "core.return"(%0) : *',
            "E*pytest --workbench-update writes it anew",
            "E*-3 rewrites",
            "E*+1 rewrites",
        ]
    )
    assert outcome(project("--workbench-update")) == {"passed": 3}
    assert outcome(project()) == {"passed": 3}


@pytest.mark.slow
def test_golden_files_do_not_know_how_tests_are_given_to_processes(project):
    grouped = """
    class TestA:
        @pytest.mark.xdist_group("slow")
        @pytest.mark.parametrize("text", ["a::b", "c"])
        def test_b(self, golden_ir, text):
            golden_ir(text)
    """
    folder = project.path / "golden" / "test_a"
    assert outcome(project("-p", "xdist", "--workbench-update", test_a=grouped)) == {"passed": 2}
    kept = files(folder)
    assert "TestA--test_b-c.txt" in kept
    many = ("-p", "xdist", "-n", "1", "--dist", "loadgroup")
    assert outcome(project(*many)) == {"passed": 2}
    assert outcome(project(*many, "--workbench-update")) == {"passed": 2} and files(folder) == kept


def test_texts_are_compared_letter_by_letter(project):
    text = r"""
    def test_ends(golden_ir):
        golden_ir("one\r\ntwo\n")
    """
    assert outcome(project("--workbench-update", test_a=text)) == {"passed": 1}
    assert outcome(project()) == {"passed": 1}
    result = project(test_a=text.replace(r"\r", ""))
    assert outcome(result) == {"failed": 1}
    result.stdout.fnmatch_lines(["E*the ends of lines differ"])


@pytest.mark.slow
def test_stale_golden_files_are_named_and_removed_when_asked_for(project):
    """Only where every test of the file ran, and not those of a test that may not have come so
    far, nor files that golden_ir does not write."""
    folder = project.path / "golden" / "test_a"
    project("--workbench-update", test_a=GOLDEN)
    (folder / "README.md").write_text("kept")
    stale = {f"golden/test_a/test_two-1.{end}" for end in ("after.mlir", "text.txt")}
    fewer = GOLDEN.replace("[0, 1]", "[0]")

    for some in (("-k", "one"), ("test_a.py::test_one",), ("--deselect", "test_a.py::test_one")):
        assert "golden files" not in project(*some, "--workbench-update", test_a=fewer).stdout.str()
    skipped = fewer.replace("\n@", '\n@pytest.mark.skip(reason="later")\n@')
    result = project(test_a=skipped)
    assert {f"used by no test: {path}" for path in stale} <= set(result.outlines)
    assert not [line for line in result.outlines if "test_two-0" in line and "used" in line]

    result = project(test_a=fewer)
    assert {f"used by no test: {path}" for path in stale} <= set(result.outlines)
    assert "pytest --workbench-update removes those that no test uses" in result.outlines
    assert outcome(result) == {"passed": 2} and len(files(folder)) == 6
    result = project("--workbench-update")
    assert {f"removed: {path}" for path in stale} <= set(result.outlines)
    assert len(files(folder)) == 4 and "README.md" in files(folder)
    assert "golden files" not in project().stdout.str()


def test_two_golden_files_need_two_names(project):
    text = """
    def test_twice(golden_ir):
        golden_ir("one")
        golden_ir("two")

    def test_again(golden_ir):
        golden_ir("one")
        golden_ir("one")

    def test_odd_name(golden_ir):
        golden_ir("one", "a/b")
    """
    result = project("--workbench-update", test_a=text)
    assert outcome(result) == {"failed": 2, "passed": 1}
    result.stdout.fnmatch_lines(["E*-one", "E*+two", "E*give each golden file of the test a name"])
    result.stdout.fnmatch_lines(["*UserError: golden_ir: 'a/b' cannot be part of a file name*"])


# -- recordings ------------------------------------------------------------------------------------

FAILING = """
@pytest.fixture(scope="module")
def shared(run_pass):
    return run_pass(Canonicalise(), PROGRAM)

@pytest.fixture
def fails(compiled):
    compiled(parse(PROGRAM), (X,), finish=False)
    raise ValueError("in the fixture")

def test_passes(compiled, shared):
    compiled(parse(PROGRAM), (X,), finish=False).step()

@pytest.mark.parametrize("text", ["a/b [c]"])
def test_odd_id(run_pass, text):
    run_pass(Canonicalise(), PROGRAM)
    run_pass(Canonicalise(), PROGRAM, [X])
    assert text == ""

def test_of_a_fixture(shared):
    assert len(shared.rewrites) == 7

def test_that_a_fixture_breaks(fails):
    pass

def test_of_a_pass_that_raises(compiled):
    compiled(parse(PROGRAM), (X,), edit=PipelineEdit(insert=((1, broken.Raises()),)))

def test_that_compiles_nothing():
    assert 0
"""


def test_a_failing_test_leaves_what_it_compiled(project):
    result = project("--workbench-record=left", "--junitxml=j.xml", test_a=FAILING)
    assert outcome(result) == {"passed": 1, "failed": 4, "errors": 1}
    left = project.path / "left"
    odd = file_name("test_a.py::test_odd_id[a/b [c]]")
    alone = "test_of_a_fixture", "test_of_a_pass_that_raises", "test_that_a_fixture_breaks"
    stems = [f"{odd}.1", f"{odd}.2", *(f"test_a.py--{name}" for name in alone)]
    assert files(left) == sorted(f"{stem}.{end}" for stem in stems for end in ("run", "html"))

    summary = result.outlines[
        result.outlines.index(
            next(line for line in result.outlines if "workbench recordings" in line)
        ) :
    ]
    assert {f"  left/{name}" for name in files(left)} <= set(summary)
    sections = [line for line in result.outlines if re.fullmatch(r"-+ workbench -+", line)]
    assert len(sections) == 4
    named = {
        (row.get("name"), Path(row.get("value", "")).name)
        for row in ElementTree.parse(project.path / "j.xml").iter("property")
    }
    assert named == {
        (f"workbench_{'recording' if name.endswith('.run') else 'report'}", name)
        for name in files(left)
    }

    with Recording.open(left / "test_a.py--test_of_a_pass_that_raises.run") as run:
        assert len(run.stages()) == 2  # the import, and the pass before the one that raised
        assert run.meta()["status"] == "failed"
        assert "division by zero" in run.meta()["message"]
        assert run.meta()["test"] == "test_a.py::test_of_a_pass_that_raises"
    with Recording.open(left / f"{odd}.2.run") as run:
        assert [s.pass_name for s in run.stages()] == ["import", "canonicalise"]
        assert run.meta()["status"] == "finished"
    page = (left / "test_a.py--test_of_a_fixture.html").read_text()
    assert page.startswith("<!doctype html>")


DIRECT = """
import core_compiler as cc
from core_compiler.driver import compilation as compiler

EARLY = compiler.start(parse(PROGRAM))

@pytest.fixture
def base():
    return cc.compile(parse(PROGRAM), (X,), finish=False)

def test_of_the_code_under_test(base):
    base.step()
    base.rerun(0, PipelineEdit(skip=("canonicalise",))).step()
    cc.compile(parse(PROGRAM), (X,), edit=PipelineEdit(insert=((1, broken.Raises()),)))

def test_of_what_is_kept(base, compiled):
    assert compiled.keep(EARLY) is EARLY and compiled.keep(base) is base
    assert 0

def test_that_passes(base):
    base.step()
"""


@pytest.mark.slow
def test_compiles_without_the_fixtures_are_recorded_too(project):
    result = project("--workbench-record=left", test_a=DIRECT)
    assert outcome(result) == {"failed": 2, "passed": 1}
    left, found = project.path / "left", {}
    for path in left.glob("*.run"):
        with Recording.open(path) as run:
            found[path.stem] = [stage.pass_name for stage in run.stages()]
    code, kept = "test_a.py--test_of_the_code_under_test", "test_a.py--test_of_what_is_kept"
    first = found[f"{code}.1"]
    assert len(first) == 2 and first[0] == "import"
    assert len(found[f"{code}.3"]) == 2  # the import, and the pass before the one that raised
    assert found == {
        f"{code}.1": first,
        f"{code}.2": found[f"{code}.2"],
        f"{code}.3": first,
        f"{kept}.1": ["import"],
        f"{kept}.2": ["import"],
    }
    assert all(path.with_suffix(".html").is_file() for path in left.glob("*.run"))

    assert outcome(project(test_a=DIRECT)) == {"failed": 2, "passed": 1}
    assert [name for name in files(project.path) if name != "__pycache__"] == ["left", "test_a.py"]


def test_without_the_option_nothing_is_kept_or_written(project):
    result = project(test_a=FAILING)
    assert outcome(result) == {"passed": 1, "failed": 4, "errors": 1}
    assert "workbench" not in "\n".join(result.outlines[-12:])
    assert [name for name in files(project.path) if name != "__pycache__"] == ["test_a.py"]


def test_a_recording_that_fails_is_a_line_and_no_failure(project, monkeypatch):
    one = """
    def test_fails(run_pass):
        run_pass(Canonicalise(), PROGRAM)
        assert 0
    """
    (project.path / "taken").mkdir()
    (project.path / "taken" / "test_a.py--test_fails.run").mkdir()
    result = project("--workbench-record=taken", test_a=one)
    assert outcome(result) == {"failed": 1}
    result.stdout.fnmatch_lines(["  warning: no recording of compile 1 of *::test_fails: *write*"])

    def broken(*given):
        raise ZeroDivisionError("no report\nat all")

    monkeypatch.setattr(report, "write", broken)
    result = project("--workbench-record=left")
    assert outcome(result) == {"failed": 1} and files(project.path / "left") == [
        "test_a.py--test_fails.run"
    ]
    result.stdout.fnmatch_lines(
        [
            "  left/test_a.py--test_fails.run",
            "  warning: no report of compile 1 of test_a.py::test_fails: no report",
        ]
    )


@pytest.mark.parametrize("given", ["test_a.py", "test_a.py::test_one", "."])
def test_tests_are_not_taken_for_the_folder(project, given):
    result = project("--workbench-record", given, test_a=GOLDEN)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --workbench-record takes the folder * {given} holds *"])


# -- checks ----------------------------------------------------------------------------------------


def test_checks_name_the_rewrite(project):
    text = """
    from workbench.testing import check_passes
    SIGMOID = parse(PROGRAM.replace("core.exp", "core.sigmoid"))
    NUDGE = PipelineEdit(insert=((0, broken.Nudge()),))

    def test_it_is_asked_for(compiled):
        made = compiled(SIGMOID, (X,), check=True, edit=NUDGE, finish=False)
        made.step()
        check_passes(made)

    def test_one_pass(run_pass):
        run_pass(broken.Nudge(), SIGMOID, [X])

    def test_nothing_was_checked(compiled):
        check_passes(compiled(SIGMOID, (X,), finish=False))

    def test_all_is_well(compiled):
        made = compiled(SIGMOID, (X,), check=True, finish=False)
        while made.next.label != "decompose":
            made.step()
        counts = check_passes(made)
        assert counts["bitwise"] > 0 == counts["failed"] == counts["unchecked"]
    """
    result = project(test_a=text)
    assert outcome(result) == {"failed": 3, "passed": 1}
    result.stdout.fnmatch_lines(
        [
            "E*AssertionError: of 1 checks 1 failed and 0 could not be made",
            "E*stage 1 nudge: nudge failed: nudge is declared bit-exact but changed values (*",
            "E* before, * after at [[]*]",
            "*UserError: check_passes: the compile was not checked; compile with check=True*",
        ]
    )


def test_a_compile_of_a_test_is_recorded_where_it_asks_for_it(project):
    text = """
    def test_recorded(compiled, tmp_path):
        made = compiled(parse(PROGRAM), (X,), record=tmp_path / "x.run")
        assert made.next is None and (tmp_path / "x.run").is_file()
    """
    assert outcome(project(test_a=text)) == {"passed": 1}


@pytest.mark.slow
def test_the_option_checks_every_compile(project):
    text = """
    def test_well(compiled):
        assert compiled(parse(PROGRAM), (X,)).options.check

    def test_bad(compiled):
        nudge = PipelineEdit(insert=((0, broken.Nudge()),))
        compiled(parse(PROGRAM.replace("core.exp", "core.sigmoid")), (X,), edit=nudge)
    """
    result = project("--workbench-check", test_a=text)
    assert outcome(result) == {"passed": 1, "failed": 1}
    result.stdout.fnmatch_lines(["E*AssertionError: of * checks 1 failed and 0 could not be made"])


# -- other people's sessions -----------------------------------------------------------------------

PROBE = """
import sys
def pytest_sessionfinish(session):
    ours = [n for n in sys.modules if n.startswith(("core_compiler", "widgets", "workbench"))]
    heavy = [n for n in ("numpy", "panel", "numba", "sqlite3") if n in sys.modules]
    print("LOADED", *ours, *heavy)
    plugins = [name for name, _ in session.config.pluginmanager.list_name_plugin()]
    print("PLUGINS", *(name for name in plugins if "workbench" in name))
"""


def test_a_session_that_does_not_use_it_imports_nothing(pytester, repository):
    pytester.makeconftest(PROBE)
    pytester.makepyfile("def test_theirs(): pass")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *ARGUMENTS, "-s", "-q"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(repository), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert ".LOADED workbench workbench.testing workbench.testing.plugin" in lines
    assert "PLUGINS workbench.testing.plugin" in lines


@pytest.mark.slow
def test_it_works_in_two_processes(project):
    for name in ("test_a", "test_b"):
        project("--co", **{name: GOLDEN})
    project("--co", test_c=FAILING)
    many = ("-p", "xdist", "-n", "2")
    result = project(*many, "--workbench-update", "--workbench-record=left")
    assert outcome(result)["failed"] == 4
    written = [line for line in result.outlines if line.startswith("written: golden/")]
    assert len(written) == 10
    assert {f"  left/{name}" for name in files(project.path / "left")} <= set(result.outlines)
    assert len(files(project.path / "left")) == 10
    result = project(*many, test_a=GOLDEN.replace("[0, 1]", "[0]"))
    stale = [line for line in result.outlines if line.startswith("used by no test: ")]
    assert stale == [
        f"used by no test: golden/test_a/test_two-1.{end}" for end in ("after.mlir", "text.txt")
    ]


# -- names -----------------------------------------------------------------------------------------


def test_names_of_files():
    assert file_name("tests/test_a.py::TestB::test_c[1-f32]") == (
        "tests-test_a.py--TestB--test_c-1-f32"
    )
    odd = [
        "t.py::a[b/c]",
        "t.py::a[b c]",
        "t.py::a[b_c]",
        "t-t.py::a[b_c]",
        "t.py::a[é]",
        "t.py::a[../../x]",
        f"t.py::a[{'x' * 300}]",
        f"t.py::a[{'x' * 301}]",
    ]
    made = [file_name(test) for test in odd]
    assert len(set(made)) == len(odd)
    for name in made:
        assert re.fullmatch(r"[\w.\-]+", name, re.ASCII) and len(name) <= LONGEST + 9
    assert made[2] == "t.py--a-b_c"
