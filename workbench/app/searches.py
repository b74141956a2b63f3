"""The background searches of a page: divergence of training runs, first bad pass of a compile.

Each has a view that shows its progress, and stores its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core_compiler.support.errors import UserError
from workbench.app.compiles import Compile, Compiles
from workbench.app.workspace import UntrustedCode
from workbench.model import divergences, first_bad_pass

#: The views that search, and the storage of their results.
RESULTS = {"divergence": divergences.RESULTS, "bisect": first_bad_pass.RESULTS}
#: The view that shows the progress of its search.
WITH_PROGRESS = "bisect"


class Searches:
    """The state of the searches in the shown recording, by their view."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, Any]] = {}

    def clear(self) -> None:
        """Forget the searches, because another recording is shown."""
        self._facts = {}

    def facts(self, view: str, progress: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the state of a view's search.

        It has ``state``, ``error``, ``ask`` (code needs consent), and while it runs the
        ``progress`` of its job.
        """
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
        """Note that a search was rejected; ``facts``: the recordings concerned."""
        ask = isinstance(error, UntrustedCode)
        self._facts[view] = {"state": "failed", "ask": ask, **facts, **error.to_json()}

    def ended(self, view: str, job: Compile) -> None:
        error = job.error if job.outcome == "failed" else None
        self._facts[view] = {**self._facts.get(view, {}), "state": job.outcome, "error": error}


def running(compiles: Compiles, recording: Path) -> Iterator[tuple[str, Compile]]:
    """Yield the running searches in a recording, of any user, with their views."""
    for view, results in RESULTS.items():
        job = compiles.of(results.path_of(recording))
        if job is not None and job.running:
            yield view, job
