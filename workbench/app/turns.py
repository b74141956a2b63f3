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
class Turn:
    """The ``work`` off the loop (None: none), and ``then``, which follows on it.

    ``hurry``: the data shown meanwhile is out of date.
    """

    then: Callable[[Result], None]
    work: Callable[[], Any] | None = None
    hurry: bool = False


class Turns:
    """The turns of a page; all methods are called on the loop.

    ``aside`` runs a function in the page's thread, ``later`` on the loop.
    """

    def __init__(
        self,
        aside: Callable[[Callable[[], None]], None],
        later: Callable[[Callable[[], None]], None],
    ):
        self._aside, self._later = aside, later
        self._waiting: deque[Turn] = deque()
        self._working: Turn | None = None
        self._inside: list[Turn] | None = None  # the turns requested by the turn that is ending

    def take(self, turn: Turn) -> None:
        """Run a turn, at once if none is before it.

        Turns requested inside a turn follow it directly.
        """
        if self._inside is not None:
            self._inside.append(turn)
            return
        self._waiting.append(turn)
        self._go_on()

    @property
    def idle(self) -> bool:
        """Return whether a new turn would run at once."""
        return self._working is None and self._inside is None and not self._waiting

    @property
    def hurried(self) -> bool:
        """Return whether a turn that hurries has yet to end."""
        begun = self._working is not None and self._working.hurry
        return begun or any(turn.hurry for turn in (*self._waiting, *(self._inside or ())))

    def _go_on(self) -> None:
        while self._waiting and self._working is None:
            turn = self._waiting.popleft()
            if turn.work is None:
                self._end(turn, lambda: None)
            else:
                self._working = turn
                self._aside(partial(self._work, turn, turn.work))

    def _work(self, turn: Turn, work: Callable[[], Any]) -> None:
        result: Result
        try:
            result = partial(_given, work())
        except Exception as error:
            result = partial(_raise, error)
        self._later(partial(self._worked, turn, result))

    def _worked(self, turn: Turn, result: Result) -> None:
        self._working = None
        self._end(turn, result)
        self._go_on()

    def _end(self, turn: Turn, result: Result) -> None:
        self._inside = []
        try:
            turn.then(result)
        finally:
            self._waiting.extendleft(reversed(self._inside))
            self._inside = None


def _given(value: Any) -> Any:
    return value


def _raise(error: Exception) -> Any:
    raise error
