"""``--workbench-record``: a recording and a report of every failing test that compiled something.

A compile is attributed to the test or the fixture, of any scope, that was running when it began.
Nothing is written before a test fails.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from workbench.testing.names import file_name

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Compilation

#: The last compiles of a test or fixture that are kept: a property test makes hundreds, and the
#: failing example comes last.
KEPT = 8
#: The ``user_properties`` of a test's report, which junitxml writes and xdist forwards.
RECORDING, REPORT, WARNING = "workbench_recording", "workbench_report", "workbench_warning"

#: A test, or a fixture: the node of its scope, and its name ("" for the test itself).
Owner = tuple[pytest.Item | pytest.Collector, str]


class Recordings:
    """A plugin for a session with ``--workbench-record``; writes to ``folder``."""

    def __init__(self, folder: Path, start: Path):
        #: ``start``: the folder in which pytest was started; paths are printed relative to it.
        self.folder, self.start = folder, start
        self._made: dict[Owner, deque[Compilation]] = {}
        self._now: list[Owner] = []

    @classmethod
    def into(cls, folder: str, config: pytest.Config) -> Recordings:
        """Return the plugin for the folder of the option, relative to where pytest was started.

        UsageError if the option was parsed with the tests as its folder.
        """
        start = config.invocation_params.dir
        path = start / folder
        if "::" in folder or path.is_file() or next(path.rglob("*.py"), None) is not None:
            raise pytest.UsageError(
                f"--workbench-record takes the folder to write to: {folder} holds tests; write "
                "--workbench-record=DIR, or put the option after the tests"
            )
        return cls(path, start)

    def keep(self, compilation: Compilation) -> None:
        """Keep a compilation for the running test or fixture.

        The compiler calls this for compilations that begin there.
        """
        if self._now:
            self._made.setdefault(self._now[-1], deque(maxlen=KEPT)).append(compilation)

    # -- attribution of compiles -------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        from core_compiler.driver.compilation import watched

        self._now = [(item, "")]
        try:
            with watched(self.keep):
                return (yield)
        finally:
            self._now = []
            lasting = set(nextitem.listchain() if nextitem else ())
            self._made = {o: made for o, made in self._made.items() if o[0] in lasting}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        owner = request.node, fixturedef.argname
        self._made.pop(owner, None)  # it is set up again, with another parameter
        self._now.append(owner)
        try:
            return (yield)
        finally:
            self._now.pop()

    def _made_for(self, item: pytest.Item) -> list[Compilation]:
        """Return the compilations of the test and its fixtures, fixtures first, each once."""
        chain, names = item.listchain(), getattr(item, "fixturenames", ())
        owners = [(item, ""), *((node, name) for name in names for node in chain)]
        compilations = [m for owner, made in self._made.items() if owner in owners for m in made]
        return list(dict.fromkeys(compilations))

    # -- failed tests ------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        made = self._made_for(item) if report.failed else []
        if made:
            rows = self._write_files(item.nodeid, made, _failure(report, call))
            new = [row for row in rows if row not in item.user_properties]
            item.user_properties += new
            report.user_properties += [row for row in new if row not in report.user_properties]
            report.sections.append(("workbench", "\n".join(self._shown(*row) for row in rows)))
        return report

    def _write_files(
        self, test: str, made: list[Compilation], failure: str
    ) -> list[tuple[str, object]]:
        """Write a recording and a report of each compile; return rows that describe them.

        Errors are reported and do not fail the test, which has already failed.
        """
        name, rows = file_name(test), list[tuple[str, object]]()
        for number, compilation in enumerate(made, 1):
            path = self.folder / f"{name}{f'.{number}' if len(made) > 1 else ''}.run"
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                _record(compilation, path, test, failure)
                rows.append((RECORDING, str(path)))
                _report(path)
                rows.append((REPORT, str(path.with_suffix(".html"))))
            except Exception as problem:
                what = "report" if (RECORDING, str(path)) in rows else "recording"
                reason = str(problem).strip().splitlines() or [type(problem).__name__]
                rows.append((WARNING, f"no {what} of compile {number} of {test}: {reason[0]}"))
        return rows

    # -- summary -----------------------------------------------------------------------------------

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        found: dict[str, dict[tuple[str, object], None]] = {}
        for reports in terminalreporter.stats.values():
            for report in reports:
                rows = [
                    row
                    for row in map(tuple, getattr(report, "user_properties", ()))
                    if row[0] in (RECORDING, REPORT, WARNING)
                ]
                if rows and report.failed:
                    found.setdefault(report.nodeid, {}).update(dict.fromkeys(rows))
        if not found:
            return
        terminalreporter.section("workbench recordings")
        for test, lines in found.items():
            terminalreporter.write_line(test)
            for name, value in lines:
                color = {"yellow": True} if name == WARNING else {}
                terminalreporter.write_line(f"  {self._shown(name, value)}", **color)

    def _shown(self, name: str, value: object) -> str:
        text = str(value)
        return f"warning: {text}" if name == WARNING else os.path.relpath(text, self.start)


def _failure(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str:
    """Return the first line of the test's failure."""
    if call.excinfo is None:
        return f"failed in {report.when}"
    return call.excinfo.exconly().splitlines()[0]


def _record(compilation: Compilation, path: Path, test: str, failure: str) -> None:
    from core_compiler.record.recorder import Recorder

    named = {} if "model" in compilation.about else {"model": test.rpartition("::")[2]}
    with Recorder(path) as recorder:
        compilation.report(recorder, test=test, **named)
        status = "finished" if compilation.next is None else "failed"
        recorder.end(status, f"{test}: {failure}")


def _report(path: Path) -> None:
    from workbench.export import report

    report.write(path, path.with_suffix(".html"))
