"""The pytest plugin: fixtures for authors of passes, targets and kernels.

``compiled`` compiles, ``run_pass`` runs one pass, ``golden_ir`` compares with a file beside the
test. ``--workbench-record`` writes a recording and a report for every failing test that compiled
something, with or without these fixtures. See ``docs/testing.md``.

pytest loads this module in every session if the workbench is installed: it imports nothing of the
compiler until a fixture or an option needs it, and changes nothing before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.testing.compiles import Compiles, RunPass
    from workbench.testing.golden import Golden

#: The default folder of ``--workbench-record``, relative to where pytest was started.
FOLDER = "workbench-recordings"
_RECORDINGS, _GOLDENS = "workbench-recordings", "workbench-goldens"
_PARTLY = pytest.StashKey[set["Path"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("workbench", "Compiler Workbench")
    group.addoption(
        "--workbench-record",
        nargs="?",
        const=FOLDER,
        default=None,
        metavar="DIR",
        help="leave a recording and a report in DIR of every failing test that compiled something "
        f"(default: {FOLDER})",
    )
    group.addoption(
        "--workbench-update",
        action="store_true",
        help="write the golden files of golden_ir anew, and remove those that no test uses",
    )
    group.addoption(
        "--workbench-check",
        action="store_true",
        help="check every rewrite of what the fixture compiled compiles with example inputs",
    )


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("workbench_record")
    if folder is not None:
        from workbench.testing.recordings import Recordings

        config.pluginmanager.register(Recordings.into(folder, config), _RECORDINGS)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Note the files that are run in part: their stale golden files cannot be determined."""
    for item in items:
        item.config.stash.setdefault(_PARTLY, set()).add(item.path)


def pytest_collection_finish(session: pytest.Session) -> None:
    using = {item.path for item in session.items if "golden_ir" in _fixtures(item)}
    if using:
        from workbench.testing.golden import Goldens

        partly = session.config.stash.get(_PARTLY, set())
        session.config.pluginmanager.register(Goldens.of(session, using, partly), _GOLDENS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # From the reports: with xdist the tests ran in other processes.
    reports = [
        r
        for held in terminalreporter.stats.values()
        for r in held
        if hasattr(r, "workbench_golden")
    ]
    if reports:
        from workbench.testing.golden import summarise

        summarise(terminalreporter, reports)


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def compiled(pytestconfig: pytest.Config) -> Compiles:
    """``compiled(model, inputs, ...)`` is ``core_compiler.compile``, for tests of any scope.

    With ``--workbench-check`` every rewrite is checked. With ``--workbench-record`` a failing test
    writes a recording of everything it compiled, with or without the fixture;
    ``compiled.keep(compilation)`` adds one that was made before the test began.
    """
    from workbench.testing.compiles import Compiles

    recordings = pytestconfig.pluginmanager.get_plugin(_RECORDINGS)
    check = bool(pytestconfig.getoption("workbench_check"))
    return Compiles(check) if recordings is None else Compiles(check, recordings.keep)


@pytest.fixture(scope="session")
def run_pass() -> RunPass:
    """``run_pass(pass_, module)`` runs one pass on a module or MLIR text and verifies it.

    It returns the stage after the pass. With ``inputs`` every rewrite is checked on them.
    """
    from workbench.testing.compiles import RunPass

    return RunPass()


@pytest.fixture
def golden_ir(request: pytest.FixtureRequest) -> Golden:
    """``golden_ir(what, name="")`` compares a stage, a module or a text with a golden file.

    The file is in the folder ``golden`` beside the test; ``--workbench-update`` writes it.
    """
    from workbench.testing.golden import Golden

    return Golden.of(request)
