"""How quick the page has to be, and which figures of `benchmarks/ui.py` are beyond that.

On two cores, with Chromium's software rendering; a busy machine misses them, so nothing asserts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Budget(NamedTuple):
    """The most that a figure may be, by the number of ops."""

    figure: str  # a name in what `ui.py` measures; parts of it after a dot
    what: str
    unit: str
    most: Mapping[int, float]


BUDGETS = (
    Budget(
        "first_paint_s",
        "first view, once the page is connected",
        "s",
        {1_000: 0.5, 10_000: 1.0, 100_000: 3.0},
    ),
    Budget(
        "step_ms.median",
        "step to the next pass, for the first time",
        "ms",
        {1_000: 100.0, 10_000: 300.0},
    ),
    Budget("pan.near.p95", "frame of a drag, text readable", "ms", {10_000: 50.0}),
    Budget("pan.whole.p95", "frame of a drag, whole graph", "ms", {10_000: 50.0}),
    Budget("redraw_ms.median", "sharp again after a drag", "ms", {10_000: 250.0}),
    Budget("server_bytes", "memory of the server", "B", {100_000: 1e9}),
)


def compare_budgets(measured: Mapping[str, Any]) -> Iterator[tuple[str, Budget, int, float, bool]]:
    """Group, budget, ops, figure and whether the budget is kept, of the generated graphs in what
    ``ui.py --json`` prints; of models (groups ``training: NAME``, ``recordings: NAME``) by the
    budget of the least number of ops that is not under theirs."""
    for group, row in _rows(measured):
        for budget in BUDGETS:
            ops = min((n for n in budget.most if n >= row["ops"]), default=None)
            if ops is None or (group in ("sizes", "long") and ops != row["ops"]):
                continue
            found: Any = row
            for part in budget.figure.split("."):
                found = None if found is None else found.get(part)
            if found is not None:
                yield group, budget, ops, found, found <= budget.most[ops]


def _rows(measured: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for group in ("sizes", "long"):
        for ops, row in measured.get(group, {}).items():
            yield group, {**row, "ops": int(ops)}
    for group in ("training", "recordings"):
        for name, row in measured.get(group, {}).items():
            if "ops" in row:
                yield f"{group}: {name}", row


def table(measured: Mapping[str, Any]) -> str:
    """What was measured beside the budgets, as a table in Markdown."""
    lines = ["| figure | ops | budget | short edges | with long edges |", "|---|---|---|---|---|"]
    found = {
        (group, budget.figure, ops): (value, kept)
        for group, budget, ops, value, kept in compare_budgets(measured)
    }
    for budget in BUDGETS:
        for ops, most in budget.most.items():
            cells = [found.get((group, budget.figure, ops)) for group in ("sizes", "long")]
            shown = [
                "not measured"
                if each is None
                else _format(each[0], budget.unit) + ("" if each[1] else " **(missed)**")
                for each in cells
            ]
            lines.append(
                f"| {budget.what} | {ops:,} | {_format(most, budget.unit)} | {' | '.join(shown)} |"
            )
    for group, budget, ops, value, kept in compare_budgets(measured):
        if group not in ("sizes", "long"):
            lines.append(
                f"| {budget.what} ({group}) | up to {ops:,} | "
                f"{_format(budget.most[ops], budget.unit)} | {_format(value, budget.unit)}"
                f"{'' if kept else ' **(missed)**'} | |"
            )
    return "\n".join(lines)


def _format(value: float, unit: str) -> str:
    return f"{value / 1e6:,.0f} MB" if unit == "B" else f"{value:,.3g} {unit}"
