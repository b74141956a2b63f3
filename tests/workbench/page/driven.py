"""A page without a browser: it is told what a browser would tell it, and seen as one is sent it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from workbench.app.page import Page
from workbench.app.workspace import Workspace


class _Document:
    """As much of Bokeh's document as a page uses."""

    def __init__(self) -> None:
        self.periodic: list[Callable[[], None]] = []
        self.ends: list[Callable[[Any], None]] = []

    def add_periodic_callback(self, callback: Callable[[], None], _milliseconds: int) -> None:
        self.periodic.append(callback)

    def add_next_tick_callback(self, callback: Callable[[], None]) -> None:
        callback()

    def add_timeout_callback(self, callback: Callable[[], None], _milliseconds: int) -> None:
        callback()

    def on_session_destroyed(self, callback: Callable[[Any], None]) -> None:
        self.ends.append(callback)


class Driven:
    """A page in the running loop.  ``told[name]``: each ``detail`` that a component was sent."""

    def __init__(self, workspace: Workspace, query: str = "") -> None:
        self._document, self._number = _Document(), 0
        self.page = Page(workspace, self._document, query)
        self.told: dict[str, list[str]] = {name: [] for name in self.page.roots}
        for name, root in self.page.roots.items():
            root.param.watch(lambda event, to=self.told[name]: to.append(event.new), "detail")
        self.page.browser.mark_ready()

    def send(self, name: str, **more: Any) -> None:
        self._number += 1
        command = {"name": name, "n": self._number, **more}
        self.page.roots["bar"].command = json.dumps(command)

    def detail(self, name: str) -> dict[str, Any]:
        return json.loads(self.page.roots[name].detail or "{}")

    @property
    def bar(self) -> dict[str, Any]:
        return json.loads(self.page.roots["bar"].data)

    @property
    def search(self) -> dict[str, Any]:
        """What First bad pass says of its search."""
        return self.detail("bisect").get("search", {})

    async def until(self, true: Callable[[], Any]) -> None:
        """Let the page go on, its clock too, until it is so."""
        deadline = time.monotonic() + 120
        while not true():
            assert time.monotonic() < deadline, [self.bar[k] for k in ("notice", "job", "query")]
            for callback in self._document.periodic:
                callback()
            await asyncio.sleep(0.01)

    def close(self) -> None:
        for callback in self._document.ends:
            callback(None)
