"""Fixtures of the page's tests: a recording, servers of their own, one Chromium."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.late_browser import without_ready
from tests.workbench import two_targets as two_targets_network
from tests.workbench.two_targets import TwoTargets
from workbench.queries.run import Run

T = TypeVar("T")
#: How long anything on the page may take on a loaded machine (milliseconds).
PATIENCE = 60_000

_SERVE = """
import sys
from pathlib import Path
from workbench.app import serve
serve(sys.argv[1] or None, int(sys.argv[2]), open_browser=False, root=Path(sys.argv[3]))
"""


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional model: compiled with checks, executed, everything recorded."""
    pytest.importorskip("torch", reason="the sample models need torch")
    from core_compiler.driver.compilation import Options
    from workbench.model import jobs, models
    from workbench.model.spec import read_spec

    path = tmp_path_factory.mktemp("recordings") / "digits-cnn.run"
    model = models.load(read_spec("digits-cnn", None, width=0.25))
    jobs.compile(model, "cpu", Options(check=True), path=path, execute=True)
    return path


def of_the_tour(path: Path) -> None:
    """Let a recording of the library be one as the tour makes it: of its model at full width."""
    from workbench.app import tour

    facts = {"model": tour.MODEL, "frontend": "torch", "sizes": {}}
    with sqlite3.connect(path) as database:
        for key, value in facts.items():
            database.execute("UPDATE meta SET value = ? WHERE key = ?", (json.dumps(value), key))
    database.close()


@pytest.fixture(scope="session")
def two_targets(tmp_path_factory: pytest.TempPathFactory) -> TwoTargets:
    """A small network without products: executed on this processor, compiled for a GPU."""
    pytest.importorskip("torch", reason="the network is written in torch")
    pytest.importorskip("numba_cuda", reason="CUDA kernels are compiled by numba-cuda")
    return two_targets_network.record(tmp_path_factory.mktemp("two_targets"))


#: A training run with receipts, as the command line has it.
WORDS = ["train", "digits-mlp", "--width", "0.1", "--depth", "1", "--iterations", "6",
         "--batch", "8", "--every", "2", "--receipts", "gradients"]  # fmt: skip


@dataclass(frozen=True)
class TrainingRuns:
    """Recordings of two training runs, which differ by one rounding of ``op`` in iteration ``at``;
    their folders lie beside them."""

    a: Path
    b: Path
    op: str
    at: int


@pytest.fixture(scope="module")
def both(two_targets: TwoTargets) -> Iterator[tuple[Run, Run]]:
    """The same network for the processor and for a GPU."""
    runs = Run(two_targets.cpu), Run(two_targets.cuda)
    yield runs
    for run in runs:
        run.close()


@pytest.fixture(scope="session")
def training_runs(tmp_path_factory: pytest.TempPathFactory) -> TrainingRuns:
    pytest.importorskip("torch", reason="the sample models need torch")
    from workbench.commands.cli import main

    folder, op, at = tmp_path_factory.mktemp("training"), "", 3
    for name in ("a", "b"):
        out = ["--folder", str(folder / name), "-o", str(folder / f"{name}.run")]
        assert main([*WORDS, *out, *(["--inject", f"{op}:{at}"] if op else [])]) == 0
        first, *_ = (folder / name / "receipts.jsonl").read_text().splitlines()
        names = [op for _, op, *_ in json.loads(first)["names"]]
        op = [op for op in names if op.startswith("core.sub#")][-1]  # it updates a parameter
    return TrainingRuns(folder / "a.run", folder / "b.run", op, at)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A training step that computes some of its forward pass again, and its recording."""
    torch = pytest.importorskip("torch", reason="models come from torch")
    import numpy as np

    import core_compiler as cc
    from core_compiler.training.config import Training

    torch.manual_seed(0)
    layers = [m for _ in range(4) for m in (torch.nn.Linear(16, 16), torch.nn.GELU())]
    x = np.zeros((32, 16), np.float32)
    step = cc.compile(
        torch.nn.Sequential(*layers), (x, x), training=Training(loss="mse", recompute=0.6)
    )
    return step, step.compilation.finish().record(tmp_path_factory.mktemp("trained") / "step.run")


def _need_panel() -> None:
    """Skip where panel is missing; the servers import it, this process has no need to."""
    if importlib.util.find_spec("panel") is None:
        pytest.skip("the page needs panel")


@dataclass
class Server:
    """A server in a process of its own; ``before``: Python that it runs first."""

    root: Path
    opened: str = ""
    before: str = ""
    port: int = 0
    url: str = ""
    process: Any = field(default=None, repr=False)

    def start(self) -> Server:
        code = self.before + _SERVE
        command = [sys.executable, "-c", code, self.opened, str(self.port), str(self.root)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        first = self.process.stdout.readline().strip()
        assert first.startswith("http://127.0.0.1:"), first
        self.url = first.partition("?")[0]
        self.port = int(self.url.rstrip("/").rpartition(":")[2])
        return self

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def get(self, path: str, **headers: str) -> Any:
        return urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with an empty library."""
    _need_panel()
    made = Server(tmp_path_factory.mktemp("cache")).start()
    yield made
    made.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """``own_server(opened, before)``: a server that the test may do anything to."""
    _need_panel()
    made: list[Server] = []

    def start(opened: str = "", before: str = "") -> Server:
        made.append(Server(tmp_path / f"cache{len(made)}", opened, before).start())
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.stop()


