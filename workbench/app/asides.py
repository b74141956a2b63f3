"""Jobs beside what a page shows: the compile of its edited pipeline, searches in it."""

from __future__ import annotations

from collections.abc import Callable

from workbench.app.compiles import Compile

Then = Callable[[Compile], None]


class Asides:
    """One for each view that says how it goes, with what is done when it has ended."""

    def __init__(self) -> None:
        self._all: dict[str, tuple[Compile, Then]] = {}  # in the order in which they came

    def begin(self, view: str, job: Compile, then: Then) -> None:
        """Follow a job; ``then`` is called with it when it has ended."""
        self._all.pop(view, None)
        self._all[view] = job, then

    def clear(self) -> None:
        """They go on, and nobody here follows them any further."""
        self._all = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def job(self, view: str) -> Compile | None:
        return self._all[view][0] if view in self._all else None

    def newest(self) -> tuple[str, Compile] | None:
        """The one that began last of those that run, and its view."""
        running = [(view, job) for view, (job, _) in self._all.items() if job.running]
        return running[-1] if running else None

    def take_ended(self) -> tuple[Compile, Then] | None:
        """One that has ended, which is not followed from now on."""
        ended = next((view for view, (job, _) in self._all.items() if not job.running), None)
        return None if ended is None else self._all.pop(ended)
