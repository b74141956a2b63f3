"""Settings of the whole test run."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests import examples

# Two pytest workers share two cores: a library that takes every core for itself starves the other.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# Examples are derived from the test's name, so that a run can be repeated; a machine under load
# is slow, not wrong, so there is no deadline.
settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("quick", settings.get_profile("default"), max_examples=25)
settings.load_profile("default")


def pytest_configure(config: pytest.Config) -> None:
    """Tests start from an empty cache and leave the user's alone.

    One folder for all workers of a run, so that they share what one of them has compiled.
    `COMPILER_WORKBENCH_TEST_CACHE` names a folder to keep between runs while developing.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts what runs in the background, and programs that tests start inherit it:
        # those that are to be stopped by Ctrl-C would never hear it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("markexpr") == "not slow":
        examples.share = 4
        settings.load_profile("quick")
    if hasattr(config, "workerinput"):  # a worker has the environment of the run's first process
        return
    kept = os.environ.get("COMPILER_WORKBENCH_TEST_CACHE")
    folder = kept or tempfile.mkdtemp(prefix="compiler-workbench-tests-")
    os.environ["COMPILER_WORKBENCH_CACHE"] = folder
    if kept is None:
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What `sampled` says; before pytest looks at the marks that were asked for."""
    counted: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None:
            function = item.nodeid.partition("[")[0]
            if counted[function] % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            counted[function] += 1


def pytest_collection_finish() -> None:
    """What was imported and collected lives on: the collector need not look at it again and again,
    nor more often than where `workbench` runs."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


#: What a process of the run may hold before the collector is called (bytes): it counts objects, and
#: a few of them can hold the weights of a model.  What it frees is given back: what glibc keeps of
#: large models counts too, and another thread's allocations have no use for it.
MOST = 2 << 30
_allowed = MOST


def pytest_runtest_teardown() -> None:
    global _allowed
    here = psutil.Process().memory_info
    if here().rss > _allowed:
        from core_compiler.runtime import heap  # (not before the variables above are set)

        gc.collect()
        heap.trim()
        _allowed = here().rss + MOST


@pytest.fixture(scope="session", autouse=True)
def _all_threads() -> None:
    """Small programs use as many threads as a test says: their bits shall not depend on it."""
    from core_compiler.runtime.cpu import CpuDevice

    CpuDevice.spreads = True


@pytest.fixture(scope="session")
def repository() -> Path:
    """The folder of the checkout."""
    return Path(__file__).resolve().parent.parent


CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
#: Chromium draws its address bar as a second page beside each page, which costs as much as ours.
#: (The last such list counts: the others are some of those that Playwright switches off.)
WITHOUT = (
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "PaintHolding",
    "HttpsUpgrades",
    "MediaRouter",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "PreconnectToSearch",
)
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    f"--disable-features={','.join(WITHOUT)}",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium of this machine (Playwright's own download is never used).

    One for all tests of a process: Playwright's synchronous interface starts only once.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium in PATH; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()
