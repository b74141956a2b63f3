"""Golden files: the approved IR of a stage, or an approved text.

They are in ``golden/<test file>/<test>.mlir`` beside the test: one folder per test file, so that
files that no test uses any more can be identified.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from workbench.testing.names import file_name

#: The extensions that ``golden_ir`` writes: IR, and texts. Other files in its folders are left
#: alone.
IR, TEXT = ".mlir", ".txt"
_NAME = re.compile(r"[\w\-]*", re.ASCII)
#: Collectors above the classes and functions of a test file; file names omit them.
_ABOVE = (pytest.Session, pytest.Directory, pytest.File)
_USED = pytest.StashKey["Golden"]()


@dataclass(repr=False)
class Golden:
    """The fixture ``golden_ir`` of one test."""

    folder: Path
    test: str
    update: bool
    #: The folder in which pytest was started: messages name files relative to it.
    start: Path
    used: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, request: pytest.FixtureRequest) -> Golden:
        node, config = request.node, request.config
        update, start = config.getoption("workbench_update"), config.invocation_params.dir
        made = cls(_folder(node.path), _test(node), update, start)
        node.stash[_USED] = made
        return made

    def __call__(self, what: Any, name: str = "") -> None:
        """Compare ``what`` with its golden file.

        AssertionError with a diff if it differs or is missing.

        A stage, a compilation (its last stage) or a module is compared as IR: the names and
        numbers of its values are ignored. A text is compared exactly. A test with several golden
        files gives each a ``name`` of letters, digits, ``_`` and ``-``. With
        ``--workbench-update`` the file is written if it differs, once per test: later calls with
        the same name are compared with it.
        """
        __tracebackhide__ = True
        from core_compiler.support.errors import UserError
        from workbench.testing.file_check import text_of

        if not _NAME.fullmatch(name):
            raise UserError(
                f"{name!r} cannot be part of a file name",
                "golden_ir",
                "use letters, digits, _ and -",
            )
        text = text_of(what)
        kind = TEXT if isinstance(what, str) else IR
        path = self.folder / f"{self.test}{'.' if name else ''}{name}{kind}"
        already_used = path.name in self.used
        self.used.append(path.name)
        expected = _read(path) if path.is_file() else None
        changes = None if expected is None else _changes(expected, what, text)
        if changes == []:
            return
        relative_path = os.path.relpath(path, self.start)
        if self.update and not already_used:
            _write(path, text)
            self.written.append(path.name)
        elif changes is None:
            raise AssertionError(
                f"golden file {relative_path} not found\npytest --workbench-update writes it"
            )
        else:
            fix = (
                "give each golden file of the test a name"
                if already_used and self.update
                else ("pytest --workbench-update writes it anew")
            )
            raise AssertionError("\n".join([f"{relative_path} says something else", *changes, fix]))


def _changes(wanted: str, what: Any, text: str) -> list[str]:
    """Return the diff from a golden file to ``what``, whose text is ``text``; [] if they agree."""
    from workbench.testing.ir_diff import ir_diff, text_diff

    if text == wanted:
        return []
    if not isinstance(what, str):
        return ir_diff(wanted, getattr(what, "module", what))
    return text_diff(wanted.splitlines(), text.splitlines()) or ["the ends of lines differ"]


def _folder(path: Path) -> Path:
    return path.parent / "golden" / path.stem


def _test(item: pytest.Item) -> str:
    """Return a test's name without the suffixes that plugins add (xdist adds a group)."""
    return file_name("::".join(n.name for n in item.listchain() if not isinstance(n, _ABOVE)))


def _read(path: Path) -> str:
    with path.open(encoding="utf-8", newline="") as file:  # \r is significant
        return file.read()


def _write(path: Path, text: str) -> None:
    """Write by rename: a reader in another process never sees part of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8", newline="")
    part.replace(path)


# -- stale files ----------------------------------------------------------------------------------


class Goldens:
    """A plugin that attaches the golden files used to the reports of tests.

    The session's first process reads them.
    """

    def __init__(self, tests: dict[Path, int]):
        #: Test file -> the number of its tests; 0 if not all of them run.
        self._tests = tests

    @classmethod
    def of(cls, session: pytest.Session, using: set[Path], partly: set[Path]) -> Goldens:
        """Return the plugin for the test files ``using`` golden files.

        Of those in ``partly`` some tests are deselected.
        """
        config = session.config
        chosen = any("::" in str(arg) for arg in config.args) or config.getoption("lf", False)
        tests = dict.fromkeys(using, 0)
        for item in session.items:
            if item.path in using - partly and not chosen:
                tests[item.path] += 1
        return cls(tests)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if item.path in self._tests and (report.when == "call" or not report.passed):
            golden = item.stash.get(_USED, None)
            vars(report)["workbench_golden"] = {
                "folder": str(_folder(item.path)),
                "tests": self._tests[item.path],
                "test": _test(item),
                "used": golden.used if golden else [],
                "written": golden.written if golden else [],
            }
        return report


def summarise(terminal: pytest.TerminalReporter, reports: Sequence[pytest.TestReport]) -> None:
    """Print which golden files were written or are stale; remove the latter if requested."""
    config = terminal.config
    update, start = config.getoption("workbench_update"), config.invocation_params.dir
    lines = []
    by_folder: dict[str, list[pytest.TestReport]] = {}
    for report in reports:
        by_folder.setdefault(_golden_facts(report)["folder"], []).append(report)
    for folder, of_file in sorted(by_folder.items()):
        written = dict.fromkeys(name for r in of_file for name in _golden_facts(r)["written"])
        relative_path = os.path.relpath(folder, start)
        lines += [f"written: {relative_path}/{name}" for name in written]
        for path in _stale(Path(folder), of_file):
            if update:
                path.unlink(missing_ok=True)
            lines.append(
                f"{'removed' if update else 'used by no test'}: {relative_path}/{path.name}"
            )
        if update:
            with suppress(OSError):  # not empty, or never created
                Path(folder).rmdir()
    if lines:
        terminal.section("workbench golden files")
        for line in lines:
            terminal.write_line(line)
        if any(line.startswith("used by no test") for line in lines):
            terminal.write_line("pytest --workbench-update removes those that no test uses")


def _stale(folder: Path, reports: Iterable[pytest.TestReport]) -> list[Path]:
    """Return the golden files that no test uses; [] unless every test of the file has run.

    Those of a test that did not pass are kept: it may have ended before using them.
    """
    reports_by_test = {r.nodeid: (r.passed, _golden_facts(r)) for r in reports}
    total = {facts["tests"] for _, facts in reports_by_test.values()}
    if total != {len(reports_by_test)} or not folder.is_dir():
        return []
    used = {name for _, facts in reports_by_test.values() for name in facts["used"]}
    unsure = tuple(f"{facts['test']}." for passed, facts in reports_by_test.values() if not passed)
    return [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in (IR, TEXT)
        and path.name not in used
        and not (unsure and path.name.startswith(unsure))
    ]


def _golden_facts(report: pytest.TestReport) -> dict[str, Any]:
    return vars(report)["workbench_golden"]
