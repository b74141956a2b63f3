"""What the six tasks of the workbench may take: find the slowest kernel, its line of the model and
its hot loop (2 clicks), the pass that changed the numbers (1), what sets the memory peak (1), why
two ops were not fused (2), where the loss first became NaN (1), and what a pass did to an op (0: by
keys).

The only tests of the page that assert a time: that each takes no more clicks, and at most ten
seconds, is what the workbench promises.  ``benchmarks/tasks.py`` measures the same on larger
recordings.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.tasks import COUNT
from tests.workbench.page.conftest import Tab

MOST_SECONDS = 10.0


@contextmanager
def a_task(page: Tab, clicks_allowed: int = 1) -> Iterator[Tab]:
    """The body goes from the first page of a recording, which is shown, to the answer in the
    window, within the bounds.  A click is what the page saw as one, by mouse or by key (Enter on a
    button); reading, scrolling and other keys are none."""
    page.page.evaluate(COUNT)
    began = time.monotonic()
    yield page
    seconds = time.monotonic() - began
    clicks = page.page.evaluate("() => window.clicks")
    assert clicks <= clicks_allowed, f"{clicks} clicks"
    assert seconds <= MOST_SECONDS, f"{seconds:.1f} s"
