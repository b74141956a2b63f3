"""The searches of a page, which go on beside what it shows: where training runs part, the first bad
pass of a compile.  Each has a view that says how it goes, and keeps what it found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core_compiler.support.errors import UserError
from workbench.app.compiles import Compile, Compiles
from workbench.app.workspace import Distrust
from workbench.model import divergences, first_bad_pass

#: The views that search, and where what they find is kept.
KEPT = {"divergence": divergences.RESULTS, "bisect": first_bad_pass.RESULTS}
#: The view that shows how far its search is.
TELLING = "bisect"


class Searches:
    """How the searches in the shown recording go, by their view."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, Any]] = {}

    def clear(self) -> None:
        """Another recording is shown."""
        self._facts = {}

    def facts(self, view: str, progress: Mapping[str, Any] | None) -> dict[str, Any]:
        """What a view says of its search: ``state``, ``error``, ``ask`` (code is to be allowed),
        and while it runs the ``progress`` of its job."""
        found = dict(self._facts.get(view, {}))
        return found | {"progress": progress} if self.runs(view) else found

    def runs(self, view: str) -> bool:
        return self._facts.get(view, {}).get("state") == "running"

    def begun(self, view: str, job: Compile) -> None:
        facts: dict[str, Any] = {"state": "running", "error": None, "ask": False}
        if "other" in job.job:
            facts |= {"a": job.job["recording"], "b": job.job["other"]}
        self._facts[view] = facts

    def refused(self, view: str, error: UserError, facts: Mapping[str, Any]) -> None:
        """It may not run; ``facts``: which recordings are meant."""
        ask = isinstance(error, Distrust)
        self._facts[view] = {"state": "failed", "ask": ask, **facts, **error.to_json()}

    def ended(self, view: str, job: Compile) -> None:
        error = job.error if job.outcome == "failed" else None
        self._facts[view] = {**self._facts.get(view, {}), "state": job.outcome, "error": error}


def running(compiles: Compiles, recording: Path) -> Iterator[tuple[str, Compile]]:
    """The searches in a recording that go on, whoever began them, with their views."""
    for view, results in KEPT.items():
        job = compiles.of(results.path_of(recording))
        if job is not None and job.running:
            yield view, job
