"""Time budgets of measurements: fewer repeats if one takes long, but at least one."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

from core_compiler.support.errors import UserError

#: The default time of a command's measurements in seconds.
SECONDS = 60.0
#: The fraction of the budget that untimed runs may take.
WARMING = 0.25


class TimeBudget:
    """A budget of ``seconds`` for one series of measurements, starting at its creation.

    ``report(done, wanted)`` is called for each that begins.
    """

    def __init__(
        self, seconds: float = inf, report: Callable[[int, int], None] = lambda done, wanted: None
    ):
        if not seconds > 0:
            raise UserError(
                f"expected a time above 0, got {seconds:g} s",
                "budget",
                "pass a number of seconds above 0",
            )
        self.seconds, self._report = seconds, report
        self._start_time = self._last = time.monotonic()
        self._longest = 0.0

    @property
    def left(self) -> float:
        """Return the remaining seconds, 0 if they are used up."""
        return max(0.0, self.seconds - (time.monotonic() - self._start_time))

    def allows_warmup(self, done: int, wanted: int) -> bool:
        """Return whether to do another untimed run."""
        return done < wanted and time.monotonic() - self._start_time < WARMING * self.seconds

    def allows_repeat(self, done: int, wanted: int) -> bool:
        """Return whether to measure again after ``done`` of ``wanted``; called before each.

        The first is always made, another if it fits when it takes as long as the longest so far.
        """
        now = time.monotonic()
        if done:
            self._longest = max(self._longest, now - self._last)
        self._last = now
        if done >= wanted or (done and self.left < self._longest):
            return False
        self._report(done, wanted)
        return True


def describe_cutoff(done: int, wanted: int, seconds: float, what: str = "repeats") -> str:
    """Return ``3 of 20 repeats in 60 s`` if the budget ended a measurement; else ""."""
    return f"{done} of {wanted} {what} in {seconds:g} s" if done < wanted else ""
