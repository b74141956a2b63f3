"""Messages to a page's browser, sent from the server's loop once the browser is connected."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from tornado.ioloop import IOLoop


class Browser:
    """The browser of a page: ``document`` is its Bokeh document, ``roots`` its components by name.

    Values set while the document is created are part of it: the browser has them at once. Values
    set while the browser fetches the document can be in neither the document nor a message, so
    they wait until the browser reports that it is connected.
    """

    def __init__(self, document: Any, roots: Mapping[str, Any]):
        self._document, self._roots = document, roots
        self._loop = IOLoop.current()
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        self._maker: threading.Thread | None = None
        self._sent = False
        self.is_ready = False

    @contextmanager
    def making(self) -> Iterator[None]:
        """Mark the code inside as creating the document, in this thread."""
        self._maker = threading.current_thread()
        try:
            yield
        finally:
            self._maker = None

    @property
    def is_making(self) -> bool:
        return self._maker is not None

    def mark_ready(self) -> None:
        """Run the callbacks that waited for the browser to connect.

        The bar reports the connection when it is drawn; Bokeh's own event waits for all
        components, and does not always arrive.
        """
        with self._lock:
            self.is_ready, waiting = True, self._waiting
            self._waiting = []
        for callback in waiting:
            callback()

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` when the browser connects; call this only before it has."""
        self._waiting.append(callback)

    def run_on_loop(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the loop, as soon as the browser is connected."""
        if self._maker is threading.current_thread():
            callback()
            return
        with self._lock:
            if not self.is_ready:
                self._waiting.append(callback)
                return
        with suppress(RuntimeError):  # the server has stopped
            self._loop.add_callback(self._next_tick, callback)

    def _next_tick(self, callback: Callable[[], None]) -> None:
        """Schedule ``callback`` from the loop.

        Panel collects a document's events while it writes; an event that another thread adds at
        that moment can be lost.
        """
        with suppress(RuntimeError, ValueError):  # the session is gone
            self._document.add_next_tick_callback(callback)

    def set(self, name: str, **values: Any) -> None:
        """Set parameters of a component, from the loop."""
        with self._lock:
            if not self.is_ready and not self.is_making:
                self._waiting.append(partial(self.set, name, **values))
                return
        self.mark_sent()
        self._roots[name].param.update(**values)

    def mark_sent(self) -> None:
        """Note that a message was sent."""
        self._sent = True

    def beat(self) -> None:
        """Send an empty message after messages with content.

        Panel (1.9.4) holds back a message that it receives at the very moment when the previous
        one has been written, until it receives another.
        """
        if self._sent and self.is_ready:
            self._sent = False
            self._roots["bar"].beat += 1
