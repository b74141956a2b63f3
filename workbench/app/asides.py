"""Background jobs of a page: the compile of its edited pipeline, searches in its recording."""

from __future__ import annotations

from collections.abc import Callable

from workbench.app.compiles import Compile

EndCallback = Callable[[Compile], None]


class BackgroundJobs:
    """The background jobs of a page, one per view that reports it, each with an end callback."""

    def __init__(self) -> None:
        self._all: dict[str, tuple[Compile, EndCallback]] = {}  # in order of arrival

    def begin(self, view: str, job: Compile, then: EndCallback) -> None:
        """Follow a job; ``then`` is called with it when it has ended."""
        self._all.pop(view, None)
        self._all[view] = job, then

    def clear(self) -> None:
        """Stop following all jobs; they continue to run."""
        self._all = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def job(self, view: str) -> Compile | None:
        return self._all[view][0] if view in self._all else None

    def newest(self) -> tuple[str, Compile] | None:
        """Return the running job that started last, and its view."""
        running = [(view, job) for view, (job, _) in self._all.items() if job.running]
        return running[-1] if running else None

    def pop_ended(self) -> tuple[Compile, EndCallback] | None:
        """Return a job that has ended, and stop following it."""
        ended = next((view for view, (job, _) in self._all.items() if not job.running), None)
        return None if ended is None else self._all.pop(ended)
