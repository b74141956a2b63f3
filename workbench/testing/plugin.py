"""The pytest plugin: fixtures for those who write passes, targets and kernels.

``compiled`` compiles, ``run_pass`` runs one pass, ``golden_ir`` compares with a file beside the
test.  ``--workbench-record`` leaves a recording and a report for every failing test that compiled
something, by these or otherwise.  ``docs/testing.md`` shows them.

pytest loads this module in every session where the workbench is installed: it imports nothing of
the compiler until a fixture or an option asks for it, and changes nothing unless one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.testing.compiles import Compiles, RunPass
    from workbench.testing.golden import Golden

#: Where ``--workbench-record`` writes when it names no folder, from where pytest was started.
FOLDER = "workbench-recordings"
_RECORDINGS, _GOLDENS = "workbench-recordings", "workbench-goldens"
_PARTLY = pytest.StashKey[set["Path"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("workbench", "Compiler Workbench")
    group.addoption(
        "--workbench-record", nargs="?", const=FOLDER, default=None, metavar="DIR",
        help="leave a recording and a report in DIR of every failing test that compiled something "
        f"(default: {FOLDER})",
    )  # fmt: skip
    group.addoption(
        "--workbench-update", action="store_true",
        help="write the golden files of golden_ir anew, and remove those that no test uses",
    )  # fmt: skip
    group.addoption(
        "--workbench-check", action="store_true",
        help="check every rewrite of what the fixture compiled compiles with example inputs",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("workbench_record")
    if folder is not None:
        from workbench.testing.recordings import Recordings

        config.pluginmanager.register(Recordings.into(folder, config), _RECORDINGS)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Of a file that is run in part nobody can say which golden files are stale."""
    for item in items:
        item.config.stash.setdefault(_PARTLY, set()).add(item.path)


def pytest_collection_finish(session: pytest.Session) -> None:
    using = {item.path for item in session.items if "golden_ir" in _fixtures(item)}
    if using:
        from workbench.testing.golden import Goldens

        partly = session.config.stash.get(_PARTLY, set())
        session.config.pluginmanager.register(Goldens.of(session, using, partly), _GOLDENS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # By what the reports say: with xdist the tests ran in other processes.
    reports = [r for held in terminalreporter.stats.values() for r in held
               if hasattr(r, "workbench_golden")]  # fmt: skip
    if reports:
        from workbench.testing.golden import summarise

        summarise(terminalreporter, reports)


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def compiled(pytestconfig: pytest.Config) -> Compiles:
    """``compiled(model, inputs, ...)`` is ``core_compiler.compile``, for tests of any scope: with
    ``--workbench-check`` every rewrite is checked.  With ``--workbench-record`` a failing test
    leaves a recording of what it compiled, however it did; ``compiled.keep(compilation)`` takes one
    that was made before it began."""
    from workbench.testing.compiles import Compiles

    recordings = pytestconfig.pluginmanager.get_plugin(_RECORDINGS)
    check = bool(pytestconfig.getoption("workbench_check"))
    return Compiles(check) if recordings is None else Compiles(check, recordings.keep)


@pytest.fixture(scope="session")
def run_pass() -> RunPass:
    """``run_pass(pass_, module)`` runs one pass alone, on a module or on MLIR text: the stage after
    it, verified.  With ``inputs`` every rewrite is checked on them."""
    from workbench.testing.compiles import RunPass

    return RunPass()


@pytest.fixture
def golden_ir(request: pytest.FixtureRequest) -> Golden:
    """``golden_ir(what, name="")`` compares a stage, a module or a text with a file in the folder
    ``golden`` beside the test; ``--workbench-update`` writes it."""
    from workbench.testing.golden import Golden

    return Golden.of(request)
