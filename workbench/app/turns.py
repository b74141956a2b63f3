"""The order in which a page executes its commands.

Slow work runs in a thread of the page's own; changes of the page run on the server's loop, which
all pages share. A turn begins when the previous one has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

#: A function that returns the result of a turn's work, or raises its exception.
Result = Callable[[], Any]


@dataclass(frozen=True)
class QueuedTask:
    """The ``work`` off the loop (None: none), and ``then``, which follows on it.

    ``urgent``: the data shown meanwhile is out of date.
    """

    then: Callable[[Result], None]
    work: Callable[[], Any] | None = None
    urgent: bool = False


class TaskQueue:
    """The turns of a page; all methods are called on the loop.

    ``run_in_page_thread`` runs a function in the page's thread, ``run_on_loop`` on the loop.
    """

    def __init__(
        self,
        run_in_page_thread: Callable[[Callable[[], None]], None],
        run_on_loop: Callable[[Callable[[], None]], None],
    ):
        self._run_in_page_thread, self._run_on_loop = run_in_page_thread, run_on_loop
        self._waiting: deque[QueuedTask] = deque()
        self._current: QueuedTask | None = None
        self._nested: list[QueuedTask] | None = (
            None  # the turns requested by the turn that is ending
        )

    def submit(self, task: QueuedTask) -> None:
        """Run a turn, at once if none is before it.

        Turns requested inside a turn follow it directly.
        """
        if self._nested is not None:
            self._nested.append(task)
            return
        self._waiting.append(task)
        self._run_next()

    @property
    def is_idle(self) -> bool:
        """Return whether a new turn would run at once."""
        return self._current is None and self._nested is None and not self._waiting

    @property
    def has_urgent(self) -> bool:
        """Return whether a turn that hurries has yet to end."""
        begun = self._current is not None and self._current.urgent
        return begun or any(task.urgent for task in (*self._waiting, *(self._nested or ())))

    def _run_next(self) -> None:
        while self._waiting and self._current is None:
            task = self._waiting.popleft()
            if task.work is None:
                self._end(task, lambda: None)
            else:
                self._current = task
                self._run_in_page_thread(partial(self._work, task, task.work))

    def _work(self, task: QueuedTask, work: Callable[[], Any]) -> None:
        result: Result
        try:
            result = partial(_return, work())
        except Exception as error:
            result = partial(_raise, error)
        self._run_on_loop(partial(self._finish_work, task, result))

    def _finish_work(self, task: QueuedTask, result: Result) -> None:
        self._current = None
        self._end(task, result)
        self._run_next()

    def _end(self, task: QueuedTask, result: Result) -> None:
        self._nested = []
        try:
            task.then(result)
        finally:
            self._waiting.extendleft(reversed(self._nested))
            self._nested = None


def _return(value: Any) -> Any:
    return value


def _raise(error: Exception) -> Any:
    raise error
