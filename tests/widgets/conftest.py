"""Fixtures of the widget tests: built bundles, the layout code in node, and one Chromium."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from widgets import build, pack

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def bundles() -> list[Path]:
    """The bundles of this checkout, built when they are older than their sources."""
    return build.build()


@pytest.fixture(scope="session")
def run_layout(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[dict[str, Any]]]:
    """`run_layout(stage data, ..., open=..., query=...)`: one report of the layout for each."""
    folder = tmp_path_factory.mktemp("layout")
    build.bundle([f"layout={build.ROOT / 'src' / 'graph' / 'headless.ts'}"], folder)
    (folder / "package.json").write_text('{"type": "module"}')

    def run(*stages: Mapping[str, Any], **options: Any) -> list[dict[str, Any]]:
        packed = [pack(stage) for stage in stages]
        request = {
            "stages": [
                {"text": text, "blob": base64.b64encode(blob).decode()} for text, blob in packed
            ],
            **options,
        }
        command = [build._node(), str(HERE / "layout_runner.mjs"), str(folder / "layout.js")]
        done = subprocess.run(
            command, input=json.dumps(request), capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


class OpenPage:
    """A page of views in the browser, with what it asked of the network and its errors."""

    def __init__(self, tab: Any) -> None:
        self.tab = tab
        self.requests: list[str] = []
        self.errors: list[str] = []
        tab.on("request", lambda request: self.requests.append(request.url))
        tab.on("pageerror", lambda error: self.errors.append(str(error)))
        tab.on(
            "console",
            lambda message: self.errors.append(message.text) if message.type == "error" else None,
        )

    def view(self, i: int = 0) -> Any:
        return self.tab.locator(".cw").nth(i)

    def trait(self, name: str, i: int = 0) -> Any:
        return self.tab.evaluate("([i, name]) => workbench.models[i].get(name)", [i, name])

    def receive(self, data: Mapping[str, Any], i: int = 0) -> None:
        """New data from the host, as a Python host would send it."""
        text, blob = pack(data)
        self.tab.evaluate(
            """([i, text, blob]) => {
              const bytes = Uint8Array.from(atob(blob), (c) => c.charCodeAt(0));
              workbench.models[i].receive('blob', new DataView(bytes.buffer));
              workbench.models[i].receive('data', text);
            }""",
            [i, text, base64.b64encode(blob).decode()],
        )

    def call(self, name: str, *arguments: Any, i: int = 0) -> Any:
        """One of the functions which a view exposes to tests."""
        script = "(root, [name, args]) => root.workbench[name](...args)"
        return self.view(i).evaluate(script, [name, list(arguments)])

    def focus(self, selector: str = ".stage", i: int = 0) -> None:
        self.view(i).locator(selector).first.focus()

    def settle(self) -> None:
        """Waits until two frames were drawn and no animation can be running."""
        self.tab.wait_for_timeout(320)


@pytest.fixture
def open_page(
    browser: Any, bundles: list[Path], tmp_path: Path
) -> Iterator[Callable[..., OpenPage]]:
    """`open_page(html)`: the page, loaded from a file and ready, 1440 by 900."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})

    def load(html: str) -> OpenPage:
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        page = OpenPage(context.new_page())
        page.tab.goto(path.as_uri())
        page.tab.wait_for_selector("body[data-ready]")
        return page

    yield load
    context.close()
