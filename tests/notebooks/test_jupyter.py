"""The widgets in JupyterLab and in Notebook 7, in a browser that reaches nothing but the server."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import accessibility
from workbench.state.view_state import VIEWS

ROOT = Path(__file__).resolve().parent.parent.parent
#: How long anything may take on a loaded machine (milliseconds).
PATIENCE = 120_000
_QUIET = {"fetchNews": "false", "checkForUpdates": False}

CELLS = {
    "compile": """
import numpy as np
import core_compiler as cc
from tests.passes.programs import program

module = program(lambda b, x: b.exp(b.neg(b.matmul(x, x))), "32x32xf32")
c = cc.compile(module, (np.ones((32, 32), np.float32),), check=True)
w = c.show()
w
""",
    "select": "w.select(op=c.stages[0].module.main.body.ops[1], stage=0)",
    "selected": "print('SELECTED', w.op.kind, w.selection['stage'])",
    "two": """
unfused = cc.compile(module, c.inputs, check=True, edit=cc.PipelineEdit(skip=("fuse_elementwise",)))
c.show("numerics", other=unfused)
""",
    "every": """
from workbench.state.view_state import VIEWS

c.profile(repeats=2)
for name in VIEWS:
    display(c.show(name))
""",
}


#: What stands in the outputs of cells.
OURS = ".jp-OutputArea-output .jupyter-widgets"
#: The two applications, each with a notebook of its own: what one saves is no news to the other.
PAGES = {"lab/tree": "in_lab.ipynb", "notebooks": "in_notebook.ipynb"}


class Jupyter:
    """A Jupyter server with a notebook for each page, and the tab that is on one of them."""

    tab: Any

    def __init__(self, folder: Path, browser: Any):
        import nbformat  # takes seconds: only in the process that runs these tests

        self.folder, self.outside = folder, []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text(json.dumps(_QUIET))
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_RUNTIME_DIR": str(folder / "run"),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        }
        files = folder / "files"
        files.mkdir()
        cells = [nbformat.v4.new_code_cell(source.strip()) for source in CELLS.values()]
        notebook = nbformat.v4.new_notebook(cells=cells)
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        for name in PAGES.values():
            nbformat.write(notebook, files / name)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "notebook",
                "--no-browser",
                "--allow-root",
                f"--port={self.port}",
                "--ServerApp.ip=127.0.0.1",
                "--IdentityProvider.token=",
                "--ServerApp.password=",
                f"--ServerApp.root_dir={files}",
            ],
            env=environment,
            cwd=files,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.url = f"http://127.0.0.1:{self.port}"
        self._wait_for_server()
        self.context = browser.new_context(viewport={"width": 1440, "height": 900})
        self.context.set_default_timeout(PATIENCE)
        self.context.route("**/*", self._only_inside)

    def open(self, page: str) -> None:
        self.tab = self.context.new_page()
        self.tab.goto(f"{self.url}/{page}/{PAGES[page]}")
        # A cell that is run before the kernel is there makes Jupyter ask which one to take.
        self.tab.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for()

    def _wait_for_server(self) -> None:
        deadline = time.monotonic() + PATIENCE / 1e3
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/api", timeout=5).close()
                return
            except OSError:
                assert time.monotonic() < deadline and self.process.poll() is None
                time.sleep(0.2)

    def _only_inside(self, route: Any) -> None:
        if route.request.url.startswith((self.url, "data:", "blob:")):
            route.continue_()
        else:
            self.outside.append(route.request.url)
            route.abort()

    def close(self) -> None:
        self.context.close()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def cell(self, name: str) -> Any:
        return self.tab.locator(".jp-CodeCell").nth(list(CELLS).index(name))

    def run(self, name: str) -> Any:
        """Run a cell; its output, once the kernel has answered."""
        cell = self.cell(name)
        prompt = cell.locator(".jp-InputPrompt")
        deadline = time.monotonic() + PATIENCE / 1e3
        while not re.search(r"\d", prompt.inner_text()):
            assert time.monotonic() < deadline, f"the kernel does not answer: {prompt.inner_text()}"
            asked = self.tab.locator(".jp-Dialog")
            assert not asked.count(), asked.first.inner_text()
            if prompt.inner_text() == "[ ]:":  # a kernel that is starting forgets what it was told
                cell.locator(".cm-content").click()
                self.tab.keyboard.press("Control+Enter")
            self.tab.wait_for_timeout(500)
        return cell.locator(".jp-OutputArea")


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Jupyter]:
    pytest.importorskip("notebook", reason="Notebook 7 is not installed")
    pytest.importorskip("nbformat", reason="notebooks need jupyterlab")
    made = Jupyter(tmp_path_factory.mktemp("jupyter"), browser)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("page", ["lab/tree", pytest.param("notebooks", marks=pytest.mark.slow)])
def test_every_view_draws_and_the_selection_goes_both_ways(jupyter: Jupyter, page: str) -> None:
    jupyter.open(page)
    shown = jupyter.run("compile")
    for view in ("graph", "diff"):
        shown.locator(f".cw-{view}[data-ready]").wait_for()
    shown.locator(".cw-hosted[data-ready]").wait_for()  # the inspector
    jupyter.run("select")  # Python selects, the browser shows it
    shown.locator(".cw-hosted .head b").filter(has_text="core.neg").wait_for()
    selected = shown.locator(".cw-hosted .head b")
    shown.locator(".cw-graph .stage").focus()  # the browser selects, Python has it
    jupyter.tab.keyboard.press("ArrowDown")  # in a view its key, not Jupyter's
    selected.filter(has_text="core.exp").wait_for()
    assert "SELECTED core.exp 0" in jupyter.run("selected").inner_text()
    jupyter.run("two").locator(".two tbody").first.wait_for()  # another compile beside this one
    every = jupyter.run("every")
    for number, (name, view) in enumerate(VIEWS.items()):
        output = every.locator(".jp-OutputArea-child").nth(number)
        drawn = f".cw-{view.bundle}[data-ready]" if view.bundle else ".cw-hosted[data-ready] .root"
        output.locator(drawn).first.wait_for(state="attached")
        assert output.locator(".broken:visible, [role=alert]:visible").count() == 0, name
    # Only what we draw: Jupyter's own page is not ours to mend.
    jupyter.tab.wait_for_timeout(700)  # what fades in has its colours then
    assert accessibility.findings(jupyter.tab, accessibility.axe(), OURS) == []
    assert jupyter.outside == []
