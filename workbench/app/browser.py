"""What is sent to a page's browser, and when: from the server's loop, once the browser is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from tornado.ioloop import IOLoop


class Browser:
    """The other side of a page: ``document`` is its Bokeh document, ``roots`` its components by
    name.

    While the document is made, what is set is part of it: the browser has it at once.  What is set
    while the browser fetches the document can be in neither the document nor a message, so it waits
    until the browser says that it is connected.
    """

    def __init__(self, document: Any, roots: Mapping[str, Any]):
        self._document, self._roots = document, roots
        self._loop = IOLoop.current()
        self._gate = threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        self._maker: threading.Thread | None = None
        self._sent = False
        self.is_ready = False

    @contextmanager
    def making(self) -> Iterator[None]:
        """The document is made inside, by this thread."""
        self._maker = threading.current_thread()
        try:
            yield
        finally:
            self._maker = None

    @property
    def is_making(self) -> bool:
        return self._maker is not None

    def ready(self) -> None:
        """The browser is connected: do what has waited for it.  The bar says so when it is drawn;
        Bokeh's own event waits for all components, and does not always come."""
        with self._gate:
            self.is_ready, waiting = True, self._waiting
            self._waiting = []
        for callback in waiting:
            callback()

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` when the browser is connected; only before it is."""
        self._waiting.append(callback)

    def later(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the loop, as soon as the browser is connected."""
        if self._maker is threading.current_thread():
            callback()
            return
        with self._gate:
            if not self.is_ready:
                self._waiting.append(callback)
                return
        with suppress(RuntimeError):  # the server has stopped
            self._loop.add_callback(self._next_tick, callback)

    def _next_tick(self, callback: Callable[[], None]) -> None:
        """From the loop: Panel collects a document's events while it writes, and one that another
        thread adds at that moment can be lost."""
        with suppress(RuntimeError, ValueError):  # the session is gone
            self._document.add_next_tick_callback(callback)

    def set(self, name: str, **values: Any) -> None:
        """Set parameters of a component, from the loop."""
        with self._gate:
            if not self.is_ready and not self.is_making:
                self._waiting.append(partial(self.set, name, **values))
                return
        self.told()
        self._roots[name].param.update(**values)

    def told(self) -> None:
        """Something was sent."""
        self._sent = True

    def beat(self) -> None:
        """Send a message that says nothing after those that said something: Panel (1.9.4) forgets
        a message that it is given in the very moment when the one before it has been written, until
        it is given another."""
        if self._sent and self.is_ready:
            self._sent = False
            self._roots["bar"].beat += 1
