"""Statistics of the values that a recording's checks evaluated."""

from __future__ import annotations

from workbench.queries import numeric_results
from workbench.queries.numeric_results import Row
from workbench.queries.run import Run

#: The most values of a recording that are listed.
MAX_VALUES = 2_000
#: A histogram is sent as one character per bin: its height in 36 steps.
_HEIGHTS = "0123456789abcdefghijklmnopqrstuvwxyz"


def values(run: Run) -> list[Row]:
    """Return the statistics; those with NaN or Inf first, then in program order."""

    def make() -> list[Row]:
        rows = numeric_results.values(run.recording, place=run.source_location)
        for row in rows:
            row["bins"] = _drawn(row["bins"])
        return sorted(rows, key=lambda r: (not r["nan"], not r["inf"]))

    return run.cached(("numerics values", run.version.checks, run.version.figures), make)


def _drawn(bins: list[int]) -> str:
    """Return the heights of a histogram as characters; a non-empty bin never looks empty."""
    most = max(bins, default=0)
    return "".join(_HEIGHTS[-(-35 * n // most)] for n in bins) if most else ""