@pytest.fixture
def library(own_server: Callable[..., Server], two_targets: TwoTargets) -> Server:
    """A server whose library holds both recordings."""
    made = own_server()
    folder = made.root / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    for path in (two_targets.cpu, two_targets.cuda):
        shutil.copy(path, folder / path.name)
    return made


def until(true: Callable[[], bool]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``stands_in(script)``: what the shell does in place of a worker."""

    def does(script: str) -> None:
        (tmp_path / "worker").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "worker").chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "worker"))

    return does


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop of its own: the browser's is in this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


class Tab:
    """The page in a browser tab, with what it asked of the network and its errors."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("websocket", lambda socket: self.requests.append(socket.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)

    def open(self, url: str) -> Tab:
        self.page.goto(url)
        self.page.wait_for_selector("#cw-loading", state="detached")
        return self

    def locate(self, selector: str, **more: Any) -> Any:
        return self.page.locator(selector, **more)

    def wait(self, selector: str, **more: Any) -> None:
        """Wait for an element; where it does not come, say what the page shows instead."""
        from playwright.sync_api import TimeoutError as Late

        try:
            self.page.wait_for_selector(selector, **more)
        except Late as late:
            seen = self.page.evaluate(
                "() => [location.search, document.getElementById('cw-busy')?.className,"
                " document.getElementById('cw')?.innerText.slice(0, 1500)]"
            )
            raise AssertionError(f"{late.message}; the page: {seen}; {self.errors[-3:]}") from late

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def quickly(self, at: Any, *keys: str) -> None:
        """Press keys in a list one after the other, before anybody can answer."""
        at.evaluate(
            """(list, keys) => {
                for (const key of keys) {
                    list.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
                }
                const frame = (then) => requestAnimationFrame(then);
                return new Promise((done) => frame(() => frame(done)));
            }""",
            keys,
        )

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def show(self, view: str) -> None:
        """Choose a view in the tabs of the left pane."""
        tab = self.page.locator(f'.cw-tabs [data-view="{view}"]').first
        if tab.is_visible():
            tab.click()
        else:  # it has no place: it is in the list behind the tabs
            self.page.locator(".cw-tabs select:visible").first.select_option(view)

    def saved(self, within: str, item: str) -> Path:
        """What an item of the download menu of a part of the page saves."""
        self.locate(f"{within} button.save").first.click()
        with self.page.expect_download() as got:
            self.locate(f'[role=menuitem]:text-is("{item}"):visible').click()
        return Path(got.value.path())

    def drawn(self, view: str) -> None:
        """Wait until a view of `widgets` has drawn its data."""
        self.wait(f"#cw-view-{view} .cw[data-ready]", state="visible")

    def stage(self, number: int) -> None:
        """Wait until a stage is shown: the rail marks it at once, the page works on until it is."""
        self.wait(f'#cw-rail .pass.on[data-stage="{number}"]')
        self.rest()

    def rest(self) -> None:
        """Wait until the page shows all of what was asked for, its address included."""
        self.wait("#cw-busy:not(.on)", state="attached")

    def query(self, name: str) -> str | None:
        """A field of the address, of what is shown in the end."""
        self.rest()
        return self.page.evaluate("(n) => new URLSearchParams(location.search).get(n)", name)

    def wait_query(self, name: str, value: str | None, partly: bool = False) -> None:
        """Wait until a field of the address is ``value``, or (``partly``) contains it."""
        self.page.wait_for_function(
            """([name, value, partly]) => {
                const now = new URLSearchParams(location.search).get(name);
                return partly ? now?.includes(value) : now === value;
            }""",
            arg=[name, value, partly],
        )

    def view(self, name: str, function: str, *arguments: Any) -> Any:
        """One of the functions which a view of `widgets` exposes to tests."""
        script = "(root, [name, args]) => root.workbench[name](...args)"
        return self.page.locator(f"#cw-view-{name} .cw").first.evaluate(
            script, [function, list(arguments)]
        )


@pytest.fixture(scope="session")
def profile(browser: Any) -> Iterator[Any]:
    """The browser's memory, one for all tests: scripts that one page has fetched are there for the
    next (some 7% of the processor time of these tests)."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    yield context
    context.close()


@pytest.fixture
def tab(profile: Any) -> Iterator[Callable[..., Tab]]:
    """``tab(url)``: the page, ready, 1440 by 900; nothing of earlier tests is kept in it.  With
    ``slow_to_say_so`` the server never hears that all of the page is drawn."""
    opened: list[Tab] = []

    def open_(url: str, slow_to_say_so: bool = False) -> Tab:
        made = Tab(profile)
        opened.append(made)
        if slow_to_say_so:
            made.page.route_web_socket(lambda _: True, without_ready)
        return made.open(url)

    yield open_
    for one in opened:
        if not one.page.is_closed():
            one.page.evaluate("() => localStorage.clear()")
            one.page.close()
