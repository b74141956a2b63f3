"""The time that measurements may take: fewer repeats where one takes long, at least one."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

from core_compiler.support.errors import UserError

#: Seconds that a command measures for where nobody says otherwise.
SECONDS = 60.0
#: The share of its seconds that runs which are not timed may take.
WARMING = 0.25


class TimeBudget:
    """``seconds`` for one series of measurements, counted from when it is made; ``tell(done,
    wanted)`` hears of each that begins."""

    def __init__(
        self, seconds: float = inf, tell: Callable[[int, int], None] = lambda done, wanted: None
    ):
        if not seconds > 0:
            raise UserError(f"expected a time above 0, got {seconds:g} s", "budget",
                            "pass a number of seconds above 0")  # fmt: skip
        self.seconds, self._tell = seconds, tell
        self._began = self._last = time.monotonic()
        self._longest = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left, 0 where they are used up."""
        return max(0.0, self.seconds - (time.monotonic() - self._began))

    def warms(self, done: int, wanted: int) -> bool:
        """Whether another run that is not timed is to be done."""
        return done < wanted and time.monotonic() - self._began < WARMING * self.seconds

    def goes_on(self, done: int, wanted: int) -> bool:
        """Whether another measurement is to be made after ``done`` of ``wanted``: the first always,
        another where it fits if it takes as long as the longest so far.  Called before each."""
        now = time.monotonic()
        if done:
            self._longest = max(self._longest, now - self._last)
        self._last = now
        if done >= wanted or (done and self.left < self._longest):
            return False
        self._tell(done, wanted)
        return True


def said(done: int, wanted: int, seconds: float, what: str = "repeats") -> str:
    """``3 of 20 repeats in 60 s``, where the time ended a measurement; else ""."""
    return f"{done} of {wanted} {what} in {seconds:g} s" if done < wanted else ""
